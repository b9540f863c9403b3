//! The cases, a file for each subject. Numbers are given once: a case that goes leaves its number unused.

mod commands;
mod errors;
mod exits;
mod killing;
mod output;
mod parameters;
mod passing;
mod process;
mod reaping;
mod releasing;
mod sessions;
mod showing;
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
    passing::CASES,
    sessions::CASES,
    showing::CASES,
    reaping::CASES,
];
