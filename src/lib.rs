//! Provost: a sandboxed command-execution gateway. `ARCHITECTURE.md` is the map.

pub mod acp;
pub mod approval;
pub mod cli;
pub mod client;
pub mod exec_server;
pub mod gate;
pub mod gateway;
pub mod grpc;
pub mod kept_cache;
pub mod kept_shell;
pub mod local_http;
pub mod mcp;
pub mod net;
pub mod pool;
pub mod reason;
pub mod sandbox;
pub mod screen;
pub mod session;
pub mod subreaper;
pub mod supervisor;
pub mod terminal;
pub mod workspace;

pub use provost_base::{
    byte_text, caller, cgroup, counters, display, failpoint, masking, output, printable, signal, statefile,
    stdio, sys, wire,
};
pub use provost_conformance as conformance;
pub use provost_journal as journal;
pub use provost_policy::{self as policy, certificate, network, resolve, ssh_agent};
pub use provost_proto as proto;
