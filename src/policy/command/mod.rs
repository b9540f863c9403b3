//! Evaluates commands: what an argument vector or a shell line would run, and what the rules say about it. Pure.

mod builtin;
mod effects;
mod evaluator;
pub mod examples;
pub(super) mod flags;
mod glob;
pub mod kinds;
pub mod known_directories;
pub mod pattern;
pub mod program;
pub(super) mod readings;
pub mod rule;
pub mod shell;
pub(super) mod tool_options;
pub mod verdict;
pub mod wrapper;

pub(crate) use builtin::changes_lookup;
pub use evaluator::evaluate_rules;
