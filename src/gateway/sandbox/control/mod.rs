//! A sandbox that runs: the connection to its supervisor, requests to it, its end and what is removed afterwards.

mod agent;
pub mod cleanup;
pub mod connection;
mod connection_table;
pub mod gate;
pub mod handle;
pub mod links;
pub mod listener;
mod net;
mod program_search;
pub(crate) use net::SocketFamily;
pub mod requests;
mod session_files;
pub mod spawn_error;
pub mod start;
