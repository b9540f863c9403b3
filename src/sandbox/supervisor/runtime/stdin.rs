//! Writes to a command's standard input, without waiting for the command to read.
//!
//! A write is answered when at most [`MAX_BUFFERED_BYTES`] are still buffered; until then the next one fails with
//! `EAGAIN`. So a terminal buffers at most that and one message.

use nix::{errno::Errno, sys::epoll::EpollFlags};

use super::{
    slot_map::{EventSource, SlotKey},
    state::Runtime,
    stdin_pipe::{CommandStdin, MAX_BUFFERED_BYTES, PendingWrite},
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
