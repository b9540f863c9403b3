//! The gateway's side of a sandbox.
//!
//! Each directory imports only from those that stand before it here:
//! `counters`, `process_links` (how the processes of a sandbox are reached), `session_network`, `seccomp`, `cgroup`, `roots` and `agent_link` (the callers' SSH agents); `spec` (the request for a sandbox); `host` (what sandboxes
//! share); `protections` (what commands cannot change); `sandbox_state` (the record on disk); `probe` (what this host offers); `launch`; `gate_link`, `screen_link` and
//! `net_link` (the connections to the gates, the screen processes and the net processes); `control` (a sandbox that runs); `restore`
//! (sandboxes of an earlier gateway).

pub(crate) mod agent_link;
pub mod cgroup;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod gate_link;
pub mod host;
pub mod launch;
pub(crate) mod net_link;
pub mod probe;
mod process_links;
pub(crate) mod protections;
pub(crate) mod restore;
pub mod roots;
pub(crate) mod sandbox_state;
pub mod screen_link;
pub(crate) mod seccomp;
pub(crate) mod session_network;
pub mod spec;

pub(crate) use control::{SocketFamily, links::SandboxLinks};
