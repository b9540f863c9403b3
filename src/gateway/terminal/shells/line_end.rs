//! What is known of a line in a kept shell: how far it has come, how its end was found, and what makes that doubtful.

use std::{collections::BTreeSet, sync::Arc};

use crate::proto::v1::Outcome;

/// What makes the answer to a line doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineDoubt {
    /// Marks did not come.
    MarksMissing,
    /// Marks came that the shell cannot have written, or too many.
    MarksFalse,
    /// The shell's process executes another program.
    ShellReplaced,
    /// A program took the whole screen.
    FullScreen,
    /// Output was overwritten before it was read.
    OutputLost,
}

/// How the end of a line was found.
#[derive(Debug, Clone, PartialEq)]
pub enum LineEnding {
    /// The shell has answered, with this exit status.
    Confirmed(u8),
    /// The shell waits for input, and nothing came for the time that the caller gave.
    Quiet,
    /// The shell has ended.
    ShellEnded(Option<Arc<Outcome>>),
}

/// The end of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineEnd {
    /// How it was found.
    pub ending: LineEnding,
    /// Where its output starts in the terminal's.
    pub start_offset: u64,
    /// The offset behind it.
    pub end_offset: u64,
    /// What makes this doubtful.
    pub doubts: BTreeSet<LineDoubt>,
    /// The shell's directory, as it says; empty: unknown.
    pub cwd: String,
}

/// How far a line has come.
#[derive(Debug, Clone, Default)]
pub(in crate::terminal) struct LineProgress {
    /// Where its output starts, once it has begun.
    pub start: Option<u64>,
    /// Up to here it is the line's output.
    pub settled: u64,
    /// How often it has begun to wait for input.
    pub waits: u64,
    pub end: Option<Arc<LineEnd>>,
}
