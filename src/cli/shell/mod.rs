//! A shell of an agent: one line each, in one session.

#[expect(clippy::module_inception, reason = "the directory is about shells, the file about one")]
pub mod shell;
mod shell_call;
pub mod shell_wrapper;
