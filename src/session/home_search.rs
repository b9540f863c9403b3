//! Opens what may be shown of a caller's home, with the rights that the thread has: the caller's.

use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;

use super::real_path::{self, Kind};
use crate::sandbox::{
    roots,
    spec::{Root, RootRole},
};

/// Where it is looked for.
pub(super) struct HomeSearch<'a> {
    /// Without links.
    pub(super) home: &'a Path,
    /// Whose home it is.
    pub(super) owner: u32,
    /// What commands of the session can change.
    pub(super) writable: &'a [PathBuf],
}

impl HomeSearch<'_> {
    /// What is shown, if it is the caller's or root's alone and no command of the session can change it. A link must lead to something
    /// of the same name: a directory with the whole path that is listed, a file with its last part.
    pub(super) fn open_shown(&self, shown: &Path) -> Option<Root> {
        let opened = real_path::open(None, &self.home.join(shown), Kind::Any).ok()?;
        let stat = fstat(&opened.descriptor).ok()?;
        let (path, descriptor) = (opened.found.path, opened.descriptor);
        let is_own = stat.st_uid == self.owner || stat.st_uid == 0;
        let is_closed = stat.st_mode & libc::S_IWOTH == 0;
        let is_kind = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFREG);
        let overlaps = |root: &PathBuf| root.starts_with(&path) || path.starts_with(root);
        let is_home = self.home.starts_with(&path) || roots::home_in(&path, self.owner).is_some();
        let is_apart = !self.writable.iter().any(overlaps) && !is_home;
        // A command that once worked where a toolchain may lie can have left a link there, to what it could not read.
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_named = path.ends_with(shown) || (is_file && path.file_name() == shown.file_name());
        let is_text = path.to_str().is_some();
        (is_own && is_closed && is_kind && is_apart && is_named && is_text).then_some(Root {
            path,
            descriptor,
            role: RootRole::ReadOnly,
        })
    }

    /// A directory of the caller's own, as [`Self::open_shown`].
    pub(super) fn open_own_directory(&self, shown: &Path) -> Option<Root> {
        let opened = self.open_shown(shown)?;
        let stat = fstat(&opened.descriptor).ok()?;
        let is_own = stat.st_uid == self.owner && stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        is_own.then_some(opened)
    }
}
