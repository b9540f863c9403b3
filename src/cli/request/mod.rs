//! Arguments that several commands share, and the requests that they become.

pub mod arguments;
pub mod known_agents;
pub mod run_request;
pub mod terminal_arguments;
