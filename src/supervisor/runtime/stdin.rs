//! Writing to a command's standard input, without ever waiting for it to read.
//!
//! A write is answered when at most [`MAX_BUFFERED_BYTES`] of it are still here; until then the next one is
//! refused with `EAGAIN`. So a terminal holds at most that and one message.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{errno::Errno, sys::epoll::EpollFlags, unistd::write};

use super::{
    Runtime,
    slot_map::{EventSource, SlotKey},
};
use crate::proto::supervisor::{StdinWritten, WriteStdin};

/// What may be buffered for a command that does not read, after the writer was answered.
pub(super) const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// A command's standard input.
#[derive(Debug)]
pub(super) enum CommandStdin {
    /// A pipe that we write to.
    Open(StdinPipe),
    /// Closed by request, or was never open.
    Closed,
    /// Nobody reads it any more.
    Broken,
}

/// A pipe and what is to go into it.
#[derive(Debug)]
pub(super) struct StdinPipe {
    pipe: OwnedFd,
    buffer: VecDeque<u8>,
    /// Close the pipe when the buffer is empty.
    eof: bool,
    pending: Option<PendingWrite>,
    watched: bool,
}

/// A write that was not answered yet.
#[derive(Debug, Clone, Copy)]
struct PendingWrite {
    connection: SlotKey,
    sequence: u64,
    bytes: usize,
}

impl CommandStdin {
    pub(super) fn open(pipe: OwnedFd) -> Self {
        Self::Open(StdinPipe { pipe, buffer: VecDeque::new(), eof: false, pending: None, watched: false })
    }
}

impl StdinPipe {
    /// Writes what the pipe takes now.
    fn push(&mut self) -> Result<(), Errno> {
        while !self.buffer.is_empty() {
            let (front, _) = self.buffer.as_slices();
            match write(&self.pipe, front) {
                Ok(count) => drop(self.buffer.drain(..count)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

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
                feed.buffer.extend(&request.data);
                feed.eof = request.eof;
                feed.pending = Some(PendingWrite { connection, sequence, bytes: request.data.len() });
                self.flush_stdin(key);
            }
        }
    }

    /// The pipe takes more, or there is more to write.
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
                    // Closing takes the pipe out of the epoll set.
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
                        // Cannot be watched, so it cannot be fed: say so rather than lose bytes in silence.
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

    /// The command has ended: nobody will read any more.
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

impl StdinPipe {
    /// The answer to the write that waits: what was written of it, and why not the rest.
    fn fail_pending(&mut self, errno: Errno) -> Option<(PendingWrite, StdinWritten)> {
        let left = self.buffer.len();
        self.pending.take().map(|waiting| {
            let written = waiting.bytes.saturating_sub(left) as u64;
            (waiting, StdinWritten { written, errno: errno as i32 })
        })
    }
}
