//! A line that runs, as its caller follows it: its start, its output, that it waits, its end, and what makes that end doubtful.
//!
//! Reads the output by itself, and holds up neither the line nor the shell. Dropped, it ends nothing.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use tokio::sync::watch;

use crate::{
    proto::v1::Outcome,
    terminal::{
        output::{Cursor, OutputPiece, OutputReadError},
        spec::Channel,
        state::Terminal,
    },
};

/// What makes the answer to a line doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LineDoubt {
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
pub(crate) enum LineEnding {
    /// The shell has answered, with this exit status.
    Confirmed(u8),
    /// The shell waits for input, and nothing came for the time that the caller gave.
    Quiet,
    /// The shell has ended.
    ShellEnded(Option<Arc<Outcome>>),
}

/// The end of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineEnd {
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

/// What happens while a line runs, in order.
#[derive(Debug)]
pub(crate) enum LineEvent {
    /// The shell has begun it.
    Started {
        /// Names it for input.
        id: String,
        /// Where its output starts.
        offset: u64,
    },
    /// Output.
    Output(OutputPiece),
    /// It waits for input.
    Waits,
    /// Its end: the last event.
    Ended(Arc<LineEnd>),
}

/// Following a line failed. The line goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FollowLineError {
    /// Its output cannot be read.
    #[error(transparent)]
    Read(#[from] OutputReadError),
    /// Nobody drives it any more: the gateway is going down.
    #[error("the line is not followed any more")]
    Abandoned,
}

/// A line that runs.
#[derive(Debug)]
pub(crate) struct RunningLine {
    terminal: Arc<Terminal>,
    id: String,
    progress: watch::Receiver<LineProgress>,
    /// From the line's start on.
    cursor: Option<Cursor>,
    /// Read, and not known to be the line's output yet.
    read: Option<(u64, Bytes)>,
    waits: u64,
    is_over: bool,
}

impl RunningLine {
    pub(in crate::terminal) fn new(
        terminal: Arc<Terminal>,
        id: String,
        progress: watch::Receiver<LineProgress>,
    ) -> Self {
        Self { terminal, id, progress, cursor: None, read: None, waits: 0, is_over: false }
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// [`FollowLineError`].
    pub(crate) async fn next(&mut self) -> Result<Option<LineEvent>, FollowLineError> {
        while !self.is_over {
            let now = self.progress.borrow_and_update().clone();
            if let Some(offset) = now.start {
                let Some(cursor) = &mut self.cursor else {
                    let cursor = Cursor::without_hold(self.terminal.clone(), Channel::Stdout, offset)?;
                    self.cursor = Some(cursor);
                    return Ok(Some(LineEvent::Started { id: self.id.clone(), offset }));
                };
                if let Some(piece) = next_output(cursor, &mut self.read, now.settled).await? {
                    return Ok(Some(LineEvent::Output(piece)));
                }
            }
            if now.waits > self.waits {
                self.waits = now.waits;
                return Ok(Some(LineEvent::Waits));
            }
            if let Some(end) = now.end {
                self.is_over = true;
                return Ok(Some(LineEvent::Ended(end)));
            }
            self.progress.changed().await.map_err(|_| FollowLineError::Abandoned)?;
        }
        Ok(None)
    }
}

/// Output up to an offset.
async fn next_output(
    cursor: &mut Cursor,
    read: &mut Option<(u64, Bytes)>,
    until: u64,
) -> Result<Option<OutputPiece>, OutputReadError> {
    if read.is_none() && cursor.offset() < until {
        match cursor.try_next().await? {
            Some(OutputPiece::Data { offset, data }) => *read = Some((offset, data)),
            Some(OutputPiece::Gap { from, to }) => {
                return Ok((from < until).then_some(OutputPiece::Gap { from, to: to.min(until) }));
            }
            None => {}
        }
    }
    let Some((offset, mut data)) = read.take() else { return Ok(None) };
    let length = usize::try_from(until.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
    let rest = data.split_off(length);
    if !rest.is_empty() {
        *read = Some((offset + length as u64, rest));
    }
    Ok((!data.is_empty()).then_some(OutputPiece::Data { offset, data }))
}
