//! The pipe to a command's standard input, and what is buffered for it.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{errno::Errno, unistd::write};

use super::slot_map::SlotKey;
use crate::proto::supervisor::StdinWritten;

/// Bytes that may stay buffered after a write was answered, for a command that does not read.
pub(super) const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// A command's standard input.
#[derive(Debug)]
pub(super) enum CommandStdin {
    /// A pipe that we write to.
    Open(StdinPipe),
    /// Closed by request, or never open.
    Closed,
    /// The pipe has no reader.
    Broken,
}

/// A pipe and the bytes to be written to it.
#[derive(Debug)]
pub(super) struct StdinPipe {
    pub(super) pipe: OwnedFd,
    pub(super) buffer: VecDeque<u8>,
    /// Bytes that were taken so far, without the characters that end a file.
    pub(super) taken_bytes: u64,
    /// Close the pipe when the buffer is empty.
    pub(super) eof: bool,
    pub(super) pending: Option<PendingWrite>,
    pub(super) watched: bool,
    /// The last byte did not end a line.
    pub(super) is_line_begun: bool,
}

/// A write that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingWrite {
    pub(super) connection: SlotKey,
    pub(super) sequence: u64,
    pub(super) bytes: usize,
}

impl CommandStdin {
    pub(super) fn open(pipe: OwnedFd) -> Self {
        Self::Open(StdinPipe {
            pipe,
            buffer: VecDeque::new(),
            taken_bytes: 0,
            eof: false,
            pending: None,
            watched: false,
            is_line_begun: false,
        })
    }
}

impl StdinPipe {
    /// How many bytes of a write at this offset were taken by an earlier one. `None`: something before it is missing.
    pub(super) fn taken_before(&self, offset: Option<u64>) -> Option<usize> {
        let before = self.taken_bytes.checked_sub(offset.unwrap_or(self.taken_bytes))?;
        Some(usize::try_from(before).unwrap_or(usize::MAX))
    }

    /// Buffers bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        if let Some(last) = bytes.last() {
            self.is_line_begun = !matches!(last, b'\n' | b'\r');
        }
    }

    /// Writes what the pipe takes now.
    pub(super) fn push(&mut self) -> Result<(), Errno> {
        while !self.buffer.is_empty() {
            let (front, _) = self.buffer.as_slices();
            match write(&self.pipe, front) {
                // A pseudo-terminal whose programs do not read.
                Ok(0) => return Ok(()),
                Ok(count) => drop(self.buffer.drain(..count)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    pub(super) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl StdinPipe {
    /// Fails the pending write. Its response says how much was written.
    pub(super) fn fail_pending(&mut self, errno: Errno) -> Option<(PendingWrite, StdinWritten)> {
        let left = self.buffer.len();
        self.pending.take().map(|pending| {
            let written = pending.bytes.saturating_sub(left) as u64;
            (pending, StdinWritten { written, errno: errno as i32 })
        })
    }
}
