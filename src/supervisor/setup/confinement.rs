//! Drops privileges and applies landlock and seccomp, once, for the supervisor and every command.
//!
//! The supervisor runs under the same rules, so they include its own needs: its cgroups, and three capabilities
//! where commands have their own ids.

use std::os::fd::AsFd;

use caps::Capability;
use nix::{errno::Errno, fcntl::OFlag, sys::stat::Mode};

use super::stage::StageError;
use crate::{
    cgroup::CgroupDirectory,
    proto::supervisor::{Identity, SandboxPlan, Stage, mount::Kind},
    sys::{
        credentials,
        landlock::{self, FileRights, Ruleset},
        seccomp,
    },
};

/// Files of the sandbox's own ipc namespace, reached by mq_open(3) and by path.
const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// To start commands under their own id, and to signal them. A command loses all three when it changes its ids.
const SUPERVISOR_CAPABILITIES: [Capability; 3] =
    [Capability::CAP_SETUID, Capability::CAP_SETGID, Capability::CAP_KILL];

/// Locks the secure bits and drops every capability but the supervisor's own.
pub fn drop_privileges(ids: &Identity) -> Result<(), StageError> {
    credentials::lock_secure_bits().map_err(StageError::of_step(Stage::Capabilities, 0))?;
    let kept: &[Capability] = if ids.privileged { &SUPERVISOR_CAPABILITIES } else { &[] };
    // The library does not return the errno, but errno is still that of the failed call.
    credentials::keep_capabilities(kept).map_err(|_| StageError::at(Stage::Capabilities, 1, Errno::last()))
}

/// Applies landlock: only what the plan mounts writable can be written, even if a mount is changed. Returns the ABI
/// in force, 0 for none.
pub fn enforce_landlock(plan: &SandboxPlan, directories: &[CgroupDirectory]) -> Result<u32, StageError> {
    if !plan.landlock.is_some_and(|plan| plan.enabled) {
        return Ok(0);
    }
    let abi = landlock::abi();
    let rules = Ruleset::new(abi).map_err(StageError::of(Stage::Landlock))?;
    let look = FileRights::READ_DIRECTORY;
    let read = look.and(FileRights::READ_FILE).and(FileRights::EXECUTE);
    let devices = look
        .and(FileRights::READ_FILE)
        .and(FileRights::WRITE_FILE)
        .and(FileRights::TRUNCATE)
        .and(FileRights::DEVICE_IOCTL);
    let everything = FileRights::all(abi);

    allow(&rules, "/", look).map_err(StageError::of(Stage::Landlock))?;
    for (index, mount) in plan.mounts.iter().enumerate() {
        let rights = match mount.kind() {
            Kind::Bind if mount.read_only => read,
            Kind::Bind | Kind::Tmpfs => everything,
            Kind::Proc => look.and(FileRights::READ_FILE),
            Kind::Dev => devices,
            Kind::File => FileRights::READ_FILE,
            // Covered by the rule of the root, or of the link's target.
            Kind::Unspecified | Kind::Symlink | Kind::Directory => continue,
        };
        if mount.kind() == Kind::Dev {
            match allow(&rules, MESSAGE_QUEUES, everything) {
                // The kernel has none.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(StageError::at(Stage::Landlock, index, errno)),
            }
        }
        match allow(&rules, &mount.target, rights) {
            Ok(()) => {}
            Err(Errno::ENOENT) if mount.optional => {}
            Err(errno) => return Err(StageError::at(Stage::Landlock, index, errno)),
        }
    }
    for directory in directories {
        rules
            .allow_below(directory.descriptor.as_fd(), everything)
            .map_err(StageError::of(Stage::Landlock))?;
    }
    rules.enforce().map_err(StageError::of(Stage::Landlock))?;
    Ok(abi)
}

fn allow(rules: &Ruleset, path: &str, rights: FileRights) -> Result<(), Errno> {
    let object = nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let kind = nix::sys::stat::fstat(&object)?.st_mode & libc::S_IFMT;
    if kind == libc::S_IFDIR {
        rules.allow_below(object.as_fd(), rights)
    } else {
        rules.allow_file(object.as_fd(), rights)
    }
}

/// Installs the plan's seccomp filter, if it has one.
pub fn install_seccomp(plan: &SandboxPlan) -> Result<(), StageError> {
    match &plan.seccomp {
        Some(filter) if filter.enabled => {
            seccomp::install(&filter.program).map_err(StageError::of(Stage::Seccomp))
        }
        _ => Ok(()),
    }
}
