//! The supervisor's identity: id maps, root of its namespace, no nested namespaces, and limits on what the kernel counts by user.
//!
//! It is never the host's root. With a privileged launcher it has an id of its own, and so it has where the user has
//! subordinate ids; without either it is the user, in a second namespace that has no power over the mounts of the first.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    sched::CloneFlags,
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::{Gid, Uid},
};

use super::{StageError, new_root::NewRoot};
use crate::{
    proto::supervisor::{Identity, Stage},
    sys::{
        file,
        namespace::{IdPair, write_map},
    },
};

/// What the launcher says of the id maps: they are written, or the process is to write the only one that it may.
pub(crate) const MAPS_WRITTEN: u8 = 1;
/// See [`MAPS_WRITTEN`].
pub(crate) const WRITE_OWN_MAP: u8 = 2;

/// Waits for the launcher's id maps, or writes the only one that an ordinary user may. Returns the ids that there are.
pub(crate) fn await_id_maps(ids: &Identity, permission: &OwnedFd) -> Result<Identity, StageError> {
    let mut byte = [0];
    loop {
        match nix::unistd::read(permission, &mut byte) {
            Ok(1) => break,
            Ok(_) => return Err(StageError::new(Stage::IdMap, Errno::EPIPE)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(StageError::new(Stage::IdMap, errno)),
        }
    }
    if byte == [MAPS_WRITTEN] {
        return Ok(ids.clone());
    }
    let ids = one_id(ids);
    let process = Path::new("/proc/self");
    file::write_once(&process.join("setgroups"), b"deny").map_err(StageError::of_step(Stage::IdMap, 2))?;
    write_map(process, "uid_map", &[IdPair { inside: 0, outside: ids.supervisor_host_uid }])
        .map_err(StageError::of_step(Stage::IdMap, 0))?;
    write_map(process, "gid_map", &[IdPair { inside: 0, outside: ids.supervisor_host_gid }])
        .map_err(StageError::of_step(Stage::IdMap, 1))?;
    Ok(ids)
}

/// The ids where there is but one: the user's.
pub(crate) fn one_id(ids: &Identity) -> Identity {
    Identity {
        supervisor_host_uid: ids.command_host_uid,
        supervisor_host_gid: ids.command_host_gid,
        gate_host_uid: 0,
        gate_host_gid: 0,
        gate_uid: 0,
        gate_gid: 0,
        separate_ids: false,
        ..ids.clone()
    }
}

/// Replaces the host's groups and ids by those of the namespace's root.
pub(crate) fn become_root_of_namespace(ids: &Identity) -> Result<(), StageError> {
    if ids.privileged {
        // Its commands have the same groups.
        let members = ids.groups.iter().filter(|group| group.member);
        let groups: Vec<Gid> = members.map(|group| Gid::from_raw(group.inside_gid)).collect();
        nix::unistd::setgroups(&groups).map_err(StageError::of_step(Stage::Identity, 0))?;
    }
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    nix::unistd::setresgid(gid, gid, gid).map_err(StageError::of_step(Stage::Identity, 1))?;
    nix::unistd::setresuid(uid, uid, uid).map_err(StageError::of_step(Stage::Identity, 2))
}

/// Forbids further user namespaces, and so all namespaces to processes without capabilities; then makes the
/// supervisor non-dumpable. Where there is but one id, it first enters a second user namespace, in which the user has
/// its own id and no power over what the first has set up.
pub(crate) fn forbid_nested_namespaces(ids: &Identity, view: &NewRoot) -> Result<(), StageError> {
    let stage = |index| StageError::of_step(Stage::NestedNamespaces, index);
    let proc =
        view.proc.as_ref().map(AsFd::as_fd).ok_or(StageError::new(Stage::NestedNamespaces, Errno::ENOENT))?;
    let limit: &[u8] = if ids.separate_ids { b"0" } else { b"1" };
    file::write_once_at(proc, Path::new("sys/user/max_user_namespaces"), limit).map_err(stage(0))?;
    if !ids.separate_ids {
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(stage(1))?;
        let line = |inside: u32| format!("{inside} 0 1\n");
        let put = |name: &str, value: &str| file::write_once_at(proc, Path::new(name), value.as_bytes());
        put("self/setgroups", "deny").map_err(stage(2))?;
        put("self/uid_map", &line(ids.command_uid)).map_err(stage(3))?;
        put("self/gid_map", &line(ids.command_gid)).map_err(stage(4))?;
    }
    nix::sys::prctl::set_dumpable(false).map_err(stage(5))
}

/// Queued signals and POSIX timers of one sandbox.
const MAX_PENDING_SIGNALS: u64 = 8_192;
/// Queued signals and timers of all sandboxes that are charged to one user, if that user's own limit allows.
const MAX_PENDING_SIGNALS_PER_USER: u64 = 65_536;
/// Each sandbox may have this part of its user's inotify instances and watches.
const INOTIFY_DIVISOR: u64 = 4;

/// In the launcher: limits what the new user namespace may charge to its creator.
pub(crate) fn limit_namespace() -> Result<(), Errno> {
    limit_pending_signals(MAX_PENDING_SIGNALS_PER_USER)
}

/// In the supervisor, before it drops its power over the user namespace.
///
/// Limits on what the kernel counts by user or by namespace, and no cgroup limits: `docs/internals/limits.md`, "Counted by
/// user", has the list.
///
/// With a range of host ids each sandbox is a user of its own. An ordinary user's sandboxes are all charged to that
/// user, so each may have a part. Only lowers what was inherited.
pub(crate) fn limit_sandbox(ids: &Identity, view: &NewRoot) -> Result<(), StageError> {
    let step = |index| StageError::of_step(Stage::NestedNamespaces, index);
    limit_pending_signals(MAX_PENDING_SIGNALS).map_err(step(6))?;
    if ids.privileged {
        return Ok(());
    }
    let proc =
        view.proc.as_ref().map(AsFd::as_fd).ok_or(StageError::new(Stage::NestedNamespaces, Errno::ENOENT))?;
    let parts = [
        ("sys/fs/inotify/max_user_instances", "sys/user/max_inotify_instances"),
        ("sys/fs/inotify/max_user_watches", "sys/user/max_inotify_watches"),
    ];
    for (index, (whole, part)) in parts.into_iter().enumerate() {
        match set_share(proc, whole, part) {
            // This kernel has no inotify.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(step(7 + index)(errno)),
        }
    }
    Ok(())
}

fn limit_pending_signals(pending: u64) -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_SIGPENDING)?;
    let bound = hard.min(pending);
    setrlimit(Resource::RLIMIT_SIGPENDING, bound, bound)
}

fn set_share(proc: BorrowedFd<'_>, whole: &str, part: &str) -> Result<(), Errno> {
    let text = file::read_at(proc, Path::new(whole))?;
    let whole: u64 =
        std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).ok_or(Errno::EBADMSG)?;
    file::write_once_at(proc, Path::new(part), (whole / INOTIFY_DIVISOR).max(1).to_string().as_bytes())
}
