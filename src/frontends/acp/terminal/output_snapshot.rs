//! What is known of a terminal's output and of its end: the retained text, and whether more may come.

use std::sync::Arc;

use agent_client_protocol_schema::v1::TerminalExitStatus;
use tokio::sync::OnceCell;

use super::{exit, text::Tail};
use crate::{
    client,
    proto::v1::{self, TerminalState},
};

/// What is known of the output.
#[derive(Debug)]
pub(super) struct OutputSnapshot {
    pub(super) tail: Tail,
    pub(super) completeness: Completeness,
    /// The text as a JSON string, and what was produced when it was made.
    pub(super) encoded: Option<(u64, Arc<str>)>,
    /// What was produced at the last look.
    pub(super) looked_at: u64,
}

/// Whether that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    MoreMayCome,
    Complete,
}

/// What comes of a line's output.
#[derive(Debug, Clone, Copy)]
pub(super) enum LineOutput<'a> {
    /// Bytes, with ends of lines as a program writes them.
    Text(&'a [u8]),
    /// Some was overwritten before it was read.
    Gap,
}

/// What an agent uses for a process that is to go on.
const INSTEAD: &str = "what is to go on needs a terminal of its own, in the foreground";

impl OutputSnapshot {
    pub(in crate::acp) fn new(limit_bytes: usize) -> Self {
        Self {
            tail: Tail::new(limit_bytes),
            completeness: Completeness::MoreMayCome,
            encoded: None,
            looked_at: 0,
        }
    }

    /// Whether there is more than at the last look, or everything.
    pub(super) fn is_changed(&self) -> bool {
        self.completeness == Completeness::Complete || self.tail.produced() != self.looked_at
    }

    /// The gateway has given everything that is there.
    pub(in crate::acp) fn end(&mut self, end: &v1::OutputEnd, exit: &OnceCell<TerminalExitStatus>) {
        match end.state() {
            TerminalState::Finished | TerminalState::Released => {
                self.tail.finish();
                // Most agents show their model the output and the code, and nothing else.
                self.tail
                    .add_notices(end.outcome.iter().flat_map(|outcome| client::end_lines(outcome, INSTEAD)));
                self.completeness = Completeness::Complete;
                if let Some(ended) = &end.outcome {
                    // A waiter may have been faster, with the same.
                    let _ = exit.set(exit::status_of(ended));
                }
            }
            TerminalState::Unspecified | TerminalState::Created | TerminalState::Running => {}
        }
    }

    pub(super) fn encoded(&mut self) -> Arc<str> {
        let produced = self.tail.produced();
        match &self.encoded {
            Some((then, encoded)) if *then == produced => encoded.clone(),
            Some(_) | None => {
                let encoded: Arc<str> =
                    serde_json::to_string(self.tail.text()).expect("a text is always JSON").into();
                self.encoded = Some((produced, encoded.clone()));
                encoded
            }
        }
    }
}

/// The end of a text, at most `limit_bytes` of it, cut between characters.
pub(super) fn tail_of(text: &str, limit_bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(limit_bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
