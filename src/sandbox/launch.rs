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
    prepare::{Keep, Prepared, prepare},
    spare::Launcher,
    spec::{SandboxSpec, Shortfall},
};
use crate::{
    proto::supervisor::{Identity, LaunchResult, launch_result::Result as Answer},
    sys::{
        fdpass::{self, FrameReceiver},
        namespace,
    },
    wire,
};

/// How long a launch may take before it is given up.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

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
}

/// Launches a sandbox whose folder is made below `state`.
///
/// # Errors
/// [`LaunchError`].
pub async fn launch(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Launched, LaunchError> {
    let (spare, program) = (Arc::clone(host.spare()), host.launcher().to_owned());
    // An embedded gateway launches once or twice: nothing is started ahead for it here.
    let goes_on = !spec.die_with_gateway;
    let prepared = prepare(host, state, spec)?;
    // The launcher is heard from on a thread that may block; a launch takes some milliseconds.
    let (launched, launcher) =
        tokio::task::spawn_blocking(move || start(prepared)).await.map_err(LaunchError::Wait)??;
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
    let (launched, launcher) = start(prepare(host, state, spec)?)?;
    launcher.reap();
    Ok(launched)
}

fn start(prepared: Prepared) -> Result<(Launched, Launcher), LaunchError> {
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
    // One that was not heard from may hang: it is killed where it is dropped.
    Ok((conclude(heard?, prepared)?, launcher))
}

fn receive_answer(socket: BorrowedFd<'_>) -> Result<(Answer, Option<OwnedFd>), LaunchError> {
    let frame =
        FrameReceiver::new().receive(socket).map_err(LaunchError::Receive)?.ok_or(LaunchError::Silent)?;
    let result = LaunchResult::decode(frame.message.as_slice()).map_err(|_| LaunchError::Answer)?;
    Ok((result.result.ok_or(LaunchError::Answer)?, frame.descriptors.into_iter().next()))
}

fn conclude(
    (answer, supervisor): (Answer, Option<OwnedFd>),
    mut prepared: Prepared,
) -> Result<Launched, LaunchError> {
    match (answer, supervisor) {
        (Answer::Launched(launched), Some(supervisor)) => {
            prepared.left.keep = Keep::Everything;
            Ok(Launched {
                id: prepared.plan.sandbox_id,
                socket: prepared.left.folder.join("control.sock"),
                supervisor,
                supervisor_pid: launched.host_pid,
                cgroup: prepared.left.cgroup.clone(),
                identity: prepared.identity,
                shortfalls: prepared.shortfalls,
            })
        }
        (Answer::Launched(_), None) => Err(LaunchError::Answer),
        (Answer::Failure(failure), supervisor) => {
            if let Some(supervisor) = supervisor {
                // It is our child, and has ended or is told to.
                let _ = namespace::kill(supervisor.as_fd());
                let _ = reap(supervisor.as_fd());
            }
            Err(explain(&failure, &prepared.plan))
        }
    }
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
