//! The network by name: what a sandbox with the network `proxy` reaches, and what it does not.

use provost_test_support as support;

support::test_program!();

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

mod allowed;
mod asked;
mod bypass;
mod clients;
mod fixture;
mod forward;
mod front_ends;
mod life;
mod names;
mod needed;
mod opened;
mod opened_attacks;
mod opened_secrets;
mod opened_servers;
mod opened_tools;
mod passed;
mod private_ca;
mod program_attacks;
mod programs;
mod python_server;
mod rebinding;
mod reload;
mod requests;
mod rotated;
mod rules;
mod shared_loopback;
mod socket_attacks;
mod sockets;
mod without_diag;
