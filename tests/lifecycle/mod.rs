//! The life of a session and of a terminal, requirement by requirement (T1 to T5 and T8 to T16).

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

use crate::acp::shim_peer as acp_peer;
use crate::exec_server::peer;
use crate::mcp::peer as mcp_peer;
