//! The five terminal methods: a command is started, its output followed, and its end told.

pub(super) mod content;
pub(super) mod create;
pub(super) mod exit;
mod kept_shells;
mod output;
pub(super) mod start;
#[expect(clippy::module_inception, reason = "the directory is about terminals, the file about one")]
pub(super) mod terminal;
pub(super) mod terminals;
