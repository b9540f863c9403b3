//! The use cases of terminals and sessions, one file each.

pub mod adopt;
pub mod approve;
pub mod close_session;
mod connect_grants;
mod connect_questions;
mod connections;
pub mod context;
pub mod control;
pub mod create;
mod exec_questions;
pub mod explain;
pub mod forward;
mod gate_reports;
mod line_driver;
pub mod line_end;
pub mod new_request;
pub mod open_session;
pub mod release;
pub mod resolve_approval;
pub mod run;
pub mod run_line;
pub mod running_line;
pub mod screens;
mod shell_terminal;
pub mod shutdown;
pub mod steps;
