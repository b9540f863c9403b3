//! Reads a terminal's output: what is retained now, or a stream from an offset on.
//!
//! It does not poll: a reader that has everything arms the ring and sleeps until the supervisor reports a change. Bytes that a
//! slow reader has missed are reported as a gap.

use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;

use super::redacted_ring::{self, RedactedPart};
use crate::{
    masking::{Masker, StreamEnd},
    reason::Reason,
    sys::ring,
    terminal::{
        channel::Channel,
        spec::{Backpressure, ReaderKind},
        state::{claim::Claim, stage::Stage, terminal::Terminal},
    },
};

/// How much one piece may hold.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes that may be on the way to a reader. A reader that comes back after the gateway has died finds them again.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;

/// Reading output failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutputReadError {
    /// The terminal has no such stream.
    #[error("stdout and stderr of this terminal are one stream")]
    NotSplit,
    /// The ring cannot be read.
    #[error("read the output ring")]
    Ring(#[source] Errno),
}

impl From<&OutputReadError> for Reason {
    fn from(error: &OutputReadError) -> Self {
        match error {
            OutputReadError::NotSplit => Self::BadField,
            OutputReadError::Ring(_) => Self::OutputRing,
        }
    }
}

/// What is retained at one moment.
#[derive(Debug)]
pub struct Retained {
    /// At most the terminal's limit.
    pub data: Bytes,
    /// Of the first byte.
    pub start_offset: u64,
    /// Of the byte that comes next.
    pub next_offset: u64,
    /// The terminal's state when it was read.
    pub stage: Stage,
}

/// Whether a stream goes on while the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Until the end.
    UntilEnd,
    /// Only what is held now.
    RetainedOnly,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPiece {
    /// Bytes.
    Data {
        /// Of the first one.
        offset: u64,
        /// At least one.
        data: Bytes,
    },
    /// Bytes that were dropped before the reader came to them: `from..to`.
    Gap {
        /// The first one.
        from: u64,
        /// The one after the last.
        to: u64,
    },
}

impl Terminal {
    /// The last bytes of the output, at most the terminal's limit.
    pub fn retained(&self, channel: Channel) -> Result<Retained, OutputReadError> {
        // The stage before the ring: of a finished terminal everything is there.
        let stage = self.stage();
        let Some(ring) = self.ring(channel)? else {
            return Ok(Retained { data: Bytes::new(), start_offset: 0, next_offset: 0, stage });
        };
        let head = ring.head();
        let start = ring.tail().max(head.saturating_sub(self.spec.output_limit_bytes)).min(head);
        let part = self.read(ring, start, head - start, &stage)?;
        let next_offset = part.offset + part.data.len() as u64;
        Ok(Retained { data: part.data.into(), start_offset: part.offset, next_offset, stage })
    }

    /// Bytes of a stream from the start, and the oldest one still held: (oldest, next).
    pub fn offsets(&self, channel: Channel) -> Option<(u64, u64)> {
        let ring = self.ring(channel).ok()??;
        let head = ring.head();
        Some((ring.tail().min(head), head))
    }

    /// Reads a ring of this terminal, without what is secret in it.
    fn read(
        &self,
        ring: &ring::RingReader,
        from: u64,
        max: u64,
        stage: &Stage,
    ) -> Result<RedactedPart, OutputReadError> {
        let ends = if stage.is_over() { StreamEnd::Whole } else { StreamEnd::MayContinue };
        redacted_ring::read_redacted(ring, &self.masker(), from, max, ends).map_err(OutputReadError::Ring)
    }

    fn masker(&self) -> Masker {
        self.live().map_or(Masker::NONE, |live| live.masker.current())
    }

    fn ring(&self, channel: Channel) -> Result<Option<&ring::RingReader>, OutputReadError> {
        let Some(live) = self.live() else { return Ok(None) };
        match channel {
            Channel::Stdout => Ok(Some(&live.stdout)),
            Channel::Stderr => live.stderr.as_ref().map(Some).ok_or(OutputReadError::NotSplit),
        }
    }
}

/// A place in one stream of a terminal.
#[derive(Debug)]
pub struct Cursor {
    terminal: Arc<Terminal>,
    channel: Channel,
    offset: u64,
    /// Up to where it has looked: behind `offset` while the beginning of a secret is held back.
    scanned: u64,
    queued: Option<OutputPiece>,
    is_holding: bool,
}

impl Cursor {
    /// At an offset; one before the oldest byte held gives a gap first, one past the end waits. Of a stream that the
    /// command waits for, the first cursor holds it.
    pub fn new(terminal: Arc<Terminal>, channel: Channel, offset: u64) -> Result<Self, OutputReadError> {
        terminal.ring(channel)?;
        Ok(Self::acquire_hold(terminal, channel, offset, ReaderKind::Stream))
    }

    /// At an offset, as [`Self::new`]; the command never waits for it.
    pub fn without_hold(
        terminal: Arc<Terminal>,
        channel: Channel,
        offset: u64,
    ) -> Result<Self, OutputReadError> {
        terminal.ring(channel)?;
        Ok(Self { terminal, channel, offset, scanned: offset, queued: None, is_holding: false })
    }

    /// The run's cursors: at these offsets of stdout and stderr, holding every stream.
    pub fn for_run(terminal: &Arc<Terminal>, offsets: [u64; 2]) -> Vec<Self> {
        let split = terminal.live().is_some_and(|live| live.stderr.is_some());
        let at = |channel, offset| Self::acquire_hold(terminal.clone(), channel, offset, ReaderKind::Run);
        let stdout = at(Channel::Stdout, offsets[0]);
        if split { vec![stdout, at(Channel::Stderr, offsets[1])] } else { vec![stdout] }
    }

    fn acquire_hold(terminal: Arc<Terminal>, channel: Channel, offset: u64, reader: ReaderKind) -> Self {
        let is_holding = terminal.hold(channel, offset, reader) == Claim::Granted;
        Self { terminal, channel, offset, scanned: offset, queued: None, is_holding }
    }

    /// Which stream.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Where it is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece that is there already.
    pub async fn try_next(&mut self) -> Result<Option<OutputPiece>, OutputReadError> {
        if let Some(chunk) = self.queued.take() {
            return Ok(Some(chunk));
        }
        // The stage before the ring: of a finished terminal everything is there, and nothing is held back.
        let stage = self.terminal.stage();
        let Some(ring) = self.terminal.ring(self.channel)? else { return Ok(None) };
        let available = ring.head().saturating_sub(self.offset);
        if available == 0 {
            return Ok(None);
        }
        let RedactedPart { offset, data, scanned: seen } =
            self.terminal.read(ring, self.offset, available.min(CHUNK_BYTES), &stage)?;
        let missed_from = self.offset;
        self.offset = offset + data.len() as u64;
        self.scanned = seen.max(self.offset);
        self.advance_hold(ring).await;
        let bytes = (!data.is_empty()).then(|| OutputPiece::Data { offset, data: Bytes::from(data) });
        if offset > missed_from {
            self.queued = bytes;
            return Ok(Some(OutputPiece::Gap { from: missed_from, to: offset }));
        }
        Ok(bytes)
    }

    /// What has reached the reader may be overwritten; a supervisor that waits for that is notified.
    async fn advance_hold(&self, ring: &ring::RingReader) {
        if self.is_holding {
            // What stands before says what behind it is secret.
            let reach = self.terminal.masker().context_bytes() as u64;
            ring.set_hold(self.offset.saturating_sub(reach.max(self.in_flight_bytes(ring))));
            if ring.take_stalled() {
                self.resume().await;
            }
        }
    }

    /// How much of what was copied the reader may not have. A run that is not resumable does not come back.
    fn in_flight_bytes(&self, ring: &ring::RingReader) -> u64 {
        match self.terminal.spec.backpressure {
            Backpressure::ForStream | Backpressure::ForResumableRun => {
                IN_FLIGHT_BYTES_MAX.min(ring.capacity() / 2)
            }
            Backpressure::Never | Backpressure::ForRun => 0,
        }
    }

    async fn resume(&self) {
        if let Some(live) = self.terminal.live() {
            // A sandbox that is gone has nothing more to write.
            let _ = live.sandbox.resume(self.terminal.id.to_string()).await;
        }
    }

    /// Asks to be woken at the ring's next change. True when there is something to read already.
    pub fn arm(&self) -> bool {
        match self.terminal.ring(self.channel) {
            Ok(Some(ring)) => {
                ring.arm();
                ring.head() > self.scanned
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// The next piece; `None` at the end of the stream: the command has ended and everything was read, or the
    /// terminal was released, or there is no more now and the stream does not follow.
    pub async fn next(&mut self, follow: Follow) -> Result<Option<OutputPiece>, OutputReadError> {
        let terminal = self.terminal.clone();
        loop {
            let changed = terminal.progress().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            // The stage before the ring: of a finished terminal everything is there.
            let stage = terminal.stage();
            if matches!(stage, Stage::Released(_)) {
                return Ok(None);
            }
            if let Some(chunk) = self.try_next().await? {
                return Ok(Some(chunk));
            }
            if stage.is_over() || follow == Follow::RetainedOnly {
                return Ok(None);
            }
            if !self.arm() {
                changed.await;
            }
        }
    }
}

impl Drop for Cursor {
    /// A reader that goes away holds nothing up any more.
    fn drop(&mut self) {
        if self.is_holding {
            self.terminal.release_hold(self.channel);
        }
    }
}
