//! Covers the files of system directories that only root may read, where commands are root, without capabilities: they own them.
//!
//! Programs' own directories are not looked through: they have no such files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::RootfsPlanner;
use crate::sandbox::launch::{covers::MAX_COVERED, rootfs_error::RootfsError};

/// Directories of packages' programs and data.
const OF_PACKAGES: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// The most entries that are looked at.
const MAX_ENTRIES: usize = 65_536;
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

impl RootfsPlanner<'_> {
    pub(super) fn cover_roots_files(&mut self, system: &[PathBuf]) -> Result<(), RootfsError> {
        let is_looked_through =
            |path: &&PathBuf| !OF_PACKAGES.iter().any(|package| path.starts_with(package));
        let mut left: Vec<PathBuf> = system.iter().filter(is_looked_through).cloned().collect();
        let (mut looked_at, mut covered) = (0, 0);
        while let Some(path) = left.pop() {
            let Ok(found) = path.symlink_metadata() else { continue };
            looked_at += 1;
            if looked_at > MAX_ENTRIES || covered > MAX_COVERED {
                return Err(RootfsError::TooManyHostObjects { path, max: MAX_COVERED });
            }
            let needed = if found.is_dir() { OTHERS_ENTER } else { OTHERS_READ };
            if found.is_symlink() {
                continue;
            }
            if found.permissions().mode() & needed == 0 {
                self.covers.add(&path, "root's file", false);
                covered += 1;
            } else if found.is_dir() {
                left.extend(entries(&path));
            }
        }
        Ok(())
    }
}

/// What this process may not list, commands of the same user may not either.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
