//! Writes to a command's standard input, without waiting for the command to read.
//!
//! A write is answered when at most [`MAX_BUFFERED_BYTES`] are still buffered; until then the next one fails with
//! `EAGAIN`. So a terminal buffers at most that and one message.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{errno::Errno, sys::epoll::EpollFlags, unistd::write};

use super::{
    Runtime,
    poll::{EventSource, SlotKey},
};
use crate::proto::supervisor::{StdinWritten, WriteStdin};

impl Runtime {
    pub(super) fn write_stdin(&mut self, connection: SlotKey, sequence: u64, request: WriteStdin) {
        let refuse = |errno: Errno| StdinWritten { written: 0, errno: errno as i32 };
        let Some(key) = self.keys_by_id.get(&request.terminal_id).copied() else {
            return self.answer_stdin(connection, sequence, refuse(Errno::ENOENT));
        };
        let Some(terminal) = self.terminals.get_mut(key) else {
            return self.answer_stdin(connection, sequence, refuse(Errno::ENOENT));
        };
        match &mut terminal.stdin {
            CommandStdin::Broken => self.answer_stdin(connection, sequence, refuse(Errno::EPIPE)),
            CommandStdin::Closed => self.answer_stdin(connection, sequence, refuse(Errno::EBADF)),
            CommandStdin::Open(feed) if feed.eof => {
                self.answer_stdin(connection, sequence, refuse(Errno::EBADF))
            }
            CommandStdin::Open(feed) if feed.pending.is_some() => {
                self.answer_stdin(connection, sequence, refuse(Errno::EAGAIN));
            }
            CommandStdin::Open(feed) => {
                let Some(skipped) = feed.taken_before(request.offset) else {
                    return self.answer_stdin(connection, sequence, refuse(Errno::EINVAL));
                };
                let fresh = request.data.get(skipped..).unwrap_or_default();
                feed.taken_bytes += fresh.len() as u64;
                feed.extend(fresh);
                match &terminal.pty {
                    Some(pty) if request.eof => match pty.end_of_file(feed.is_line_begun) {
                        Ok(end) => feed.extend(&end),
                        Err(errno) => {
                            return self.answer_stdin(connection, sequence, refuse(errno));
                        }
                    },
                    Some(_) => {}
                    None => feed.eof = request.eof,
                }
                feed.pending = Some(PendingWrite { connection, sequence, bytes: request.data.len() });
                self.flush_stdin(key);
            }
        }
    }

    /// Writes what the pipe takes, when it takes more or there is more to write.
    pub(super) fn flush_stdin(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let CommandStdin::Open(feed) = &mut terminal.stdin else { return };
        let result = feed.push();
        let left = feed.buffer.len();
        let mut answer = None;
        match result {
            Ok(()) => {
                if left <= MAX_BUFFERED_BYTES {
                    let done = |waiting: PendingWrite| {
                        (waiting, StdinWritten { written: waiting.bytes as u64, errno: 0 })
                    };
                    answer = feed.pending.take().map(done);
                }
                if left == 0 && feed.eof {
                    // Closing removes the pipe from the epoll set.
                    terminal.stdin = CommandStdin::Closed;
                } else if (left > 0) != feed.watched {
                    let source = EventSource::Stdin(key);
                    let changed = if left > 0 {
                        self.epoll.add(feed.pipe(), source, EpollFlags::EPOLLOUT)
                    } else {
                        self.epoll.remove(feed.pipe())
                    };
                    match changed {
                        Ok(()) => feed.watched = left > 0,
                        // The pipe cannot be watched, so the write must fail rather than lose bytes in silence.
                        Err(errno) => {
                            answer = feed.fail_pending(errno);
                            terminal.stdin = CommandStdin::Broken;
                        }
                    }
                }
            }
            Err(errno) => {
                answer = feed.fail_pending(errno);
                terminal.stdin = CommandStdin::Broken;
            }
        }
        if let Some((waiting, answer)) = answer {
            self.answer_stdin(waiting.connection, waiting.sequence, answer);
        }
    }

    /// Closes the pipe of a command that has ended.
    pub(super) fn close_stdin(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let CommandStdin::Open(feed) = &mut terminal.stdin else { return };
        let answer = feed.fail_pending(Errno::EPIPE);
        terminal.stdin = CommandStdin::Broken;
        if let Some((waiting, answer)) = answer {
            self.answer_stdin(waiting.connection, waiting.sequence, answer);
        }
    }
}

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
