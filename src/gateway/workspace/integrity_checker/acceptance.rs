//! Which changes run nothing that was not accepted before: copies, other work trees, and what is harmless by its content.

use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;

use super::{
    super::{
        control_files::{self, ControlFile, MAX_CONTROL_FILES, Role},
        tree::{FileContent, Tree},
    },
    IntegrityChecker, Protection,
};

/// The most names of one directory, and the most directories in one another, that are compared with accepted ones.
const MAX_COPY_NAMES: usize = 256;
const MAX_COPY_DEPTH: usize = 8;

impl IntegrityChecker {
    /// Whether a tool's file is read-only in the sandboxes that are there. A file that was replaced is found once.
    pub(super) fn protection(&mut self, path: &Path) -> Protection {
        let mut places = self.read_only.iter();
        let Some((place, object)) = places.find(|(place, _)| path.starts_with(place)) else {
            return Protection::None;
        };
        let (place, object) = (place.clone(), *object);
        if self.object(&place) == Some(object) {
            return if self.is_linked(path) { Protection::None } else { Protection::ReadOnly };
        }
        self.read_only.remove(&place);
        // What is in a directory that was replaced is judged as what is new.
        if place == path { Protection::Replaced } else { Protection::None }
    }

    /// Whether a file has other names, or had some since it was first seen. By one of them a command changes it, and can remove that name
    /// afterwards.
    pub(super) fn is_linked(&mut self, path: &Path) -> bool {
        let Ok(stat) = self.tree.open_path(path).and_then(fstat) else { return false };
        let object = (stat.st_dev, stat.st_ino);
        if stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink > 1 {
            if self.linked.len() < MAX_CONTROL_FILES || self.linked.contains_key(path) {
                self.linked.insert(path.to_owned(), object);
            }
            return true;
        }
        self.linked.get(path) == Some(&object)
    }

    /// The device and inode of what is at a place.
    pub(super) fn object(&self, path: &Path) -> Option<(u64, u64)> {
        let stat = fstat(self.tree.open_path(path).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Whether a tool's file runs nothing that was not accepted: its content is harmless, or the baseline has the same content at another
    /// path (a copy, a worktree, a renamed directory).
    pub(super) fn is_harmless_tool_file(&self, file: &ControlFile) -> bool {
        match &file.content {
            FileContent::File { bytes, .. } => self.is_file_accepted(&file.path, bytes),
            FileContent::Directory => {
                self.baseline.contains_key(&file.path)
                    || self.scanner.tools.is_harmless_directory(&file.path)
                    || self.is_directory_accepted(&file.path, MAX_COPY_DEPTH)
            }
            FileContent::Absent | FileContent::Link(_) | FileContent::Unsupported(_) => false,
        }
    }

    /// Whether another work tree of the repository has the same accepted content by the same name.
    pub(super) fn is_accepted_in_another_work_tree(&self, file: &ControlFile) -> bool {
        let FileContent::File { bytes, .. } = &file.content else { return false };
        self.scanner.references.counterparts(&file.path).iter().any(|place| {
            matches!(self.baseline.get(place), Some((_, FileContent::File { bytes: known, .. })) if known == bytes)
        })
    }

    fn is_file_accepted(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(name) = self.scanner.tools.path_within_tool(path) else { return false };
        let is_copy = |(known, (role, content)): (&PathBuf, &(Role, FileContent))| {
            *role == Role::Tool
                && matches!(content, FileContent::File { bytes: known, .. } if known == bytes)
                && self.scanner.tools.path_within_tool(known).as_ref() == Some(&name)
        };
        self.scanner.tools.is_harmless(path, bytes) || self.baseline.iter().any(is_copy)
    }

    fn is_directory_accepted(&self, path: &Path, depth: usize) -> bool {
        let Ok(names) = self.tree.directory(path).and_then(Tree::names) else { return false };
        depth > 0
            && names.len() <= MAX_COPY_NAMES
            && names.iter().filter(|(name, _)| !control_files::is_quarantine_name(name)).all(|(name, _)| {
                let path = path.join(name);
                match self.tree.content(&path).0 {
                    FileContent::File { bytes, .. } => self.is_file_accepted(&path, &bytes),
                    FileContent::Directory => self.is_directory_accepted(&path, depth - 1),
                    FileContent::Absent => true,
                    FileContent::Link(_) | FileContent::Unsupported(_) => false,
                }
            })
    }
}
