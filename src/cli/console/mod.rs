//! The process's own side: standard streams, signals, the terminal it runs in, tables, errors and exit statuses.

pub(super) mod command_input;
pub(super) mod error;
pub(super) mod exit_status;
pub(super) mod json;
pub(super) mod log_writer;
pub(super) mod output_file;
pub(super) mod person_terminal;
pub(super) mod receipt;
pub(super) mod shown_output;
pub(super) mod signals;
pub(super) mod stdio;
pub(super) mod table;
