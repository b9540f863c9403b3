//! This process's own stdout, stderr and stdin.
//!
//! Writes are lossless: what cannot be written ends the command, it is never dropped. A reader that has gone
//! away (EPIPE) is not an error but an end, and is told apart by its kind.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::{AsFd, BorrowedFd},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    printable,
    proto::v1,
    stdio::{self, Waiting},
};

/// The number of /dev/null (null(4)).
const DEV_NULL: u64 = nix::sys::stat::makedev(1, 3);

/// The most that is read from stdin at once.
const STDIN_CHUNK_BYTES: usize = stdio::CHUNK_BYTES;

/// What a command reads from its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Input {
    /// Nothing.
    Empty,
    /// This process's stdin.
    Forwarded,
}

impl Input {
    /// What this process's stdin means for a command by default: a pipe, a file, a socket or a device is meant for it. A terminal is
    /// the person's, and /dev/null has nothing.
    pub(in crate::cli) fn of_stdin() -> Self {
        let Ok(status) = nix::sys::stat::fstat(io::stdin()) else { return Self::Empty };
        match status.st_mode & nix::libc::S_IFMT {
            nix::libc::S_IFIFO | nix::libc::S_IFREG | nix::libc::S_IFSOCK => Self::Forwarded,
            nix::libc::S_IFCHR if status.st_rdev != DEV_NULL && !io::stdin().is_terminal() => Self::Forwarded,
            _ => Self::Empty,
        }
    }
}

/// How a command's output comes: as one stream where this process's stdout and stderr are one file, pipe or terminal, so that it has
/// the order in which the command wrote it; else as two.
pub(in crate::cli) fn output_mode() -> v1::OutputMode {
    let (Ok(stdout), Ok(stderr)) = (nix::sys::stat::fstat(io::stdout()), nix::sys::stat::fstat(io::stderr()))
    else {
        return v1::OutputMode::Split;
    };
    match (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino) {
        true => v1::OutputMode::Merged,
        false => v1::OutputMode::Split,
    }
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(in crate::cli) enum WriteOutcome {
    /// All of it.
    Complete,
    /// The reader has gone away.
    ReaderGone,
}

/// Writes all of `bytes` and flushes: output is shown as it comes.
pub(in crate::cli) async fn write_all<W: AsyncWrite + AsFd + Unpin>(
    to: &mut W,
    bytes: &[u8],
) -> io::Result<WriteOutcome> {
    if has_room_for(to.as_fd(), bytes.len()) {
        return write_outcome(stdio::write(to.as_fd(), bytes));
    }
    let result = match to.write_all(bytes).await {
        Ok(()) => to.flush().await,
        Err(error) => Err(error),
    };
    write_outcome(result)
}

/// Whether so many bytes can be written without waiting for a reader: then no other thread is needed. Of a pipe or a socket that is
/// ready at least PIPE_BUF bytes are free (pipe(7)); a terminal can stop at any byte.
fn has_room_for(descriptor: BorrowedFd<'_>, length: usize) -> bool {
    let Ok(status) = nix::sys::stat::fstat(descriptor) else { return false };
    match status.st_mode & nix::libc::S_IFMT {
        nix::libc::S_IFREG => length <= STDIN_CHUNK_BYTES,
        nix::libc::S_IFIFO | nix::libc::S_IFSOCK if length <= nix::libc::PIPE_BUF => {
            let mut ready = [PollFd::new(descriptor, PollFlags::POLLOUT)];
            poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count == 1)
        }
        _ => false,
    }
}

/// Prints a text to stdout. What could drive a terminal is escaped; JSON has been, in its own way.
pub(in crate::cli) fn print(text: &str) -> io::Result<WriteOutcome> {
    write_to_stdout(printable::lines(text).as_bytes())
}

/// Prints bytes to stdout as they are.
pub(in crate::cli) fn write_to_stdout(bytes: &[u8]) -> io::Result<WriteOutcome> {
    // So that nothing of another thread comes between.
    let out = io::stdout().lock();
    write_outcome(stdio::write(out.as_fd(), bytes))
}

/// Prints one line to stderr, with the program's name before it. A stderr that nobody reads is no reason to fail.
pub(in crate::cli) fn print_notice(text: &str) {
    write_to_stderr(&format!("provost: {}\n", printable::line(&text.replace('\n', " "))));
}

/// Prints a question to stderr, escaped, and leaves the cursor behind it.
pub(in crate::cli) fn prompt(text: &str) {
    write_to_stderr(&printable::lines(text));
}

/// Prints lines to stderr, escaped.
pub(in crate::cli) fn print_to_stderr(text: &str) {
    write_to_stderr(&format!("{}\n", printable::lines(text)));
}

fn write_to_stderr(text: &str) {
    // A stderr that nobody reads is no reason to fail.
    let _ = Waiting(io::stderr().lock()).write_all(text.as_bytes());
}

/// The next bytes of stdin; `None` at its end.
pub(in crate::cli) async fn next_input<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; STDIN_CHUNK_BYTES];
    let length = from.read(&mut buffer).await?;
    buffer.truncate(length);
    Ok((length > 0).then_some(buffer))
}

fn write_outcome(result: io::Result<()>) -> io::Result<WriteOutcome> {
    match result {
        Ok(()) => Ok(WriteOutcome::Complete),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(WriteOutcome::ReaderGone),
        Err(error) => Err(error),
    }
}
