//! What a command reads in place of this process's stdin, so that nothing is taken of stdin which the command does not take: a script on
//! stdin goes on behind it (docs/internals/decisions/0470).
//!
//! The command never has this process's stdin itself: who has a pipe's read end opens it again for writing (/proc/self/fd of proc(5)) if
//! the pipe is its user's, and what it writes there is read by the shell outside. It has a sealed copy of a small file, whose offset
//! stdin gets at the end, or else the read end of a pipe of one page. A thread lets see there what stdin has, without taking it (tee(2),
//! MSG_PEEK of recv(2), pread(2)), and takes it when the command has read it. Of a terminal or a device nothing can be seen without taking
//! it: one read ahead is taken.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, SealFlag, SpliceFFlags, fcntl, open, splice, tee},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{MsgFlags, SockType, getsockopt, recv, sockopt},
        stat::{Mode, SFlag, fchmod, fstat},
        uio::pread,
    },
    unistd::{Whence, lseek, pipe2, read, write},
};

use super::stdio::{self, Input};
use crate::sys::pending;

/// A file that is not longer is copied. Of a longer one the command has a pipe.
const COPY_MAX_BYTES: usize = 16 << 20;
/// A pipe of one page has one place, which is free when everything was read.
const PIPE_BYTES: i32 = 4_096;
/// What is shown or read at once.
const CHUNK_BYTES: usize = PIPE_BYTES as usize;
/// What is read of a file at once.
const FILE_CHUNK_BYTES: usize = 64 << 10;

/// The stdin of a command that this process runs.
#[derive(Debug)]
pub(in crate::cli) struct CommandInput {
    kind: Input,
    feed: Option<Feed>,
}

/// What the command has, and how it comes there.
#[derive(Debug)]
struct Feed {
    given: Arc<OwnedFd>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A copy of the whole file, which was at this offset.
    Copy { offset: i64 },
    /// A thread fills the pipe, once it was started.
    Pipe(Mutex<Relay>),
}

#[derive(Debug)]
enum Relay {
    Unstarted { input: StdinKind, end: OwnedFd },
    Running { cancel: OwnedFd, thread: JoinHandle<()>, input: StdinKind },
    Over,
}

/// How stdin shows what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StdinKind {
    File {
        offset: i64,
    },
    Pipe,
    Socket,
    /// It does not.
    Other,
}

impl CommandInput {
    /// What the command reads if it reads this; nothing is taken yet.
    pub(in crate::cli) fn open(kind: Input) -> io::Result<Self> {
        let feed = if kind == Input::Forwarded { Some(Feed::open()?) } else { None };
        Ok(Self { kind, feed })
    }

    /// For a pseudo-terminal, to which this process itself passes the keys on.
    pub(in crate::cli) fn keys(kind: Input) -> Self {
        Self { kind, feed: None }
    }

    /// Whether stdin is passed on.
    pub(in crate::cli) fn kind(&self) -> Input {
        self.kind
    }

    /// What is given to the gateway.
    pub(in crate::cli) fn given(&self) -> Option<Arc<OwnedFd>> {
        self.feed.as_ref().map(|feed| feed.given.clone())
    }

    /// The command runs: it is shown what stdin has, from now on until this is dropped.
    pub(in crate::cli) fn start(&self) -> io::Result<()> {
        let Some(Feed { given, source: Source::Pipe(relay) }) = &self.feed else { return Ok(()) };
        let mut relay = relay.lock().unwrap_or_else(PoisonError::into_inner);
        let (input, end) = match std::mem::replace(&mut *relay, Relay::Over) {
            Relay::Unstarted { input, end } => (input, end),
            running => {
                *relay = running;
                return Ok(());
            }
        };
        let (cancelled, cancel) = pipe2(OFlag::O_CLOEXEC)?;
        let given = given.clone();
        let work = move || Pump { given, end, cancelled }.run(input);
        let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(work)?;
        *relay = Relay::Running { cancel, thread, input };
        Ok(())
    }
}

impl Drop for CommandInput {
    /// The command has ended: of stdin is taken what it has read.
    fn drop(&mut self) {
        match self.feed.take() {
            Some(Feed { given, source: Source::Copy { offset } }) => {
                if let Ok(read_to) = lseek(&*given, 0, Whence::SeekCur)
                    && read_to != offset
                {
                    // A file that cannot be positioned was not copied.
                    let _ = lseek(io::stdin(), read_to, Whence::SeekSet);
                }
            }
            Some(Feed { source: Source::Pipe(relay), .. }) => {
                let relay = relay.into_inner().unwrap_or_else(PoisonError::into_inner);
                if let Relay::Running { cancel, thread, input } = relay {
                    drop(cancel);
                    // One that reads a terminal may wait for it.
                    if input != StdinKind::Other {
                        let _ = thread.join();
                    }
                }
            }
            None => {}
        }
    }
}

impl Feed {
    fn open() -> io::Result<Self> {
        let input = StdinKind::of_stdin();
        if let StdinKind::File { offset } = input
            && let Some(given) = copy_of_stdin(offset)?
        {
            return Ok(Self { given: Arc::new(given), source: Source::Copy { offset } });
        }
        let (given, end) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&end, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES))?;
        fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // A command with another id can open its /dev/stdin. None opens it for writing, unless it changes the mode: a write would wait
        // for ever while the page is full.
        fchmod(&given, Mode::from_bits_truncate(0o444))?;
        let relay = Mutex::new(Relay::Unstarted { input, end });
        Ok(Self { given: Arc::new(given), source: Source::Pipe(relay) })
    }
}

impl StdinKind {
    fn of_stdin() -> Self {
        let Ok(status) = fstat(io::stdin()) else { return Self::Other };
        match SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFIFO => Self::Pipe,
            // A datagram cannot be taken in part, so other sockets are passed on.
            SFlag::S_IFSOCK if getsockopt(&io::stdin(), sockopt::SockType) == Ok(SockType::Stream) => {
                Self::Socket
            }
            SFlag::S_IFREG => {
                lseek(io::stdin(), 0, Whence::SeekCur).map_or(Self::Other, |offset| Self::File { offset })
            }
            _ => Self::Other,
        }
    }
}

/// A copy of the file that stdin is, at the same offset, for reading only. `None`: it is too long, or cannot be read.
fn copy_of_stdin(offset: i64) -> io::Result<Option<OwnedFd>> {
    let size = fstat(io::stdin())?.st_size;
    if size > COPY_MAX_BYTES as i64 {
        return Ok(None);
    }
    // A host may forbid it (vm.memfd_noexec of memfd_create(2)).
    let Ok(copy) = memfd_create("stdin", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING) else {
        return Ok(None);
    };
    let (mut buffer, mut length) = (vec![0; FILE_CHUNK_BYTES], 0);
    loop {
        match pread(io::stdin(), &mut buffer, length as i64) {
            Ok(0) => break,
            Ok(count) => {
                write_whole(&copy, &buffer[..count])?;
                length += count;
            }
            Err(Errno::EINTR) => {}
            Err(_) => return Ok(None),
        }
        // Files of proc(5) have no size.
        if length > COPY_MAX_BYTES {
            return Ok(None);
        }
    }
    let sealed =
        SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(sealed))?;
    fchmod(&copy, Mode::from_bits_truncate(0o444))?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&copy));
    let given = open(Path::new(&path), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    lseek(&given, offset, Whence::SeekSet)?;
    Ok(Some(given))
}

fn write_whole(to: &OwnedFd, mut bytes: &[u8]) -> nix::Result<()> {
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The thread that fills the pipe.
struct Pump {
    given: Arc<OwnedFd>,
    end: OwnedFd,
    /// Has an end when the command has.
    cancelled: OwnedFd,
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Ready,
    Cancelled,
}

impl Pump {
    fn run(self, input: StdinKind) {
        let failed = match input {
            StdinKind::File { offset } => self.show_file(offset),
            StdinKind::Pipe => match self.show_pipe() {
                // A kernel or a filter without tee(2).
                Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL) => self.pass_on(),
                shown => shown,
            },
            StdinKind::Socket => self.show_socket(),
            StdinKind::Other => self.pass_on(),
        };
        // With the end of this thread the command's input ends, too.
        if let Err(errno) = failed {
            stdio::print_notice(&format!("cannot read stdin: {}", io::Error::from(errno)));
        }
    }

    fn show_pipe(&self) -> nix::Result<()> {
        let sink = open("/dev/null", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let take = |count| splice(io::stdin(), None, &sink, None, count, SpliceFFlags::SPLICE_F_NONBLOCK);
        while self.await_stdin()? == Awaited::Ready && self.await_reading()? == Awaited::Ready {
            match tee(io::stdin(), &self.end, CHUNK_BYTES, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => return Ok(()),
                Ok(shown) => {
                    let awaited = self.await_reading()?;
                    take_whole(self.taken(shown)?, take)?;
                    if awaited == Awaited::Cancelled {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn show_socket(&self) -> nix::Result<()> {
        let socket = std::os::fd::AsRawFd::as_raw_fd(&io::stdin());
        let mut buffer = [0; CHUNK_BYTES];
        while self.await_stdin()? == Awaited::Ready {
            match recv(socket, &mut buffer, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Ok(()),
                Ok(shown) => {
                    if self.show(&buffer[..shown])? == Awaited::Cancelled {
                        return Ok(());
                    }
                    let awaited = self.await_reading()?;
                    take_whole(self.taken(shown)?, |count| {
                        recv(socket, &mut buffer[..count], MsgFlags::MSG_DONTWAIT)
                    })?;
                    if awaited == Awaited::Cancelled {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn show_file(&self, offset: i64) -> nix::Result<()> {
        let mut buffer = [0; CHUNK_BYTES];
        let mut shown = 0;
        let result = loop {
            match pread(io::stdin(), &mut buffer, offset + shown as i64) {
                Ok(0) => break self.await_reading().map(drop),
                Ok(count) => match self.show(&buffer[..count]) {
                    Ok(Awaited::Ready) => {
                        shown += count;
                        match self.await_reading() {
                            Ok(Awaited::Ready) => {}
                            other => break other.map(drop),
                        }
                    }
                    other => break other.map(drop),
                },
                Err(Errno::EINTR) => {}
                Err(errno) => break Err(errno),
            }
        };
        let taken = self.taken(shown)?;
        if taken > 0 {
            lseek(io::stdin(), offset + taken as i64, Whence::SeekSet)?;
        }
        result
    }

    /// Takes what comes, one read ahead of the command.
    fn pass_on(&self) -> nix::Result<()> {
        let mut buffer = [0; CHUNK_BYTES];
        while self.await_stdin()? == Awaited::Ready {
            match read(io::stdin(), &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let shown = self.show(&buffer[..count])?;
                    if shown == Awaited::Cancelled || self.await_reading()? == Awaited::Cancelled {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Waits until stdin has something, or has ended.
    fn await_stdin(&self) -> nix::Result<Awaited> {
        self.wait(io::stdin().as_fd(), PollFlags::POLLIN)
    }

    /// Waits until the command has read all that it was shown.
    fn await_reading(&self) -> nix::Result<Awaited> {
        self.wait(self.end.as_fd(), PollFlags::POLLOUT)
    }

    fn wait(&self, descriptor: std::os::fd::BorrowedFd<'_>, event: PollFlags) -> nix::Result<Awaited> {
        loop {
            let mut awaited =
                [PollFd::new(self.cancelled.as_fd(), PollFlags::POLLIN), PollFd::new(descriptor, event)];
            match poll(&mut awaited, PollTimeout::NONE) {
                Ok(_) if awaited[0].any() == Some(true) => return Ok(Awaited::Cancelled),
                Ok(_) if awaited[1].any() == Some(true) => return Ok(Awaited::Ready),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Shows what is not more than a page, of which the command has read what was before.
    fn show(&self, bytes: &[u8]) -> nix::Result<Awaited> {
        loop {
            match write(&self.end, bytes) {
                Ok(_) => return Ok(Awaited::Ready),
                Err(Errno::EINTR) => {}
                // The command has written to its own stdin.
                Err(Errno::EAGAIN) if self.await_reading()? == Awaited::Ready => {}
                Err(Errno::EAGAIN) => return Ok(Awaited::Cancelled),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// How much the command has read of what it was shown. One that writes to its own stdin says less of itself, and no more.
    fn taken(&self, shown: usize) -> nix::Result<usize> {
        Ok(shown.saturating_sub(pending::bytes(&*self.given)?))
    }
}

/// Takes so many bytes, less those that another reader has taken meanwhile.
fn take_whole(mut count: usize, mut take: impl FnMut(usize) -> nix::Result<usize>) -> nix::Result<()> {
    while count > 0 {
        match take(count) {
            Ok(0) | Err(Errno::EAGAIN) => return Ok(()),
            Ok(taken) => count -= taken,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
