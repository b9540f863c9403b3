//! Evaluates commands: what an argument vector or a shell line would run, and what the rules say about it. Pure.

pub(super) mod answers;
mod builtin;
pub mod called_from;
mod effects;
mod evaluator;
pub mod examples;
pub(super) mod flags;
pub(super) mod git;
mod glob;
pub mod interpreter;
pub(super) mod kinds;
pub mod known_directories;
mod leading_words;
pub(super) mod option_syntax;
mod options;
pub mod pattern;
pub mod program;
pub(super) mod readings;
pub mod rule;
pub mod shell;
pub(super) mod tool_options;
pub mod verdict;
pub mod wrapper;

pub use builtin::changes_lookup;
pub use evaluator::evaluate_rules;
