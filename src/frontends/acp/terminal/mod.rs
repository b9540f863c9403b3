//! The five terminal methods: a command is started, its output followed, and its end told.

pub mod content;
pub mod create;
pub mod exit;
mod kept_shells;
mod output;
pub mod start;
#[expect(clippy::module_inception, reason = "the directory is about terminals, the file about one")]
pub mod terminal;
pub mod terminals;
