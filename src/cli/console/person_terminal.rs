//! This process's stdout and stderr while a command's output is shown there: if they are a person's terminal, it gets nothing
//! that reaches beyond its screen, and is put back as it was, also by a panic. A file or a pipe gets every byte.

use std::{
    borrow::Cow,
    io::{self, IsTerminal},
    os::fd::AsFd,
    sync::{Mutex, PoisonError, TryLockError},
};

use super::shown_output::ShownOutput;
use crate::stdio;

/// What stdout and stderr were shown, by all who show something there.
static SHOWN: [Mutex<Option<ShownOutput>>; 2] = [Mutex::new(None), Mutex::new(None)];

/// One of this process's own streams, for a command's output.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct OutputStream {
    /// In [`SHOWN`].
    place: usize,
    is_terminal: bool,
}

/// Where the cursor is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum LeaveAt {
    /// Where it is.
    Cursor,
    /// At the beginning of a line: the command goes on, and has not ended its own.
    NewLine,
}

impl OutputStream {
    /// Stdout, as it is now.
    pub(in crate::cli) fn stdout() -> Self {
        Self { place: 0, is_terminal: io::stdout().is_terminal() }
    }

    /// Stderr, as it is now.
    pub(in crate::cli) fn stderr() -> Self {
        Self { place: 1, is_terminal: io::stderr().is_terminal() }
    }

    /// What is to be written of a command's output.
    pub(in crate::cli) fn shown(self, output: &[u8]) -> Cow<'_, [u8]> {
        if !self.is_terminal {
            return Cow::Borrowed(output);
        }
        let mut shown = SHOWN[self.place].lock().unwrap_or_else(PoisonError::into_inner);
        Cow::Owned(shown.get_or_insert_default().pass(output))
    }
}

/// Puts the terminal back as a person's shell expects it. Does nothing if no command has changed it.
pub(in crate::cli) fn leave(at: LeaveAt) {
    if let Some(mut shown) = take(0) {
        let line: &[u8] = if at == LeaveAt::NewLine && !shown.is_alternate() { b"\r\n" } else { b"" };
        write(io::stdout(), &[&shown.leave()[..], line].concat());
    }
    if let Some(mut shown) = take(1) {
        write(io::stderr(), &shown.leave());
    }
}

fn take(place: usize) -> Option<ShownOutput> {
    match SHOWN[place].try_lock() {
        Ok(mut shown) => shown.take(),
        Err(TryLockError::Poisoned(shown)) => shown.into_inner().take(),
        // A thread that panics in the middle of it has the lock.
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Writes without the lock of the stream, which another thread may have. A terminal that is gone needs nothing.
fn write(to: impl AsFd, bytes: &[u8]) {
    let _ = stdio::write(to.as_fd(), bytes);
}

/// Leaves the terminal when it is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::cli) struct LeaveWhenDropped;

impl Drop for LeaveWhenDropped {
    fn drop(&mut self) {
        leave(LeaveAt::Cursor);
    }
}
