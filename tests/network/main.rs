//! The network by name: what a sandbox with the network `proxy` reaches, and what it does not.

#[path = "../support/mod.rs"]
mod support;

mod allowed;
mod asked;
mod bypass;
mod clients;
mod fixture;
mod forward;
mod life;
mod names;
mod opened;
mod opened_secrets;
mod opened_servers;
mod opened_tools;
mod passed;
mod programs;
mod python_server;
mod rebinding;
mod reload;
mod requests;
mod rules;
mod sockets;
