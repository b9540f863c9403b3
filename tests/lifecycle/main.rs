//! The life of a session and of a terminal, requirement by requirement (T1 to T5 and T8 to T16).

#[path = "../support/mod.rs"]
mod support;

mod create;
mod ends;
mod identity;
mod input;
mod isolation;
mod owner_process;
mod reaping;
mod refusals;
mod removed_roots;
mod session_files;
mod session_network;
mod spawn_errors;
mod stopping;
mod watching;
