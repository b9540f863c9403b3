//! Why a sandbox could not be launched: errors, and what a failed stage was about.
//!
//! Decides by type and number, never by text.

use std::{
    io,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use crate::{
    byte_text,
    cgroup::directory::CgroupError,
    pool::PoolError,
    proto::supervisor::{SandboxPlan, Stage, StageFailure, mount::Kind},
    sandbox::{
        host::host_ids::HostIdError, launch::rootfs_error::RootfsError, roots::governing::GoverningError,
    },
    sandbox_program::ProgramError,
    sys::fdpass::ReceiveError,
    wire::{
        EncodeError,
        launch::{EXECUTABLE_PATHS_FROM, ID_MAPPED_MOUNTS_FROM, MAP_OF_SESSION_NETWORK},
    },
};

/// Why a sandbox could not be launched. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A directory or socket in the state could not be made.
    #[error("make {path:?} in the state directory")]
    State {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// No host ids.
    #[error("get host ids for the sandbox")]
    Ids(#[from] HostIdError),
    /// A root or extra directory reaches a governing file.
    #[error(transparent)]
    Governing(#[from] GoverningError),
    /// A root cannot be read.
    #[error("look at a root")]
    Root(#[source] Errno),
    /// The mounts cannot be planned.
    #[error("plan what the sandbox sees")]
    Rootfs(#[from] RootfsError),
    /// Its cgroup directories could not be made.
    #[error("make the sandbox's cgroups")]
    Cgroup(#[from] CgroupError),
    /// A protection that the profile requires is missing.
    #[error("the profile requires {protection}, which this host does not give: {reason}")]
    Unavailable {
        /// Which one, by its name in [`crate::sandbox::probe::protections`].
        protection: &'static str,
        /// Why not.
        reason: String,
    },
    /// The file system of a root cannot map ids.
    #[error("the file system {filesystem} of {path:?} cannot map ids")]
    NoIdMapping {
        /// The root.
        path: PathBuf,
        /// The file system's name, or its number where we have no name for it.
        filesystem: String,
    },
    /// Root cannot map its own id.
    #[error(
        "this process is root and lacks CAP_SETFCAP, without which the kernel maps root into no user namespace: run it with that \
         capability, or as another user"
    )]
    RootUnmapped,
    /// The kernel mounts no new /proc where the own one is not seen in full.
    #[error(
        "parts of this process's own /proc are covered or read-only, as in containers, and the kernel then lets no new /proc be \
         mounted: run the container with its /proc unmasked (`--security-opt systempaths=unconfined`)"
    )]
    MaskedProc,
    /// Root cannot act as the owner of a root.
    #[error(
        "root {path:?} belongs to uid {owner}, and commands cannot act as that user: this process is root and lacks {lacks}; \
         work in a directory of its own, or give it that"
    )]
    ForeignRoot {
        /// The root.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// What this process would need.
        lacks: String,
    },
    /// The kernel gives no random bytes.
    #[error("make the sandbox's nonce")]
    Random(#[source] Errno),
    /// The plan is too large for a frame.
    #[error("encode the plan")]
    Encode(#[from] EncodeError),
    /// The program of the sandboxes is not what it should be.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The launcher could not be started.
    #[error("start the launcher")]
    Start(#[source] io::Error),
    /// The plan could not be sent.
    #[error("send the plan to the launcher")]
    Send(#[source] Errno),
    /// The connection to the launcher failed or timed out.
    #[error("hear from the launcher")]
    Receive(#[source] ReceiveError),
    /// The launcher exited without an answer.
    #[error("the launcher ended without an answer")]
    NoAnswer,
    /// The launcher's answer is malformed.
    #[error("the launcher's answer cannot be read")]
    MalformedAnswer,
    /// A step of set-up failed.
    #[error("set-up failed at {stage:?} {index} ({what}): {errno}")]
    Stage {
        /// Which stage.
        stage: Stage,
        /// Which step of it.
        index: u32,
        /// Why.
        errno: Errno,
        /// What the step is about: a mount's target, an executable path, or empty.
        what: String,
    },
    /// A directory of the session cannot be attached any more: before Linux 6.15, when a launch failed that had it.
    #[error("attach the session's {name:?}, which another sandbox has made")]
    SessionFiles {
        /// Which one.
        name: String,
    },
    /// A directory that the sandbox shows was removed.
    #[error("{path:?} is gone, or another directory is in its place")]
    SourceGone {
        /// Where the sandbox shows it.
        path: PathBuf,
    },
    /// The launch timed out, or no thread was free for it.
    #[error("wait for the launch")]
    Wait(#[source] PoolError),
}

impl LaunchError {
    /// Whether it is [`Self::SessionFiles`].
    pub(crate) fn is_of_session_files(&self) -> bool {
        matches!(self, Self::SessionFiles { .. })
    }

    /// Whether a command has the address that was to be the sandbox's on the loopback that it shares.
    pub(crate) fn is_of_own_address(&self) -> bool {
        matches!(self, Self::Stage { stage: Stage::Loopback, errno: Errno::EADDRINUSE, .. })
    }
}

/// Finds in the plan what a failed stage was about.
pub(super) fn explain(failure: &StageFailure, plan: &SandboxPlan) -> LaunchError {
    let stage = failure.stage();
    let errno = Errno::from_raw(failure.errno);
    let mount = |index: u32| plan.mounts.get(index as usize);
    if let (Stage::IdMap, Some(index)) = (stage, failure.index.checked_sub(ID_MAPPED_MOUNTS_FROM))
        && let (Some(mount), Errno::EINVAL) = (mount(index), errno)
    {
        return no_id_mapping(&byte_text::to_path(&mount.target));
    }
    if let (Stage::Mount, Some(mount)) = (stage, mount(failure.index))
        && !mount.shared.is_empty()
        && mount.from_descriptor
        && errno == Errno::EINVAL
    {
        return LaunchError::SessionFiles { name: mount.shared.clone() };
    }
    if let (Stage::Mount, Some(mount)) = (stage, mount(failure.index))
        && mount.from_descriptor
        && matches!(errno, Errno::ESTALE | Errno::ENOENT)
    {
        return LaunchError::SourceGone { path: byte_text::to_path(&mount.target).into_owned() };
    }
    if (stage, errno) == (Stage::Seccomp, Errno::EBUSY) {
        let reason = "this process has a seccomp filter whose calls another program is notified of (seccomp_unotify(2)), and the \
                      kernel gives a process one such filter";
        return LaunchError::Unavailable { protection: "gate", reason: reason.into() };
    }
    // The map is that of the sandbox itself, or of its session's network.
    let writes_own_map = matches!(
        (stage, failure.index),
        (Stage::IdMap, 0) | (Stage::CloneNamespaces, MAP_OF_SESSION_NETWORK)
    );
    if writes_own_map && errno == Errno::EPERM && is_root_without_setfcap() {
        return LaunchError::RootUnmapped;
    }
    if let (Stage::Mount, Some(mount), Errno::EPERM) = (stage, mount(failure.index), errno)
        && mount.kind() == Kind::Proc
    {
        return LaunchError::MaskedProc;
    }
    let executable = |index: u32| {
        let at = index.checked_sub(EXECUTABLE_PATHS_FROM)?;
        plan.landlock.as_ref()?.execute.as_ref()?.paths.get(at as usize).cloned()
    };
    let what = match stage {
        Stage::Landlock if failure.index >= EXECUTABLE_PATHS_FROM => executable(failure.index),
        Stage::Mount | Stage::Landlock => {
            mount(failure.index).map(|mount| byte_text::shown(&mount.target).into_owned())
        }
        Stage::SupervisorCgroup => {
            plan.cgroups.get(failure.index as usize).map(|directory| directory.path.clone())
        }
        _ => None,
    };
    LaunchError::Stage { stage, index: failure.index, errno, what: what.unwrap_or_default() }
}

/// The file system of this place cannot map ids.
pub(super) fn no_id_mapping(path: &Path) -> LaunchError {
    LaunchError::NoIdMapping { filesystem: name_filesystem(path), path: path.to_owned() }
}

fn name_filesystem(path: &Path) -> String {
    const NAMES: [(libc::c_long, &str); 10] = [
        (0xEF53, "ext4"),
        (0x0102_1994, "tmpfs"),
        (0x794C_7630, "overlay"),
        (0x6969, "nfs"),
        (0xFF53_4D42, "cifs"),
        (0x6573_5546, "fuse"),
        (0x0102_1997, "9p"),
        (0x9123_683E, "btrfs"),
        (0x2FC1_2FC1, "zfs"),
        (0x8584_58F6, "ramfs"),
    ];
    let Ok(found) = nix::sys::statfs::statfs(path) else { return "unknown".into() };
    // C libraries differ in its sign.
    let number = found.filesystem_type().0 as libc::c_long;
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).into())
}

/// Who writes a map with the host's root in it needs that capability (user_namespaces(7)).
fn is_root_without_setfcap() -> bool {
    let has = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SETFCAP);
    nix::unistd::geteuid().is_root() && !has.unwrap_or(false)
}
