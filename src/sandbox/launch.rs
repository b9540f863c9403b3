//! Launching a sandbox: plan it, make its folders, start the launcher, hear how it went.
//!
//! Nothing is left behind by a launch that fails, and nothing that the profile requires is skipped: an error means
//! that nothing runs. Does not talk to the supervisor afterwards.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use prost::Message;

pub use super::{cgroup::SandboxCgroup, launch_error::LaunchError, prepare::dial_path};
use super::{
    host::Host,
    launch_error::explain,
    prepare::{Keep, Leftovers, Prepared, prepare},
    spare::Launcher,
    spec::{SandboxSpec, Shortfall},
    terminals::PtyShare,
};
use crate::{
    proto::supervisor::{self as proto, Identity, LaunchResult, launch_result::Result as Answer},
    sys::fdpass::{self, FrameReceiver},
    wire,
};

/// How long a launch may take before it is given up.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How long a launch may wait for those of the same user before it, and then for itself with all that it looks at.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// A sandbox that is up.
#[derive(Debug)]
pub struct Launched {
    /// As in the spec.
    pub id: String,
    /// Where its supervisor listens. May be longer than a socket address can be: see [`dial_path`].
    pub socket: PathBuf,
    /// Its supervisor, a child of this process: readable when it has ended, then to be reaped with [`reap`].
    pub supervisor: OwnedFd,
    /// The supervisor's process id on the host, for reports only.
    pub supervisor_pid: u32,
    /// Its cgroup folders.
    pub cgroup: SandboxCgroup,
    /// Its ids.
    pub identity: Identity,
    /// What was preferred and could not be had.
    pub shortfalls: Vec<Shortfall>,
    /// Its pseudo-terminals, for as long as it lives.
    pub(super) ptys: PtyShare,
}

/// Launches a sandbox whose folder is made below `state`.
///
/// # Errors
/// [`LaunchError`].
pub async fn launch(host: &Arc<Host>, state: &Path, spec: SandboxSpec) -> Result<Launched, LaunchError> {
    let (spare, program) = (Arc::clone(host.spare()), host.launcher().to_owned());
    // An embedded gateway launches once or twice: nothing is started ahead for it here.
    let goes_on = !spec.die_with_gateway;
    let (its_host, state, uid) = (Arc::clone(host), state.to_owned(), spec.owner.uid);
    // The roots are looked into, and the launcher is heard from, on a thread that may block; a launch takes some
    // milliseconds. Whoever does not wait for it to its end never sees the sandbox, and it goes where it is dropped.
    let work = move || start(prepare(&its_host, &state, spec)?);
    let started = host.launches().run(uid, WAIT_LIMIT, work).await.map_err(LaunchError::Wait)??;
    let (launched, launcher) = started.claim();
    // The caller has its sandbox and does not wait for this.
    tokio::task::spawn_blocking(move || {
        launcher.reap();
        if goes_on {
            spare.refill(&program, DEADLINE);
        }
    });
    Ok(launched)
}

/// As [`launch`], for a thread that may block.
///
/// # Errors
/// [`LaunchError`].
pub fn launch_blocking(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Launched, LaunchError> {
    let (launched, launcher) = start(prepare(host, state, spec)?)?.claim();
    launcher.reap();
    Ok(launched)
}

/// A sandbox that is up and nobody's yet. Dropped, it is killed and taken away: first its processes, then its folders.
struct Started {
    launcher: Launcher,
    launched: Launched,
    left: Leftovers,
}

impl Started {
    fn claim(mut self) -> (Launched, Launcher) {
        self.left.keep = Keep::Everything;
        (self.launched, self.launcher)
    }
}

fn start(prepared: Prepared) -> Result<Started, LaunchError> {
    let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(prepared.listener.as_fd())
        .chain(prepared.groups.iter().map(AsFd::as_fd))
        .chain(prepared.sources.iter().map(AsFd::as_fd))
        .chain(prepared.claim.iter().map(AsFd::as_fd))
        .collect();
    let frame = wire::encode(&prepared.plan, descriptors.len())?;

    let launcher = match prepared.spare.take() {
        Some(waiting) => waiting,
        None => Launcher::start(&prepared.launcher, DEADLINE).map_err(LaunchError::Start)?,
    };
    let heard = fdpass::send(launcher.socket(), &frame, &descriptors)
        .map_err(LaunchError::Send)
        .and_then(|()| receive_answer(launcher.socket()));
    let answer = match heard {
        Ok((Answer::Launched(launched), Some(supervisor))) => Ok((launched, supervisor)),
        Ok((Answer::Launched(_), None)) => Err(LaunchError::Answer),
        Ok((Answer::Failure(failure), _)) => Err(explain(&failure, &prepared.plan)),
        Err(error) => Err(error),
    };
    match answer {
        Ok((answer, supervisor)) => Ok(conclude(&answer, supervisor, launcher, prepared)),
        Err(error) => {
            // Its processes before its folders: what is left of it may hang, and nobody knows of a supervisor.
            drop(launcher);
            Err(error)
        }
    }
}

fn receive_answer(socket: BorrowedFd<'_>) -> Result<(Answer, Option<OwnedFd>), LaunchError> {
    let frame =
        FrameReceiver::new().receive(socket).map_err(LaunchError::Receive)?.ok_or(LaunchError::Silent)?;
    let result = LaunchResult::decode(frame.message.as_slice()).map_err(|_| LaunchError::Answer)?;
    Ok((result.result.ok_or(LaunchError::Answer)?, frame.descriptors.into_iter().next()))
}

fn conclude(
    answer: &proto::Launched,
    supervisor: OwnedFd,
    launcher: Launcher,
    prepared: Prepared,
) -> Started {
    let left = prepared.left;
    let launched = Launched {
        id: prepared.plan.sandbox_id,
        socket: left.folder.join("control.sock"),
        supervisor,
        supervisor_pid: answer.host_pid,
        cgroup: left.cgroup.clone(),
        identity: prepared.identity,
        shortfalls: prepared.shortfalls,
        ptys: prepared.ptys,
    };
    Started { launcher, launched, left }
}

/// Reaps a supervisor that has ended, or waits until it does.
///
/// # Errors
/// `ECHILD` when it is not this process's child, as after a restart of the gateway: then there is nothing to reap.
pub fn reap(supervisor: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match waitid(Id::PIDFd(supervisor), WaitPidFlag::WEXITED) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
