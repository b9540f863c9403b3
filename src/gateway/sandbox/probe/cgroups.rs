//! Probes what this process can do in the cgroup hierarchies, in a cgroup that is removed at once.
//!
//! Enables no controller and moves no process: what a gateway would have to change first is inspected, not changed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::sched::CloneFlags;

use crate::{
    cgroup::{
        Hierarchy,
        directory::{self, CgroupError, CgroupLimitValues, PresenceLock},
        hierarchy::OwnCgroup,
    },
    sandbox::{
        cgroup::gateway::with_cause,
        probe::protection::{Protection, ProtectionStatus, available, missing},
    },
    sys::probe,
};

const DELEGATE_REMEDY: &str = "start the gateway in a group that is delegated to it: a systemd unit with Delegate=yes, or `systemd-run --user --scope -p Delegate=yes`";

/// Controllers that limits need, by protection.
const CONTROLLERS: [(&str, &str); 3] =
    [("cgroup-memory", "memory"), ("cgroup-pids", "pids"), ("cgroup-cpu", "cpu")];

/// Small enough to be a limit, large enough to be accepted anywhere.
const LIMITS: CgroupLimitValues = CgroupLimitValues {
    memory_bytes: Some(64 << 20),
    swap_bytes: None,
    socket_bytes: None,
    pids: Some(16),
    cpu_millis: Some(1000),
    cpu_weight: Some(50),
};

/// Probes the unified hierarchy, its features, and each controller.
pub(super) fn probe_all(own: &[OwnCgroup]) -> Vec<Protection> {
    let v2 = own.iter().find(|group| group.hierarchy == Hierarchy::V2);
    let mut all = probe_v2(v2);
    all.extend(CONTROLLERS.map(|(name, controller)| probe_limit(name, controller, own)));
    all
}

fn probe_v2(own: Option<&OwnCgroup>) -> Vec<Protection> {
    let lacking = |reason: &str, remedy: &str| {
        vec![
            missing("cgroup-v2", reason, remedy),
            missing(
                "cgroup-kill",
                "there is no v2 group to kill by; PID 1 of the sandbox is killed instead",
                remedy,
            ),
            Protection {
                name: "clone-into-cgroup",
                status: ProtectionStatus::Weaker,
                reason: "there is no v2 group to be born in".into(),
                remedy: remedy.into(),
            },
        ]
    };
    let Some(own) = own else {
        let remedy = "mount -t cgroup2 none /sys/fs/cgroup/unified";
        return lacking("the unified hierarchy is not mounted", remedy);
    };
    let scratch = match ScratchCgroup::make(&own.path) {
        Ok(scratch) => scratch,
        Err(error) => return lacking(&with_cause(&error), DELEGATE_REMEDY),
    };
    // Clone first, then kill: since Linux 6.13 no process survives being cloned into a cgroup that was killed once.
    let born = probe_clone_into_cgroup(&scratch);
    vec![available("cgroup-v2", &crate::printable::path(&own.path)), probe_kill(&scratch), born]
}

fn probe_kill(scratch: &ScratchCgroup) -> Protection {
    match directory::kill(&scratch.path) {
        Ok(()) => available("cgroup-kill", "a whole tree dies by one write"),
        Err(error) => Protection {
            name: "cgroup-kill",
            status: ProtectionStatus::Weaker,
            reason: format!("{}; processes are listed and killed until none is left", with_cause(&error)),
            remedy: "Linux 5.14 or later".into(),
        },
    }
}

fn probe_clone_into_cgroup(scratch: &ScratchCgroup) -> Protection {
    let born = directory::open(&scratch.path).map(|group| {
        use std::os::fd::AsFd;
        probe::run(CloneFlags::empty(), Some(group.as_fd()), || Ok(()))
    });
    let reason = match born {
        Ok(Ok(())) => return available("clone-into-cgroup", ""),
        Ok(Err(refused)) => refused.to_string(),
        Err(error) => with_cause(&error),
    };
    Protection {
        name: "clone-into-cgroup",
        status: ProtectionStatus::Weaker,
        reason: format!("refused when it was tried ({reason})"),
        remedy: "Linux 5.7 or later".into(),
    }
}

/// Whether a cgroup of ours could have a limit of this controller.
fn probe_limit(name: &'static str, controller: &str, own: &[OwnCgroup]) -> Protection {
    let has = |group: &&OwnCgroup| group.controllers.iter().any(|one| one == controller);
    let mut reason = None;
    for group in own.iter().filter(has) {
        let tried = match group.hierarchy {
            Hierarchy::V1 => try_limit(group, controller),
            Hierarchy::V2 if is_enabled_below(group, controller) => try_limit(group, controller),
            Hierarchy::V2 => could_enable_below(group),
        };
        match tried {
            Ok(()) => return available(name, &crate::printable::path(&group.path)),
            Err(refusal) => reason = reason.or(Some(refusal)),
        }
    }
    let reason = reason.unwrap_or_else(|| "no hierarchy offers it to this process's group".into());
    missing(name, &reason, DELEGATE_REMEDY)
}

fn try_limit(group: &OwnCgroup, controller: &str) -> Result<(), String> {
    let scratch = ScratchCgroup::make(&group.path).map_err(|error| with_cause(&error))?;
    let one = [controller.to_owned()];
    directory::set_limits(&scratch.path, group.hierarchy, &one, &LIMITS)
        .map(drop)
        .map_err(|error| with_cause(&error))
}

fn is_enabled_below(group: &OwnCgroup, controller: &str) -> bool {
    let enabled = fs::read_to_string(group.path.join("cgroup.subtree_control")).unwrap_or_default();
    enabled.split_whitespace().any(|one| one == controller)
}

/// A cgroup with processes cannot enable controllers for its children (cgroups(7)). A gateway moves itself out;
/// other processes it cannot move.
fn could_enable_below(group: &OwnCgroup) -> Result<(), String> {
    let switch = group.path.join("cgroup.subtree_control");
    if !directory::is_writable(&switch) {
        return Err(format!("{} cannot be written", crate::printable::path(&switch)));
    }
    // Only the root of the hierarchy has no `cgroup.type`, and the rule does not apply to it.
    if !group.path.join("cgroup.type").exists() {
        return Ok(());
    }
    let listed = fs::read_to_string(group.path.join("cgroup.procs")).unwrap_or_default();
    let own = std::process::id().to_string();
    match listed.lines().filter(|pid| *pid != own).count() {
        0 => Ok(()),
        others => Err(format!(
            "{others} other processes in {} keep it from limiting groups below",
            crate::printable::path(&group.path)
        )),
    }
}

/// A cgroup that exists while this value does. It is locked, so that another gateway does not remove it as
/// abandoned.
struct ScratchCgroup {
    path: PathBuf,
    presence: PresenceLock,
}

impl ScratchCgroup {
    fn make(own: &Path) -> Result<Self, CgroupError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = own.join(format!("provost-probe-{}-{number}", std::process::id()));
        let presence = directory::make_locked(&path)?;
        Ok(Self { path, presence })
    }
}

impl Drop for ScratchCgroup {
    fn drop(&mut self) {
        // A process of another pid namespace can have the same number, and its group this name. The group is empty, because the probe's
        // process has ended. If removal fails, the next gateway removes it as abandoned.
        if directory::lock_alone(&self.presence, &self.path) {
            let _ = directory::remove(&self.path);
        }
    }
}
