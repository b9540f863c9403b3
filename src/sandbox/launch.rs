//! Launching a sandbox: plan it, make its folders, start the launcher, hear how it went.
//!
//! Nothing is left behind by a launch that fails, and nothing that the profile requires is skipped: an error means
//! that nothing runs. Does not talk to the supervisor afterwards.

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{fs::DirBuilderExt, net::UnixListener, net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use prost::Message;

use super::{
    cgroup::SandboxCgroup,
    host::Host,
    identity::{Claim, ClaimError},
    seccomp::{self, Machine},
    spec::{SandboxSpec, Shortfall},
    view::{self, ViewError},
};
use crate::{
    cgroup::folder::{FolderError, FolderLimits},
    policy::profile::{CgroupLimits, Demand, Network, Profile},
    proto::supervisor::{
        Identity, LandlockPlan, LaunchResult, SandboxPlan, SeccompPlan, Stage, StageFailure,
        launch_result::Result as Answer,
    },
    sys::{
        fdpass::{self, FrameReceiver, ReceiveError},
        namespace,
    },
    wire::{
        self, EncodeError,
        launch::{ID_MAPPED_MOUNTS_FROM, PLAN_VERSION, PROCESS_NAME},
    },
};

/// How long a launch may take before it is given up.
const LAUNCH_DEADLINE: Duration = Duration::from_secs(10);

/// How long a failed launch's cgroups are waited for.
const CLEANUP_DEADLINE: Duration = Duration::from_secs(2);

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

/// Why a sandbox could not be launched. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A folder or socket in the state could not be made.
    #[error("make {path:?} in the state folder")]
    State {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// No host ids.
    #[error("get host ids for the sandbox")]
    Ids(#[from] ClaimError),
    /// The view cannot be planned.
    #[error("plan what the sandbox sees")]
    View(#[from] ViewError),
    /// Its cgroup folders could not be made.
    #[error("make the sandbox's cgroups")]
    Cgroup(#[from] FolderError),
    /// A protection that the profile requires is not there.
    #[error("the profile requires {protection}, which this host does not give: {why}")]
    Unavailable {
        /// Which one, by its name in [`Host::protections`].
        protection: &'static str,
        /// Why not.
        why: String,
    },
    /// The file system of a root cannot map ids.
    #[error("the file system {filesystem} of {path:?} cannot map ids")]
    NoIdMapping {
        /// The root.
        path: PathBuf,
        /// The file system's name, or its number where we have no name for it.
        filesystem: String,
    },
    /// The plan is too large for a frame.
    #[error("encode the plan")]
    Encode(#[from] EncodeError),
    /// The launcher could not be started.
    #[error("start the launcher")]
    Start(#[source] io::Error),
    /// The plan could not be sent.
    #[error("send the plan to the launcher")]
    Send(#[source] Errno),
    /// The launcher ended, or was given up, without an answer.
    #[error("hear from the launcher")]
    Receive(#[source] ReceiveError),
    /// The launcher ended without a word.
    #[error("the launcher ended without an answer")]
    Silent,
    /// The launcher's answer makes no sense.
    #[error("the launcher's answer cannot be read")]
    Answer,
    /// A step of set-up failed.
    #[error("set-up failed at {stage:?} {index} ({what}): {errno}")]
    Stage {
        /// Which stage.
        stage: Stage,
        /// Which step of it.
        index: u32,
        /// Why.
        errno: Errno,
        /// What the step is about: a place in the view, or empty.
        what: String,
    },
    /// This process cannot start threads.
    #[error("wait for the launch")]
    Wait(#[source] tokio::task::JoinError),
}

/// Launches a sandbox whose folder is made below `state`.
///
/// # Errors
/// [`LaunchError`].
pub async fn launch(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Launched, LaunchError> {
    let prepared = prepare(host, state, spec)?;
    // The launcher is started and heard from on a thread that may block; a launch takes some milliseconds.
    tokio::task::spawn_blocking(move || start(prepared)).await.map_err(LaunchError::Wait)?
}

/// As [`launch`], for a thread that may block.
///
/// # Errors
/// [`LaunchError`].
pub fn launch_blocking(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Launched, LaunchError> {
    start(prepare(host, state, spec)?)
}

/// Everything decided and made, nothing started.
struct Prepared {
    plan: SandboxPlan,
    identity: Identity,
    listener: UnixListener,
    groups: Vec<OwnedFd>,
    sources: Vec<OwnedFd>,
    claim: Option<OwnedFd>,
    shortfalls: Vec<Shortfall>,
    launcher: PathBuf,
    left: Leftovers,
}

/// What a launch that fails takes away again.
struct Leftovers {
    folder: PathBuf,
    cgroup: SandboxCgroup,
    keep: Keep,
}

#[derive(PartialEq, Eq)]
enum Keep {
    Nothing,
    Everything,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if self.keep == Keep::Nothing {
            // Best effort by nature: the launch has failed with an error of its own. Stale folders are swept later.
            let _ = std::fs::remove_dir_all(&self.folder);
            let _ = self.cgroup.kill();
            let _ = self.cgroup.remove_blocking(CLEANUP_DEADLINE);
        }
    }
}

fn prepare(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Prepared, LaunchError> {
    let profile = &*spec.profile;
    let mut shortfalls = Vec::new();
    let seccomp = plan_seccomp(profile, &mut shortfalls)?;
    let landlock = plan_landlock(host, profile, &mut shortfalls)?;
    let (identity, claim) = identify(host, profile)?;
    let view = view::plan(profile, spec.roots, spec.network, &identity, spec.owner)?;

    let folder = state.join("sandboxes").join(&spec.id);
    let mut left = Leftovers { folder, cgroup: SandboxCgroup::absent(), keep: Keep::Nothing };
    make_private_folder(&left.folder)?;
    left.cgroup = make_cgroup(host, state, &spec.id, profile, &identity, &mut shortfalls)?;
    let (cgroups, groups) = left.cgroup.plan()?;
    let listener = listen(&left.folder)?;

    let plan = SandboxPlan {
        protocol_version: PLAN_VERSION,
        hostname: "sandbox".into(),
        sandbox_id: spec.id,
        identity: Some(identity.clone()),
        own_network: spec.network == Network::None,
        mounts: view.mounts,
        cgroups,
        seccomp: Some(seccomp),
        landlock: Some(landlock),
        die_with_gateway: spec.die_with_gateway,
        fail_at: spec.fail_at.unwrap_or_default(),
    };
    let kept = left.folder.join("plan.bin");
    std::fs::write(&kept, plan.encode_to_vec()).map_err(|cause| LaunchError::State { path: kept, cause })?;
    let launcher = host.launcher().to_owned();
    Ok(Prepared {
        plan,
        identity,
        listener,
        groups,
        sources: view.sources,
        claim,
        shortfalls,
        launcher,
        left,
    })
}

fn plan_seccomp(profile: &Profile, shortfalls: &mut Vec<Shortfall>) -> Result<SeccompPlan, LaunchError> {
    if !profile.seccomp.enabled {
        return Ok(SeccompPlan::default());
    }
    match Machine::native() {
        Some(machine) => Ok(SeccompPlan { enabled: true, program: seccomp::program(machine).into() }),
        None => {
            let why = "no filter is written for this processor".into();
            lack("seccomp", why, profile.seccomp.demand, shortfalls)?;
            Ok(SeccompPlan::default())
        }
    }
}

fn plan_landlock(
    host: &Host,
    profile: &Profile,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<LandlockPlan, LaunchError> {
    let enabled = profile.landlock.enabled && host.landlock_abi() > 0;
    if profile.landlock.enabled && !enabled {
        let why = "the kernel does not offer it".into();
        lack("landlock", why, profile.landlock.demand, shortfalls)?;
    }
    Ok(LandlockPlan { enabled })
}

/// Says that something is lacking: an error if the profile requires it, a shortfall if it prefers it.
fn lack(
    protection: &'static str,
    why: String,
    demand: Demand,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<(), LaunchError> {
    match demand {
        Demand::Require => Err(LaunchError::Unavailable { protection, why }),
        Demand::Prefer => {
            shortfalls.push(Shortfall { protection, why });
            Ok(())
        }
    }
}

fn identify(host: &Host, profile: &Profile) -> Result<(Identity, Option<OwnedFd>), LaunchError> {
    let rule = &profile.identity;
    let common = Identity {
        command_user_name: rule.user.clone(),
        home: rule.home.to_string_lossy().into_owned(),
        ..Identity::default()
    };
    if host.is_privileged() {
        let Claim { supervisor, command, lock } = host.ids().claim()?;
        let identity = Identity {
            privileged: true,
            supervisor_host_uid: supervisor,
            supervisor_host_gid: supervisor,
            command_host_uid: command,
            command_host_gid: command,
            command_uid: rule.uid,
            command_gid: rule.gid,
            ..common
        };
        return Ok((identity, Some(lock)));
    }
    let (uid, gid) = host.own_ids();
    let identity = Identity {
        privileged: false,
        supervisor_host_uid: uid,
        supervisor_host_gid: gid,
        command_host_uid: uid,
        command_host_gid: gid,
        command_uid: uid,
        command_gid: gid,
        ..common
    };
    Ok((identity, None))
}

fn make_private_folder(folder: &Path) -> Result<(), LaunchError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|cause| LaunchError::State { path: folder.to_owned(), cause })
}

fn make_cgroup(
    host: &Host,
    state: &Path,
    sandbox_id: &str,
    profile: &Profile,
    identity: &Identity,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<SandboxCgroup, LaunchError> {
    let groups = host.gateway_groups(state);
    let limits = &profile.limits;
    for missing in groups.missing() {
        let wanted = |limits: &CgroupLimits| match missing.controller {
            "memory" => limits.memory_bytes.is_some() || limits.swap_bytes.is_some(),
            "pids" => limits.pids.is_some(),
            _ => limits.cpu_millis.is_some(),
        };
        if wanted(&limits.session) || wanted(&limits.terminal) {
            let protection = match missing.controller {
                "memory" => "cgroup-memory",
                "pids" => "cgroup-pids",
                _ => "cgroup-cpu",
            };
            lack(protection, missing.why.clone(), limits.demand, shortfalls)?;
        }
    }
    if !groups.has_v2() {
        let why = "no v2 group can be written; trees are killed by their PID 1".into();
        lack("cgroup-v2", why, limits.demand, shortfalls)?;
    }
    let CgroupLimits { memory_bytes, swap_bytes, pids, cpu_millis } = limits.session;
    let limits = FolderLimits { memory_bytes, swap_bytes, pids, cpu_millis };
    let owner = (identity.supervisor_host_uid, identity.supervisor_host_gid);
    Ok(groups.make_sandbox(sandbox_id, owner, &limits)?)
}

/// Listens in the sandbox's folder, whatever the length of its path.
fn listen(folder: &Path) -> Result<UnixListener, LaunchError> {
    let path = folder.join("control.sock");
    let error = |cause| LaunchError::State { path: path.clone(), cause };
    let opened = open_folder(folder).map_err(error)?;
    UnixListener::bind(dial_path(opened.as_fd())).map_err(error)
}

/// The control socket in an open folder by a path that is short enough for a socket address.
#[must_use]
pub fn dial_path(folder: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd()))
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let options = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    std::fs::OpenOptions::new().read(true).custom_flags(options).open(folder).map(OwnedFd::from)
}

fn start(prepared: Prepared) -> Result<Launched, LaunchError> {
    let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(prepared.listener.as_fd())
        .chain(prepared.groups.iter().map(AsFd::as_fd))
        .chain(prepared.sources.iter().map(AsFd::as_fd))
        .chain(prepared.claim.iter().map(AsFd::as_fd))
        .collect();
    let frame = wire::encode(&prepared.plan, descriptors.len())?;

    let (ours, theirs) = UnixStream::pair().map_err(LaunchError::Start)?;
    ours.set_read_timeout(Some(LAUNCH_DEADLINE)).map_err(LaunchError::Start)?;
    ours.set_write_timeout(Some(LAUNCH_DEADLINE)).map_err(LaunchError::Start)?;
    let mut launcher = Command::new(&prepared.launcher)
        .arg0(PROCESS_NAME)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(LaunchError::Start)?;

    let heard = fdpass::send(ours.as_fd(), &frame, &descriptors)
        .map_err(LaunchError::Send)
        .and_then(|()| receive_answer(&ours));
    if heard.is_err() {
        // It may hang. A launcher that has ended is not harmed, because it is not reaped yet.
        let _ = launcher.kill();
    }
    // It ends right after its answer.
    let _ = launcher.wait();
    conclude(heard?, prepared)
}

fn receive_answer(socket: &UnixStream) -> Result<(Answer, Option<OwnedFd>), LaunchError> {
    let frame = FrameReceiver::new()
        .receive(socket.as_fd())
        .map_err(LaunchError::Receive)?
        .ok_or(LaunchError::Silent)?;
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
            Err(explain(&failure, &prepared))
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

fn explain(failure: &StageFailure, prepared: &Prepared) -> LaunchError {
    let stage = failure.stage();
    let errno = Errno::from_raw(failure.errno);
    let mount = |index: u32| prepared.plan.mounts.get(index as usize);
    if let (Stage::IdMap, Some(index)) = (stage, failure.index.checked_sub(ID_MAPPED_MOUNTS_FROM))
        && let (Some(mount), Errno::EINVAL) = (mount(index), errno)
    {
        let path = PathBuf::from(&mount.target);
        return LaunchError::NoIdMapping { filesystem: name_filesystem(&path), path };
    }
    let what = match stage {
        Stage::Mount | Stage::Landlock => mount(failure.index).map(|mount| mount.target.clone()),
        Stage::SupervisorCgroup => {
            prepared.plan.cgroups.get(failure.index as usize).map(|folder| folder.path.clone())
        }
        _ => None,
    };
    LaunchError::Stage { stage, index: failure.index, errno, what: what.unwrap_or_default() }
}

fn name_filesystem(path: &Path) -> String {
    const NAMES: [(i64, &str); 9] = [
        (0xEF53, "ext4"),
        (0x0102_1994, "tmpfs"),
        (0x794C_7630, "overlay"),
        (0x6969, "nfs"),
        (0xFF53_4D42, "cifs"),
        (0x6573_5546, "fuse"),
        (0x0102_1997, "9p"),
        (0x9123_683E, "btrfs"),
        (0x2FC1_2FC1, "zfs"),
    ];
    let Ok(found) = nix::sys::statfs::statfs(path) else { return "unknown".into() };
    let number = i64::from(found.filesystem_type().0);
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).into())
}
