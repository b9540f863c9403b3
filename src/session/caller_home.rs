//! Where a caller's home is.

use std::path::PathBuf;

use nix::unistd::{Uid, User, geteuid};

use crate::sys::rights::Rights;

/// The home of a caller. A caller with this process's user has this process's `HOME`, all others that of the user database.
pub(super) fn of(rights: &Rights) -> Option<PathBuf> {
    let own = std::env::var_os("HOME").map(PathBuf::from);
    let own = own.filter(|home| rights.uid == geteuid().as_raw() && home.is_absolute());
    let listed = || User::from_uid(Uid::from_raw(rights.uid)).ok().flatten().map(|user| user.dir);
    own.or_else(listed).filter(|home| home.is_absolute() && home.components().count() > 1)
}
