//! A shell of an agent: one line each, in one session.

#[expect(clippy::module_inception, reason = "the directory is about shells, the file about one")]
pub(super) mod shell;
mod shell_call;
pub(super) mod shell_wrapper;
