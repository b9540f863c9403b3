//! Arguments that several commands share, and the requests that they become.

pub(super) mod arguments;
pub(super) mod known_agents;
pub(super) mod run_request;
pub(super) mod terminal_arguments;
