//! A connection to a gateway; calls over an outage of the gateway; and what the front ends send and say alike.
//!
//! It starts nothing and keeps no state of sessions or terminals.

#![forbid(unsafe_code)]

mod connection;
mod outcome;
mod refusal;
mod requests;
mod retrying;
mod run_stream;

pub use connection::{Client, ConnectError, connect, connect_giving};
pub use outcome::{
    cause_word, end_lines, ended_line, hint_json, network_cause, network_word, offers_proxy,
    workspace_shortfall_line,
};
pub(crate) use outcome::{denial_json, denial_lines, ended_json, unreachable_json, workspace_lines};
pub(crate) use refusal::{
    advice_when_denied, advice_when_not_started, detail_of, message_with_bad_field, message_with_field,
    message_with_rule, reason_or_code_of,
};
pub use refusal::{bad_field_of, details_of, reason_of};
pub(crate) use requests::client_label;
pub use requests::{
    FrontEnd, keep_umask, new_terminal, session_in_bytes, ssh_agent_socket, terminal_in_bytes,
};
pub(crate) use retrying::{RetryingClient, is_unanswered, may_have_been_received};
pub use run_stream::RunStream;
