//! Starts the screen process of a sandbox, in the sandbox's cgroups.

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::OpenOptionsExt as _, net::UnixListener},
    },
    path::Path,
};

use nix::errno::Errno;
use prost::Message as _;

use super::link::ScreenError;
use crate::{
    cgroup::Hierarchy,
    link::{LinkError, Peer},
    proto::screen::{ScreenLaunched, ScreenPlan},
    sandbox::{
        cgroup::SandboxCgroup,
        host::{
            Host,
            warm_launcher::{LAUNCH_TIMEOUT, Launcher},
        },
        process_links::bind_in_directory,
    },
    sys::fdpass::{self, FrameReceiver},
    wire::{
        self,
        launch::SUPERVISOR_LEAF,
        screen::{PLAN_VERSION, PROCESS_NAME, SOCKET_NAME},
    },
};

/// The address space of a screen process. The session's memory limit is a bound, too.
const MEMORY_BYTES: u64 = 1 << 30;

/// What a screen process is started for.
#[derive(Debug)]
pub struct ScreenLaunch<'a> {
    /// The sandbox.
    pub sandbox_id: &'a str,
    /// Its directory, in which the process listens.
    pub directory: &'a Path,
    /// A pidfd of its supervisor, with which the process ends.
    pub supervisor: BorrowedFd<'a>,
    /// Its cgroups.
    pub cgroup: &'a SandboxCgroup,
}

/// A screen process that was started.
#[derive(Debug)]
pub struct ScreenProcess {
    /// A pidfd, of a child of this process.
    pub process: OwnedFd,
}

/// Starts a screen process and waits until it is set up.
///
/// # Errors
/// [`ScreenError`].
pub fn launch_blocking(host: &Host, launch: &ScreenLaunch<'_>) -> Result<ScreenProcess, ScreenError> {
    let listener = listen(launch.directory).map_err(ScreenError::Start)?;
    let claim = if host.is_privileged() { Some(host.ids().claim(0)?) } else { None };
    let (host_uid, host_gid) = match &claim {
        Some(claim) => (claim.command, claim.command),
        None => host.own_ids(),
    };
    let (cgroup, joins) = cgroups(launch.cgroup).map_err(ScreenError::Start)?;
    let plan = ScreenPlan {
        protocol_version: PLAN_VERSION,
        sandbox_id: launch.sandbox_id.to_owned(),
        host_uid,
        host_gid,
        privileged: claim.is_some(),
        has_cgroup: cgroup.is_some(),
        joins: joins.len() as u32,
        memory_bytes: MEMORY_BYTES,
    };
    let descriptors: Vec<BorrowedFd<'_>> = [listener.as_fd(), launch.supervisor]
        .into_iter()
        .chain(cgroup.iter().map(AsFd::as_fd))
        .chain(joins.iter().map(AsFd::as_fd))
        .chain(claim.iter().map(|claim| claim.lock.as_fd()))
        .collect();
    let too_long = |error| LinkError::TooLong(Peer::Screen, "the plan", error);
    let frame = wire::encode(&plan, descriptors.len()).map_err(too_long)?;
    let launcher = host
        .program()
        .and_then(|program| Launcher::start(program, PROCESS_NAME, LAUNCH_TIMEOUT))
        .map_err(ScreenError::Start)?;
    fdpass::send(launcher.socket(), &frame, &descriptors)
        .map_err(|errno| ScreenError::Start(errno.into()))?;
    let answer = FrameReceiver::new().receive(launcher.socket());
    let answer = answer.map_err(|error| LinkError::Receive(Peer::Screen, error))?;
    let answer = answer.ok_or(LinkError::Lost(Peer::Screen))?;
    let unexpected = || LinkError::UnexpectedMessage(Peer::Screen);
    let launched = ScreenLaunched::decode(&answer.message[..]).map_err(|_| unexpected())?;
    if launched.failed_step != 0 {
        return Err(ScreenError::Setup {
            step: launched.failed_step,
            errno: Errno::from_raw(launched.errno),
        });
    }
    let process = answer.descriptors.into_iter().next().ok_or_else(unexpected)?;
    launcher.reap();
    Ok(ScreenProcess { process })
}

/// Listens in place of a process that has ended.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(directory.join(SOCKET_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = bind_in_directory(directory, SOCKET_NAME)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The v2 cgroup that the process is cloned into, and the files of v1 cgroups that it joins: those of the supervisor.
fn cgroups(cgroup: &SandboxCgroup) -> io::Result<(Option<OwnedFd>, Vec<OwnedFd>)> {
    let (mut into, mut joins) = (None, Vec::new());
    for directory in &cgroup.directories {
        match directory.hierarchy {
            Hierarchy::V2 => {
                let leaf = match directory.controllers.is_empty() {
                    true => directory.path.clone(),
                    false => directory.path.join(SUPERVISOR_LEAF),
                };
                into = Some(OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(leaf)?.into());
            }
            Hierarchy::V1 => {
                joins.push(OpenOptions::new().write(true).open(directory.path.join("tasks"))?.into());
            }
        }
    }
    Ok((into, joins))
}
