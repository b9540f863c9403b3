//! Provost: a sandboxed command-execution gateway. `ARCHITECTURE.md` is the map.

pub mod acp;
pub mod approval;
pub mod cgroup;
pub mod cli;
pub mod client;
pub mod conformance;
pub mod counters;
pub mod display;
pub mod failpoint;
pub mod gate;
pub mod gateway;
pub mod grpc;
pub mod journal;
pub mod kept_shell;
pub mod masking;
pub mod mcp;
pub mod net;
pub mod network;
pub mod output;
pub mod policy;
pub mod pool;
pub mod printable;
pub mod proto;
pub mod reason;
pub mod resolve;
pub mod sandbox;
pub mod screen;
pub mod session;
pub mod statefile;
pub mod subreaper;
pub mod supervisor;
#[allow(unsafe_code)]
pub mod sys;
pub mod terminal;
pub mod wire;
pub mod workspace;
