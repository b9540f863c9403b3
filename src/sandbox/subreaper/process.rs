//! The process itself: starts the agent, waits, and ends its processes.
//!
//! One thread, no runtime. [`run`] is the whole sequence; after the request to end, every wait has a limit. The end
//! is requested by closing the socket, by a signal, or by the exit of the agent itself.

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

use super::descendants::{self, Signalled};
use crate::{
    sys::{
        fdpass::FrameReceiver,
        file, signals,
        wait::{self, ExitStatus, ReapResult, WaitTarget},
    },
    wire::subreaper::{GRACE_S, KILL_LIMIT_S},
};

const EXIT_DONE: i32 = 0;
const EXIT_NO_SOCKET: i32 = 70;
const EXIT_NOT_STARTED: i32 = 71;
/// How often processes are listed while they end: a process that becomes ours as an orphan sends no signal.
const RESCAN_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the agent that the arguments name, and ends all its descendants.
pub(crate) fn main() -> ! {
    // Signals that `provost acp` ignores must not be ignored by the agent's commands.
    signals::reset();
    let Some(socket) = file::dup_stdin() else { exit(EXIT_NO_SOCKET) };
    exit(run(UnixStream::from(socket)))
}

fn run(mut socket: UnixStream) -> i32 {
    let mut subreaper = match Subreaper::start(&socket) {
        Ok(subreaper) => subreaper,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
            // The receiver is gone, then.
            let _ = socket.write_all(&errno.to_le_bytes());
            return EXIT_NOT_STARTED;
        }
    };
    let _ = socket.write_all(&0_i32.to_le_bytes());
    subreaper.wait_for_end_request(&mut socket);
    subreaper.terminate_all(&mut socket);
    subreaper.kill_all(&mut socket);
    let left = u8::try_from(descendants::count()).unwrap_or(u8::MAX);
    let _ = socket.write_all(&[left]);
    EXIT_DONE
}

/// The agent and the state of its processes.
struct Subreaper {
    agent: i32,
    status: Option<u8>,
    signals: SignalFd,
    children: Children,
}

/// Whether this process has children.
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
        // Before a process exists that could become an orphan.
        prctl::set_child_subreaper(true)?;
        let agent = start_agent(stdin, stdout)?;
        // Block signals after the start, because the agent inherits the mask. A child that has exited meanwhile is
        // reaped before the first wait.
        mask.thread_block()?;
        Ok(Self { agent, status: None, signals, children: Children::Some })
    }

    /// Waits for the exit of the agent, or a request to end.
    fn wait_for_end_request(&mut self, socket: &mut UnixStream) {
        loop {
            self.reap(socket);
            if self.status.is_some() || self.wait(Some(socket), None) == WakeReason::EndRequested {
                return;
            }
        }
    }

    fn terminate_all(&mut self, socket: &mut UnixStream) {
        let mut signalled = Signalled::default();
        let until = Instant::now() + Duration::from_secs(GRACE_S);
        while self.has_descendants(socket) && Instant::now() < until {
            descendants::terminate(&mut signalled);
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

    /// Reaps children that have exited, including adopted orphans.
    fn reap(&mut self, socket: &mut UnixStream) {
        loop {
            match wait::reap(WaitTarget::Any) {
                Ok(ReapResult::Reaped(reaped)) if reaped.pid == self.agent && self.status.is_none() => {
                    let status = status_of(reaped.end);
                    self.status = Some(status);
                    // The receiver may be gone.
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

    /// Waits for a child's exit, for a request to end if `socket` is given, or for the limit.
    fn wait(&self, socket: Option<&UnixStream>, limit: Option<Duration>) -> WakeReason {
        let mut from = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        from.extend(socket.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let limit = limit.and_then(|limit| PollTimeout::try_from(limit).ok()).unwrap_or(PollTimeout::NONE);
        if poll(&mut from, limit).is_err() {
            return WakeReason::ChildOrTimeout;
        }
        // The peer never sends data: readable means closed.
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
    /// Everything must end.
    EndRequested,
    /// A child may have exited, or the limit has passed.
    ChildOrTimeout,
}

fn receive_pipes(socket: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let frame = FrameReceiver::new().receive(socket.as_fd()).map_err(io::Error::other)?;
    let descriptors = frame.map(|frame| frame.descriptors).unwrap_or_default();
    <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| Errno::EPIPE.into())
}

/// Starts the agent in a process group of its own. The first word is looked for in `PATH`.
fn start_agent(stdin: OwnedFd, stdout: OwnedFd) -> io::Result<i32> {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let (program, arguments) = words.split_first().ok_or(Errno::EINVAL)?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .process_group(0)
        .spawn()?;
    Ok(child.id().cast_signed())
}

/// The exit status as shells encode it.
fn status_of(end: ExitStatus) -> u8 {
    match end {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal { number, .. } => u8::try_from(128 + number).unwrap_or(u8::MAX),
    }
}
