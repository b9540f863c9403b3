//! The life of a session and of a terminal, requirement by requirement (T1 to T5 and T8 to T16).

#[path = "../support/mod.rs"]
mod support;

#[path = "../acp/shim_peer.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod acp_peer;

#[path = "../exec_server/peer.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod peer;

#[path = "../exec_server/socket.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod socket;

#[path = "../mcp/peer.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod mcp_peer;

mod create;
mod ends;
mod identity;
mod input;
mod isolation;
mod left_running;
mod owner_process;
mod reaping;
mod refusals;
mod removed_roots;
mod session_files;
mod session_network;
mod spawn_errors;
mod stopping;
mod watching;
