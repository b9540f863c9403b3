//! The process's own side: standard streams, signals, the terminal it runs in, tables, errors and exit statuses.

pub mod command_input;
pub mod error;
pub mod exit_status;
pub mod json;
pub mod log_writer;
pub mod output_file;
pub mod person_terminal;
pub mod receipt;
pub mod shown_output;
pub mod signals;
pub mod stdio;
pub mod table;
