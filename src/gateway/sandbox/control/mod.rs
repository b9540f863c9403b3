//! A sandbox that runs: the connection to its supervisor, requests to it, its end and what is removed afterwards.

mod agent;
pub(crate) mod cleanup;
pub(crate) mod connection;
mod connection_table;
pub(crate) mod gate;
pub(crate) mod handle;
pub(crate) mod links;
mod net;
mod program_search;
pub(crate) mod terminal_observer;
pub(crate) use net::SocketFamily;
pub(crate) mod requests;
mod session_files;
pub(crate) mod spawn_error;
pub(crate) mod start;
