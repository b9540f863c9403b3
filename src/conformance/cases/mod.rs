//! The cases, a file for each subject. Numbers are given once: a case that goes leaves its number unused.

mod cleanup;
mod commands;
mod coverage;
mod display;
mod errors;
mod exits;
mod forwarding;
mod killing;
mod output;
mod parameters;
mod process;
mod releasing;
mod sessions;
mod text;
mod wire;

use super::case::Case;

/// All lists.
pub(super) const LISTS: &[&[Case]] = &[
    commands::CASES,
    parameters::CASES,
    output::CASES,
    text::CASES,
    exits::CASES,
    killing::CASES,
    releasing::CASES,
    errors::CASES,
    wire::CASES,
    process::CASES,
    forwarding::CASES,
    sessions::CASES,
    display::CASES,
    cleanup::CASES,
    coverage::CASES,
];
