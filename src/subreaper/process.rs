//! The process itself: starts the agent, waits, and ends what is left.
//!
//! One thread, no runtime. The story is [`hold`]; every wait in it has a limit once the end has begun. It is told to end
//! by its socket or by a signal, and by the end of the agent's own process.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio, exit},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use super::{
    GRACE_S, KILL_LIMIT_S,
    descendants::{self, Signalled},
};
use crate::sys::{
    fdpass::FrameReceiver,
    file, signals,
    wait::{self, ExitStatus, ReapResult, WaitTarget},
};

const EXIT_DONE: i32 = 0;
const EXIT_NO_SOCKET: i32 = 70;
const EXIT_NOT_STARTED: i32 = 71;
/// Between two looks at what is ending: what loses its parent becomes ours without a signal.
const RESCAN_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the agent that the arguments name, and ends with all that descends from it.
pub fn main() -> ! {
    // An agent starts commands of its own: what `provost acp` was told to ignore is not for them.
    signals::reset();
    let Some(socket) = file::dup_stdin() else { exit(EXIT_NO_SOCKET) };
    exit(run(UnixStream::from(socket)))
}

fn run(mut socket: UnixStream) -> i32 {
    let mut leash = match Subreaper::start(&socket) {
        Ok(leash) => leash,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
            // Whoever wanted to know is gone, then.
            let _ = socket.write_all(&errno.to_le_bytes());
            return EXIT_NOT_STARTED;
        }
    };
    let _ = socket.write_all(&0_i32.to_le_bytes());
    leash.wait_for_end_request(&mut socket);
    leash.terminate_all(&mut socket);
    leash.kill_all(&mut socket);
    let left = u8::try_from(descendants::count()).unwrap_or(u8::MAX);
    let _ = socket.write_all(&[left]);
    EXIT_DONE
}

/// What is held.
struct Subreaper {
    agent: i32,
    status: Option<u8>,
    signals: SignalFd,
    children: Children,
}

/// Whether there is anything left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Children {
    Some,
    None,
}

impl Subreaper {
    fn start(socket: &UnixStream) -> io::Result<Self> {
        let [stdin, stdout] = receive_pipes(socket)?;
        let mask = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        // Before there is anything that could lose its parent.
        prctl::set_child_subreaper(true)?;
        let agent = start_agent(stdin, stdout)?;
        // Only now, for a mask is inherited; what has ended meanwhile is reaped before the first wait.
        mask.thread_block()?;
        Ok(Self { agent, status: None, signals, children: Children::Some })
    }

    /// Waits for the end of the agent, or an order.
    fn wait_for_end_request(&mut self, socket: &mut UnixStream) {
        loop {
            self.reap(socket);
            if self.status.is_some() || self.wait(Some(socket), None) == WakeReason::EndRequested {
                return;
            }
        }
    }

    fn terminate_all(&mut self, socket: &mut UnixStream) {
        let mut told = Signalled::default();
        let until = Instant::now() + Duration::from_secs(GRACE_S);
        while self.has_descendants(socket) && Instant::now() < until {
            descendants::terminate(&mut told);
            self.wait(None, Some(RESCAN_INTERVAL));
        }
    }

    fn kill_all(&mut self, socket: &mut UnixStream) {
        let until = Instant::now() + Duration::from_secs(KILL_LIMIT_S);
        while self.has_descendants(socket) && Instant::now() < until {
            descendants::kill();
            self.wait(None, Some(RESCAN_INTERVAL));
        }
    }

    fn has_descendants(&mut self, socket: &mut UnixStream) -> bool {
        self.reap(socket);
        self.children == Children::Some
    }

    /// Reaps what has ended, the agent's processes that have come to us among it.
    fn reap(&mut self, socket: &mut UnixStream) {
        loop {
            match wait::reap(WaitTarget::Any) {
                Ok(ReapResult::Reaped(reaped)) if reaped.pid == self.agent && self.status.is_none() => {
                    let status = status_of(reaped.end);
                    self.status = Some(status);
                    // Nobody has to be there.
                    let _ = socket.write_all(&[status]);
                }
                Ok(ReapResult::Reaped(_)) | Err(Errno::EINTR) => {}
                Ok(ReapResult::NoneEnded) => return,
                Ok(ReapResult::NoChildren) | Err(_) => {
                    self.children = Children::None;
                    return;
                }
            }
        }
    }

    /// Waits for a child's end, for an order where `socket` is given, or for the limit.
    fn wait(&self, socket: Option<&UnixStream>, limit: Option<Duration>) -> WakeReason {
        let mut from = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        from.extend(socket.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let limit = limit.and_then(|limit| PollTimeout::try_from(limit).ok()).unwrap_or(PollTimeout::NONE);
        if poll(&mut from, limit).is_err() {
            return WakeReason::ChildOrTimeout;
        }
        // Nothing is ever said to us: what is to be read is the end.
        let is_ordered = from.get(1).is_some_and(|socket| socket.any() == Some(true));
        let mut woken = if is_ordered { WakeReason::EndRequested } else { WakeReason::ChildOrTimeout };
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo.cast_signed() != Signal::SIGCHLD as i32 {
                woken = WakeReason::EndRequested;
            }
        }
        woken
    }
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    /// Everything is to end.
    EndRequested,
    /// Something may have ended, or the limit has come.
    ChildOrTimeout,
}

fn receive_pipes(socket: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let frame = FrameReceiver::new().receive(socket.as_fd()).map_err(io::Error::other)?;
    let descriptors = frame.map(|frame| frame.descriptors).unwrap_or_default();
    <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| Errno::EPIPE.into())
}

/// Starts the agent in a process group of its own. The first word is looked for in `PATH`.
fn start_agent(stdin: OwnedFd, stdout: OwnedFd) -> io::Result<i32> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (program, arguments) = words.split_first().ok_or(Errno::EINVAL)?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .process_group(0)
        .spawn()?;
    Ok(child.id().cast_signed())
}

/// As shells have it.
fn status_of(end: ExitStatus) -> u8 {
    match end {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal { number, .. } => u8::try_from(128 + number).unwrap_or(u8::MAX),
    }
}
