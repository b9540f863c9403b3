//! Answers commands' changes of mode with `S_ISGID`, where there is no gate that does.
//!
//! Each is answered in a process of its own, for a moment: paths lead to file systems that may hang, and the loop must not. It has the
//! commands' rights to files, and no command can look into it. Its exit code is the answer, which the loop gives when it has reaped it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::exit,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sched::CloneFlags,
    sys::{epoll::EpollFlags, stat::Mode},
    unistd::{Gid, Uid},
};

use super::{Runtime, poll::EventSource};
use crate::{
    caller::{ModeCall, Viewpoint, change_mode},
    supervisor::ready::{CommandIdentity, ModeListener},
    sys::{
        credentials, file,
        namespace::{self, Cloned, Parent},
        seccomp_listener::{self, CallAnswer, NotifiedCall},
        wait::{ExitStatus, Reaped},
    },
};

/// Calls that are answered at the same time. Beyond this, callers wait in the kernel.
const ANSWERING_MAX: usize = 16;
/// How long an answer may take. Then its process is killed, and the caller has `ETIMEDOUT`.
const MODE_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The listener, and the calls that are being answered.
#[derive(Debug)]
pub(super) struct ModeCalls {
    listener: Option<ModeListener>,
    identity: CommandIdentity,
    /// By the process that answers.
    answering: HashMap<i32, Answering>,
}

#[derive(Debug)]
struct Answering {
    /// The notification.
    id: u64,
    process: OwnedFd,
    /// Absent: it was killed, and its caller has the answer.
    until: Option<Instant>,
}

impl ModeCalls {
    pub(super) fn new(listener: Option<ModeListener>, identity: CommandIdentity) -> Self {
        Self { listener, identity, answering: HashMap::new() }
    }

    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(|listener| listener.descriptor.as_fd())
    }

    pub(super) fn is_answered_by(&self, pid: i32) -> bool {
        self.answering.contains_key(&pid)
    }

    /// When the next process has taken too long.
    pub(super) fn next_change(&self) -> Option<Instant> {
        self.answering.values().filter_map(|one| one.until).min()
    }

    /// Ends the processes that have taken too long. One that no kill ends keeps its place.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        for one in self.answering.values_mut().filter(|one| one.until.is_some_and(|until| until <= now)) {
            one.until = None;
            let _ = namespace::kill_pidfd(one.process.as_fd());
            answer(listener, one.id, CallAnswer::Fail(Errno::ETIMEDOUT));
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.answering.len() >= ANSWERING_MAX
    }

    /// Receives one call, and has it answered.
    pub(super) fn receive(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        // A call whose caller was killed meanwhile needs no answer.
        let Ok(Some(notified)) = seccomp_listener::receive(listener.descriptor.as_fd()) else { return };
        match namespace::clone_into(CloneFlags::empty(), None, Parent::Caller) {
            Ok(Cloned::Child) => {
                let done = answer_for(listener, self.identity, &notified);
                exit(done.map_or_else(|errno| errno as i32, |()| 0))
            }
            Ok(Cloned::Parent { pid, pidfd }) => {
                let until = Some(now + MODE_CALL_TIMEOUT);
                let one = Answering { id: notified.id, process: pidfd, until };
                self.answering.insert(pid.as_raw(), one);
            }
            // As many processes as the sandbox may have: refused, as where nobody answers.
            Err(_) => answer(listener, notified.id, CallAnswer::Fail(Errno::EPERM)),
        }
    }

    /// Whether the process was one that answers. Then its caller goes on.
    pub(super) fn ended(&mut self, reaped: &Reaped) -> bool {
        let (Some(one), Some(listener)) = (self.answering.remove(&reaped.pid), &self.listener) else {
            return false;
        };
        let result = match reaped.end {
            ExitStatus::Code(0) => CallAnswer::Done,
            ExitStatus::Code(code) => CallAnswer::Fail(Errno::from_raw(code.into())),
            // Where it has the commands' id they can kill it.
            ExitStatus::Signal { .. } => CallAnswer::Fail(Errno::EPERM),
        };
        answer(listener, one.id, result);
        true
    }
}

/// The caller may be gone.
fn answer(listener: &ModeListener, id: u64, result: CallAnswer) {
    let _ = seccomp_listener::answer(listener.descriptor.as_fd(), id, result);
}

/// In a process of its own.
fn answer_for(
    listener: &ModeListener,
    identity: CommandIdentity,
    notified: &NotifiedCall,
) -> Result<(), Errno> {
    // Commands' pipes must not stay open while a file system hangs. This process ends without closing what is closed here.
    file::close_all_except(&[listener.descriptor.as_fd()])?;
    if let CommandIdentity::Change { uid, gid } = identity {
        credentials::set_file_access_ids(Uid::from_raw(uid), Gid::from_raw(gid))?;
        // A change of ids has set the flag as `fs.suid_dumpable` says.
        nix::sys::prctl::set_dumpable(false)?;
    }
    let call = ModeCall::of(notified).ok_or(Errno::EPERM)??;
    let directory = |path| open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let (proc, own_descriptors) = (directory("/proc")?, directory("/proc/self/fd")?);
    let view =
        Viewpoint { proc: proc.as_fd(), own_descriptors: own_descriptors.as_fd(), nonce: listener.nonce };
    let is_waiting = || seccomp_listener::is_waiting(listener.descriptor.as_fd(), notified.id);
    change_mode(&view, notified.thread, &call, is_waiting)
}

impl Runtime {
    pub(super) fn mode_call_waits(&mut self) {
        self.mode_calls.receive(self.now);
        if self.mode_calls.is_full() {
            self.listen_to_mode_calls(EpollFlags::empty());
        }
    }

    /// Whether the process answered a call.
    pub(super) fn mode_call_ended(&mut self, reaped: &Reaped) -> bool {
        let was_full = self.mode_calls.is_full();
        let answered = self.mode_calls.ended(reaped);
        if answered && was_full {
            self.listen_to_mode_calls(EpollFlags::EPOLLIN);
        }
        answered
    }

    fn listen_to_mode_calls(&self, flags: EpollFlags) {
        if let Some(listener) = self.mode_calls.listener() {
            // It is in the set, and nothing is allocated: it cannot fail.
            let _ = self.epoll.change(listener, EventSource::Modes, flags);
        }
    }
}
