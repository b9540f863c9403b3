//! Walks to places that only the commands' user may enter.
//!
//! With an id of its own the supervisor may not pass a directory that is private to the caller: not once it has dropped its
//! capabilities, and before that not where the directory's group has no id in the sandbox. The commands, which have the caller's
//! rights there, may. Only walks are done so; what is made is the supervisor's.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    unistd::{Gid, Uid},
};

use super::beneath;
use crate::{proto::supervisor::Identity, sys::credentials::set_file_access_ids};

/// The commands' rights to files, where they are not the supervisor's own.
#[derive(Debug)]
pub(super) struct CommandsRights(Option<(Uid, Gid)>);

impl CommandsRights {
    pub(super) fn of(ids: &Identity) -> Self {
        let own = (Uid::from_raw(ids.command_uid), Gid::from_raw(ids.command_gid));
        Self(ids.separate_ids.then_some(own))
    }

    /// Looks with the supervisor's rights, and where they do not reach, with the commands'.
    pub(super) fn walk<T>(&self, look: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match (look(), self.0) {
            (Err(Errno::EACCES), Some((uid, gid))) => {
                let found = set_file_access_ids(uid, gid).and_then(|()| look());
                // With its own rights the supervisor has its capabilities again.
                set_file_access_ids(Uid::from_raw(0), Gid::from_raw(0))?;
                found
            }
            (found, _) => found,
        }
    }

    /// As [`beneath::open_beneath`].
    pub(super) fn open_beneath(&self, directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
        self.walk(|| beneath::open_beneath(directory, name))
    }
}
