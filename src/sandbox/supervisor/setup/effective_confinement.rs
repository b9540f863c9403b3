//! Reads back from the kernel what set-up has put in force, and fails if it is less than planned.

use std::{collections::HashMap, os::fd::AsFd, path::Path};

use nix::{errno::Errno, fcntl::AT_FDCWD};

use super::stage::StageError;
use crate::{
    proto::supervisor::{EffectiveConfinement, Identity, SandboxPlan, Stage},
    sys::file,
};

const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"];

/// CAP_KILL, CAP_SETGID, CAP_SETUID.
const SUPERVISOR_CAPABILITY_BITS: u64 = 1 << 5 | 1 << 6 | 1 << 7;

/// The index, in [`Stage::EffectiveConfinement`], of a supervisor whose memory commands could read.
const DUMPABLE: usize = 100;

/// The supervisor's cgroup as the host names it. Must be read before the supervisor has its own cgroup namespace.
pub fn read_cgroup() -> Result<String, StageError> {
    let text = file::read_at(AT_FDCWD, Path::new("/proc/self/cgroup"))
        .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let text = String::from_utf8_lossy(&text);
    let named = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    Ok(named("0::").unwrap_or_default().to_owned())
}

/// Compares the kernel's state with the plan, and returns what is in force.
pub fn read_back(
    plan: &SandboxPlan,
    ids: &Identity,
    landlock_abi: u32,
    cgroup: String,
) -> Result<EffectiveConfinement, StageError> {
    let status = file::read_at(AT_FDCWD, Path::new("/proc/self/status"))
        .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let status = String::from_utf8_lossy(&status);
    if nix::sys::prctl::get_dumpable().map_err(StageError::of(Stage::EffectiveConfinement))? {
        return Err(StageError::at(Stage::EffectiveConfinement, DUMPABLE, Errno::EPERM));
    }
    let kept = if ids.separate_ids { SUPERVISOR_CAPABILITY_BITS } else { 0 };
    let filtered = plan.seccomp.as_ref().is_some_and(|plan| plan.enabled);
    let expected = [
        ("NoNewPrivs:", 10, 1),
        ("CapBnd:", 16, 0),
        ("CapInh:", 16, 0),
        ("CapAmb:", 16, 0),
        ("CapPrm:", 16, kept),
        ("CapEff:", 16, kept),
        ("Seccomp:", 10, if filtered { 2 } else { 0 }),
    ];
    for (index, (field, radix, wanted)) in expected.into_iter().enumerate() {
        let found = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|value| u64::from_str_radix(value.trim(), radix).ok());
        // Where the gateway itself is filtered the field is 2, whatever the plan says.
        let more_than_asked = field == "Seccomp:" && !filtered && found.is_some();
        if found != Some(wanted) && !more_than_asked {
            return Err(StageError::at(Stage::EffectiveConfinement, index, Errno::EPERM));
        }
    }
    let has_ptys = Path::new("/dev/ptmx").exists();
    Ok(EffectiveConfinement {
        namespaces: read_namespaces()?,
        landlock_abi,
        cgroup,
        has_ptys,
        makes_sockets: plan.own_network,
        reports_foreground: true,
        holds_idle_clocks: true,
        sets_umask: true,
        takes_stdin: true,
    })
}

fn read_namespaces() -> Result<HashMap<String, u64>, StageError> {
    let directory = nix::fcntl::open(
        "/proc/self/ns",
        nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )
    .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let inode = |name: &str| {
        nix::sys::stat::fstatat(directory.as_fd(), name, nix::fcntl::AtFlags::empty())
            .map(|stat| (name.to_owned(), stat.st_ino))
            .map_err(StageError::of(Stage::EffectiveConfinement))
    };
    NAMESPACES.iter().map(|name| inode(name)).collect()
}
