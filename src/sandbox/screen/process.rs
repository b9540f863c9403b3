//! Starts a screen process: a short-lived launcher clones it into namespaces of its own, as the launcher of a sandbox does.
//!
//! One thread, no tokio. The gateway hands over what the process may use; the process opens nothing.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process::exit,
};

use nix::{errno::Errno, fcntl::OFlag, sched::CloneFlags, unistd::Pid};
use prost::Message as _;

use super::{
    confinement::{self, StepFailure, step},
    state::Emulators,
};
use crate::{
    proto::screen::{ScreenLaunched, ScreenPlan},
    sys::{
        fdpass::{self, FrameReceiver},
        file,
        namespace::{self, Cloned, IdPair, Parent},
        own_process,
    },
    wire::{self, screen::PLAN_VERSION},
};

const EXIT_ANSWERED: i32 = 0;
const EXIT_NO_SOCKET: i32 = 70;
const EXIT_NOT_ANSWERED: i32 = 71;
const EXIT_NOT_SET_UP: i32 = 72;

/// Bytes of a report: the step and the errno.
const REPORT_BYTES: usize = 8;

/// Launches one screen process and exits. The new process does not return from here either.
pub(crate) fn main() -> ! {
    let Some(socket) = file::dup_stdin() else { exit(EXIT_NO_SOCKET) };
    let launched = own_process::set_supervisor_oom_score()
        .map_err(step(1))
        .and_then(|()| receive_plan(&socket))
        .and_then(|(plan, descriptors)| launch(&plan, descriptors, &socket));
    exit(answer(&socket, launched))
}

/// The descriptors of a plan.
struct Handed {
    listener: OwnedFd,
    supervisor: OwnedFd,
    cgroup: Option<OwnedFd>,
    joins: Vec<OwnedFd>,
    /// The lock of the host id.
    lock: Option<OwnedFd>,
}

fn receive_plan(socket: &OwnedFd) -> Result<(ScreenPlan, Handed), StepFailure> {
    let malformed = || StepFailure { step: 2, errno: Errno::EBADMSG };
    let frame = FrameReceiver::new().receive(socket.as_fd()).ok().flatten().ok_or_else(malformed)?;
    let plan = ScreenPlan::decode(frame.message.as_slice()).map_err(|_| malformed())?;
    if plan.protocol_version != PLAN_VERSION {
        return Err(StepFailure { step: 3, errno: Errno::EPROTONOSUPPORT });
    }
    let mut descriptors = frame.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(malformed);
    let (listener, supervisor) = (next()?, next()?);
    let cgroup = if plan.has_cgroup { Some(next()?) } else { None };
    let joins = (0..plan.joins).map(|_| next()).collect::<Result<_, _>>()?;
    let lock = if plan.privileged { Some(next()?) } else { None };
    Ok((plan, Handed { listener, supervisor, cgroup, joins, lock }))
}

/// In the launcher: a pidfd of the screen process, when it is set up. In the process: does not return.
fn launch(plan: &ScreenPlan, handed: Handed, socket: &OwnedFd) -> Result<OwnedFd, StepFailure> {
    let namespaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWCGROUP;
    let (permission, permit) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(step(4))?;
    let (outcome, report) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(step(4))?;
    let into = handed.cgroup.as_ref().map(AsFd::as_fd);
    match namespace::clone_into(namespaces, into, Parent::CallersParent).map_err(step(5))? {
        Cloned::Child => {
            drop((permit, outcome));
            let _ = socket;
            run(plan, handed, permission, report)
        }
        Cloned::Parent { pid, pidfd } => {
            drop((permission, report));
            let ready = write_maps(plan, pid)
                .map_err(step(6))
                .and_then(|()| nix::unistd::write(&permit, &[1]).map_err(step(7)))
                .and_then(|_| read_report(outcome.as_fd()));
            match ready {
                Ok(()) => Ok(pidfd),
                Err(failure) => {
                    // The gateway reaps it: it is its child.
                    let _ = namespace::kill_pidfd(pidfd.as_fd());
                    Err(failure)
                }
            }
        }
    }
}

/// Its ids, and no other.
fn write_maps(plan: &ScreenPlan, pid: Pid) -> Result<(), Errno> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let same = |id| [IdPair { inside: id, outside: id }];
    if !plan.privileged {
        file::write_once(&process.join(Path::new("setgroups")), b"deny")?;
    }
    namespace::write_map(&process, "uid_map", &same(plan.host_uid))?;
    namespace::write_map(&process, "gid_map", &same(plan.host_gid))
}

fn run(plan: &ScreenPlan, handed: Handed, permission: OwnedFd, report: OwnedFd) -> ! {
    let mut permitted = [0];
    if nix::unistd::read(&permission, &mut permitted) != Ok(1) {
        exit(EXIT_NOT_SET_UP);
    }
    // Their numbers are closed below.
    std::mem::forget(permission);
    std::mem::forget(handed.cgroup);
    let mut kept = vec![handed.listener.as_fd(), handed.supervisor.as_fd(), report.as_fd()];
    kept.extend(handed.lock.as_ref().map(AsFd::as_fd));
    let screens = confinement::confine(plan, handed.joins, &kept);
    let (step, errno) = match screens {
        Ok(()) => (0, 0),
        Err(StepFailure { step, errno }) => (step, errno as i32),
    };
    let mut bytes = [0; REPORT_BYTES];
    bytes[..4].copy_from_slice(&step.to_le_bytes());
    bytes[4..].copy_from_slice(&errno.to_le_bytes());
    if nix::unistd::write(&report, &bytes) != Ok(REPORT_BYTES) || step != 0 {
        exit(EXIT_NOT_SET_UP);
    }
    drop(report);
    match Emulators::new(plan.sandbox_id.clone(), handed.listener, handed.supervisor, handed.lock) {
        Ok(screens) => screens.run(),
        Err(_) => exit(EXIT_NOT_SET_UP),
    }
}

fn read_report(outcome: BorrowedFd<'_>) -> Result<(), StepFailure> {
    let mut bytes = [0; REPORT_BYTES];
    // Written with one call, and shorter than a pipe's buffer.
    match nix::unistd::read(outcome, &mut bytes).map_err(step(8))? {
        REPORT_BYTES => {}
        // It died without a report.
        _ => return Err(StepFailure { step: 9, errno: Errno::ECHILD }),
    }
    let [a, b, c, d, errno @ ..] = bytes;
    match u32::from_le_bytes([a, b, c, d]) {
        0 => Ok(()),
        step => Err(StepFailure { step, errno: Errno::from_raw(i32::from_le_bytes(errno)) }),
    }
}

fn answer(socket: &OwnedFd, launched: Result<OwnedFd, StepFailure>) -> i32 {
    let (answer, process) = match launched {
        Ok(process) => (ScreenLaunched::default(), Some(process)),
        Err(StepFailure { step, errno }) => (ScreenLaunched { failed_step: step, errno: errno as i32 }, None),
    };
    let descriptors: Vec<BorrowedFd<'_>> = process.iter().map(AsFd::as_fd).collect();
    let sent = wire::encode(&answer, descriptors.len())
        .map(|frame| fdpass::send(socket.as_fd(), &frame, &descriptors));
    match sent {
        Ok(Ok(())) => EXIT_ANSWERED,
        Ok(Err(_)) | Err(_) => EXIT_NOT_ANSWERED,
    }
}
