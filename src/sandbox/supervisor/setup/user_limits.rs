//! Limits on what the kernel counts by user or by namespace, and no cgroup limits: `docs/internals/limits.md`, "Counted by
//! user", has the list.
//!
//! With a range of host ids each sandbox is a user of its own. An ordinary user's sandboxes are all charged to that
//! user, so each may have a part. Only lowers what was inherited.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

use super::{new_root::NewRoot, stage::StageError};
use crate::{
    proto::supervisor::{Identity, Stage},
    sys::file,
};

/// Queued signals and POSIX timers of one sandbox.
const MAX_PENDING_SIGNALS: u64 = 8_192;
/// Queued signals and timers of all sandboxes that are charged to one user, if that user's own limit allows.
const MAX_PENDING_SIGNALS_PER_USER: u64 = 65_536;
/// Each sandbox may have this part of its user's inotify instances and watches.
const INOTIFY_DIVISOR: u64 = 4;

/// In the launcher: limits what the new user namespace may charge to its creator.
pub fn limit_namespace() -> Result<(), Errno> {
    limit_pending_signals(MAX_PENDING_SIGNALS_PER_USER)
}

/// In the supervisor, before it drops its power over the user namespace.
pub fn limit_sandbox(ids: &Identity, view: &NewRoot) -> Result<(), StageError> {
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
