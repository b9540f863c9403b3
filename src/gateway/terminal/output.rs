//! A terminal's output: what is retained now, or a stream from an offset on, with the bytes of secrets masked.
//!
//! It does not poll: a reader that has everything arms the ring and sleeps until the supervisor reports a change. Bytes that a
//! slow reader has missed are reported as a gap.
//!
//! A reader can keep output from being overwritten. With block-when-full the command waits for a reader of each ring, from the start on.
//! One reader of a ring holds it; other readers may miss bytes, which are counted. When the reader that holds a ring goes away, the ring
//! waits for no reader; when the last such reader of the terminal goes away, no ring does. The rings of a run wait for that run only.
//! The hold of a stream, or of a resumable run, trails behind what was sent, and stays when the gateway ends or dies: its reader
//! comes back to the next one and has lost nothing (decisions 0194 and 0260).
//!
//! The ring itself holds what the command wrote, secrets included. A part of it is read with enough context to know which of its
//! bytes are secret, so that the result does not depend on which part is read or when. At the end of what has come, a possible
//! beginning of a secret is held back until more comes or the command has ended.

use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;

use crate::{
    masking::{Masker, StreamEnd, StreamStart},
    reason::Reason,
    sys::ring::{self, RingReader},
    terminal::{
        spec::{Backpressure, Channel, ReaderKind},
        stage::{Claim, Stage},
        state::Terminal,
    },
};

/// How much one piece may hold.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes that may be on the way to a reader. A reader that comes back after the gateway has died finds them again.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;

/// Reading output failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutputReadError {
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
pub(crate) struct Retained {
    /// At most the terminal's limit.
    pub data: Bytes,
    /// The offset of the first byte.
    pub start_offset: u64,
    /// The offset of the byte that comes next.
    pub next_offset: u64,
    /// The terminal's state when it was read.
    pub stage: Stage,
}

/// Whether a stream goes on while the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Until the end.
    UntilEnd,
    /// Only what is held now.
    RetainedOnly,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputPiece {
    /// Bytes.
    Data {
        /// The offset of the first one.
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
    pub(crate) fn retained(&self, channel: Channel) -> Result<Retained, OutputReadError> {
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
    pub(crate) fn offsets(&self, channel: Channel) -> Option<(u64, u64)> {
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
        read_redacted(ring, &self.masker(), from, max, ends).map_err(OutputReadError::Ring)
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
pub(crate) struct Cursor {
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
    pub(crate) fn new(
        terminal: Arc<Terminal>,
        channel: Channel,
        offset: u64,
    ) -> Result<Self, OutputReadError> {
        terminal.ring(channel)?;
        Ok(Self::acquire_hold(terminal, channel, offset, ReaderKind::Stream))
    }

    /// At an offset, as [`Self::new`]; the command never waits for it.
    pub(crate) fn without_hold(
        terminal: Arc<Terminal>,
        channel: Channel,
        offset: u64,
    ) -> Result<Self, OutputReadError> {
        terminal.ring(channel)?;
        Ok(Self { terminal, channel, offset, scanned: offset, queued: None, is_holding: false })
    }

    /// The run's cursors: at these offsets of stdout and stderr, holding every stream.
    pub(crate) fn for_run(terminal: &Arc<Terminal>, offsets: [u64; 2]) -> Vec<Self> {
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
    pub(crate) fn channel(&self) -> Channel {
        self.channel
    }

    /// Where it is.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece that is there already.
    pub(crate) async fn try_next(&mut self) -> Result<Option<OutputPiece>, OutputReadError> {
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
    pub(crate) fn arm(&self) -> bool {
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
    pub(crate) async fn next(&mut self, follow: Follow) -> Result<Option<OutputPiece>, OutputReadError> {
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

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}

impl Terminal {
    /// Takes the hold of a ring: from `offset` on nothing is overwritten.
    pub(in crate::terminal) fn hold(&self, channel: Channel, offset: u64, reader: ReaderKind) -> Claim {
        let may = match self.spec.backpressure {
            Backpressure::Never => false,
            Backpressure::ForStream => reader == ReaderKind::Stream,
            Backpressure::ForRun | Backpressure::ForResumableRun => reader != ReaderKind::Stream,
        };
        let Some(live) = self.live().filter(|_| may) else { return Claim::Taken };
        let ring = match channel {
            Channel::Stdout => Some(&live.stdout),
            Channel::Stderr => live.stderr.as_ref(),
        };
        let Some(ring) = ring else { return Claim::Taken };
        {
            let mut held = self.holds.lock();
            if std::mem::replace(&mut held[index(channel)], true) {
                return Claim::Taken;
            }
            ring.set_hold(offset);
        }
        self.resume_stalled();
        Claim::Granted
    }

    /// Gives the hold of a ring back, by who has it.
    pub(in crate::terminal) fn release_hold(&self, channel: Channel) {
        if self.holds.is_left() {
            return;
        }
        let Some(live) = self.live() else { return };
        {
            let mut held = self.holds.lock();
            held[index(channel)] = false;
            let is_unheld = *held == [false; 2];
            // Under the lock, so that a hold taken meanwhile is not cleared.
            if is_unheld || channel == Channel::Stdout {
                live.stdout.clear_hold();
            }
            if let Some(stderr) = live.stderr.as_ref().filter(|_| is_unheld || channel == Channel::Stderr) {
                stderr.clear_hold();
            }
        }
        self.resume_stalled();
    }

    /// Notifies a supervisor that waits for a reader, without waiting for its answer.
    fn resume_stalled(&self) {
        let Some(live) = self.live() else { return };
        let stdout = live.stdout.take_stalled();
        let stderr = live.stderr.as_ref().is_some_and(crate::sys::ring::RingReader::take_stalled);
        // Outside of a runtime the gateway itself is ending.
        if (stdout || stderr)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (sandbox, id) = (live.sandbox.clone(), self.id.to_string());
            // A sandbox that is gone has nothing more to write.
            runtime.spawn(async move { sandbox.resume(id).await });
        }
    }
}

/// A part of a stream.
#[derive(Debug)]
pub(in crate::terminal) struct RedactedPart {
    /// The offset of its first byte. It is after the one that was asked for when that is overwritten.
    pub offset: u64,
    /// May be empty.
    pub data: Vec<u8>,
    /// Up to where the stream was looked at: there is nothing more to see before it has more than this.
    pub scanned: u64,
}

/// Reads at most `max` bytes from `from` on. `ends` says whether the command may still write.
pub(in crate::terminal) fn read_redacted(
    ring: &RingReader,
    masker: &Masker,
    from: u64,
    max: u64,
    ends: StreamEnd,
) -> Result<RedactedPart, Errno> {
    let reach = masker.context_bytes() as u64;
    // What ends beyond this has all around it that matters.
    let context_end = from.saturating_add(max).saturating_add(reach);
    let start = from.saturating_sub(reach);
    let mut data = vec![0; ring.head().min(context_end).saturating_sub(start) as usize];
    let copied = ring.read_at(start, &mut data)?;
    data.truncate(copied.length);
    let scanned = copied.offset + copied.length as u64;
    let begins = if copied.offset > start { StreamStart::Truncated } else { StreamStart::Whole };
    let ends = if scanned >= context_end || (ends == StreamEnd::Whole && scanned >= ring.head()) {
        StreamEnd::Whole
    } else {
        StreamEnd::MayContinue
    };
    let certain = copied.offset + masker.mask_in_place(&mut data, begins, ends) as u64;
    let offset = from.max(copied.offset);
    let end = certain.min(from.saturating_add(max)).max(offset);
    data.truncate(end.saturating_sub(copied.offset) as usize);
    data.drain(..(offset - copied.offset).min(data.len() as u64) as usize);
    Ok(RedactedPart { offset, data, scanned })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        masking::MASK_BYTE,
        output::ring::Layout,
        sys::ring::{RingWriter, WhenFull},
    };
    use std::{io::Write as _, os::fd::AsFd as _};

    /// A small ring to which this was written.
    fn ring(bytes: &[u8]) -> (RingWriter, RingReader) {
        let mut writer = RingWriter::create(Layout::retaining(0).unwrap(), WhenFull::DropOldest).unwrap();
        let reader = RingReader::open(writer.file().try_clone().unwrap()).unwrap();
        let (pipe, mut end) = std::io::pipe().unwrap();
        for part in bytes.chunks(1_000) {
            end.write_all(part).unwrap();
            let head = writer.head();
            while writer.head() < head + part.len() as u64 {
                writer.fill_from(pipe.as_fd(), part.len()).unwrap();
            }
        }
        (writer, reader)
    }

    #[test]
    fn every_part_of_a_stream_is_masked_as_the_whole_of_it() {
        // Begins as a secret ends, which came whole, and ends as one begins.
        let bytes = b"cret a hunter2-secret bhunter2-secret c hunter2-se";
        let undecided = "hunter2-se".len() as u64;
        let masker = Masker::new(["hunter2-secret"]).unwrap();
        let mut whole = *bytes;
        masker.mask_in_place(&mut whole, StreamStart::Whole, StreamEnd::Whole);
        let (_writer, reader) = ring(bytes);
        let length = bytes.len() as u64;
        for (ends, decided) in [(StreamEnd::Whole, length), (StreamEnd::MayContinue, length - undecided)] {
            for from in 0..=length {
                for max in 0..=length {
                    let part = read_redacted(&reader, &masker, from, max, ends).unwrap();
                    let end = (from + max).min(decided).max(from);
                    assert_eq!(part.offset, from);
                    let expected = &whole[from as usize..end as usize];
                    assert_eq!(part.data, expected, "{max} from {from}, {ends:?}");
                    assert_eq!(part.scanned, length.min(from + max + masker.context_bytes() as u64));
                }
            }
        }
    }

    #[test]
    fn the_rest_of_a_secret_whose_beginning_was_overwritten_is_masked() {
        let secret = b"hunter2-secret";
        let masker = Masker::new([secret]).unwrap();
        let capacity = ring(&[]).1.capacity() as usize;
        let (_writer, reader) = ring(&secret.repeat(2 * capacity / secret.len()));
        let (tail, head) = (reader.tail(), reader.head());
        assert!(!tail.is_multiple_of(secret.len() as u64), "a secret's beginning is overwritten");
        let part = read_redacted(&reader, &masker, 0, u64::MAX, StreamEnd::Whole).unwrap();
        assert_eq!((part.offset, part.scanned), (tail, head));
        assert_eq!(part.data, vec![MASK_BYTE; (head - tail) as usize]);
    }
}
