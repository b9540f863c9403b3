//! The host's set-id programs that write id maps with subordinate ids: newuidmap(1) and newgidmap(1).

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::sys::statvfs::{FsFlags, statvfs};

/// Writes `uid_map`.
pub const NEWUIDMAP: &str = "newuidmap";
/// Writes `gid_map`.
pub const NEWGIDMAP: &str = "newgidmap";

/// Where distributions have them. No PATH is asked: a caller could have set it.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/run/wrappers/bin"];

/// The program of this name, if it can gain privileges: root's, not writable by others, with the set-uid bit or file capabilities,
/// on a mount that honours them.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| gains_privileges(path))
}

fn gains_privileges(path: &Path) -> bool {
    let Ok(file) = path.metadata() else { return false };
    let mode = file.permissions().mode();
    let is_roots = file.is_file() && file.uid() == 0 && mode & 0o022 == 0;
    let is_honoured = statvfs(path).is_ok_and(|mount| !mount.flags().contains(FsFlags::ST_NOSUID));
    is_roots
        && is_honoured
        && (mode & 0o4000 != 0 || super::file::has_attribute(path, c"security.capability"))
}
