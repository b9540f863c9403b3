//! This process's standard streams, which it shares with others.
//!
//! Another process may have set a shared stream not to block (O_NONBLOCK of open(2)), and relies on it: the flag is neither changed nor
//! obeyed, and what cannot be read or written now is waited for. A write is complete or fails.

#![forbid(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::{JoinError, JoinHandle, spawn_blocking},
};

/// The most that is read or written at once.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// What this process reads.
pub fn stdin() -> Input<io::Stdin> {
    Input::new(Arc::new(io::stdin()))
}

/// What this process writes.
pub fn stdout() -> Output<io::Stdout> {
    Output::new(io::stdout())
}

/// Where this process says what goes wrong.
pub fn stderr() -> Output<io::Stderr> {
    Output::new(io::stderr())
}

/// Reads what is there, or waits until something is. 0: the end.
///
/// # Errors
/// The errors are those of read(2).
pub fn read(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match nix::unistd::read(from, buffer) {
            Ok(count) => return Ok(count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(from, PollFlags::POLLIN)?,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Writes all of it.
///
/// # Errors
/// The errors are those of write(2).
pub fn write(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(to, PollFlags::POLLOUT)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Returns when the descriptor is ready, or will never be.
fn wait(descriptor: BorrowedFd<'_>, event: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(descriptor, event)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A stream, or a copy of one, that is written with these functions.
#[derive(Debug)]
pub struct Waiting<F>(pub F);

impl<F: AsFd> io::Write for Waiting<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(self.0.as_fd(), bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that is read, by a thread that waits for it.
#[derive(Debug)]
pub struct Input<F> {
    from: Arc<F>,
    /// What was read and not taken.
    read: Vec<u8>,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl<F: AsFd + Send + Sync + 'static> Input<F> {
    /// Reads this.
    pub fn new(from: Arc<F>) -> Self {
        Self { from, read: Vec::new(), reading: None }
    }
}

impl<F: AsFd + Send + Sync + 'static> AsyncRead for Input<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read.is_empty() && buffer.remaining() > 0 {
            let length = buffer.remaining().min(CHUNK_BYTES);
            let from = &this.from;
            let reading = this.reading.get_or_insert_with(|| {
                let from = from.clone();
                spawn_blocking(move || {
                    let mut bytes = vec![0; length];
                    let count = read(from.as_fd(), &mut bytes)?;
                    bytes.truncate(count);
                    Ok(bytes)
                })
            });
            let read = ready!(Pin::new(reading).poll(context)).map_err(thread_failed);
            this.reading = None;
            this.read = read??;
        }
        let count = this.read.len().min(buffer.remaining());
        buffer.put_slice(&this.read[..count]);
        this.read.drain(..count);
        Poll::Ready(Ok(()))
    }
}

/// A stream that is written, by a thread that waits for it. What was taken is written when it was flushed.
#[derive(Debug)]
pub struct Output<F> {
    to: Arc<F>,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl<F: AsFd + Send + Sync + 'static> Output<F> {
    fn new(to: F) -> Self {
        Self { to: Arc::new(to), writing: None }
    }

    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(Pin::new(writing).poll(context)).map_err(thread_failed);
        self.writing = None;
        Poll::Ready(written?)
    }
}

impl<F: AsFd> AsFd for Output<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }
}

impl<F: AsFd + Send + Sync + 'static> AsyncWrite for Output<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(context))?;
        let (to, taken) = (self.to.clone(), bytes[..bytes.len().min(CHUNK_BYTES)].to_vec());
        let count = taken.len();
        self.writing = Some(spawn_blocking(move || write(to.as_fd(), &taken)));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }
}

/// The runtime ends.
fn thread_failed(error: JoinError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[tokio::test]
    async fn what_does_not_block_is_waited_for_and_keeps_its_flag() {
        let (near, far) = pair();
        let near = Arc::new(near);
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| n as u8).collect();
        let mut output = Output { to: near.clone(), writing: None };
        let expected = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            io::Read::read_exact(&mut &far, &mut got).unwrap();
            assert!(got == expected);
            io::Write::write_all(&mut &far, b"answer").unwrap();
        });
        let mut input = Input::new(near.clone());
        let mut answer = Vec::new();
        let written = async {
            output.write_all(&bytes).await.unwrap();
            output.flush().await.unwrap();
        };
        tokio::join!(written, async { input.read_to_end(&mut answer).await.unwrap() });
        assert_eq!(answer, b"answer");
        reader.join().unwrap();
        let flags = nix::fcntl::fcntl(&*near, nix::fcntl::FcntlArg::F_GETFL).unwrap();
        assert!(nix::fcntl::OFlag::from_bits_retain(flags).contains(nix::fcntl::OFlag::O_NONBLOCK));
    }

    #[test]
    fn an_error_is_not_waited_for() {
        let (near, far) = pair();
        drop(far);
        assert_eq!(write(near.as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(read(near.as_fd(), &mut [0; 1]).unwrap(), 0);
    }
}
