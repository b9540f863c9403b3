//! Provost: a sandboxed command-execution gateway. `ARCHITECTURE.md` is the map.

#![forbid(unsafe_code)]

pub mod cli;

pub use provost_base::{
    byte_text, caller, cgroup, counters, display, failpoint, masking, output, printable, sandbox_program,
    signal, statefile, stdio, sys, wire,
};
pub use provost_frontends::{acp, client, exec_server, local_http, mcp};
pub use provost_gateway::{
    self as gateway, approval, grpc, kept_cache, kept_shell, pool, reason, sandbox, session, terminal,
    workspace,
};
pub use provost_journal as journal;
pub use provost_policy::{self as policy, certificate, network, resolve, ssh_agent};
pub use provost_proto as proto;
