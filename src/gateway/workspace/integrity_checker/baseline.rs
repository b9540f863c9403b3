//! Keeps what was accepted: the baseline, within its bounds.

use super::{
    super::{
        control_files::{ControlFile, MAX_CONTROL_FILES, Role},
        following::FollowReferences,
        tree::FileContent,
    },
    IntegrityChecker,
};

/// The maximum bytes of all control files in the baseline.
const MAX_BASELINE_BYTES: usize = 16 << 20;

impl IntegrityChecker {
    /// Accepts a file.
    pub(super) fn update_baseline(&mut self, file: ControlFile, follow: FollowReferences) {
        let ControlFile { path, role, content, .. } = &file;
        let (path, role) = (path.clone(), *role);
        self.scanner.follow_accepted(&self.tree, &path, (role, content), follow);
        if follow == FollowReferences::No && self.scanner.foreign_pointers.contains(&path) {
            self.deferred_pointers.insert(path.clone());
        }
        if role == Role::Tool
            && let Some(place) = self.scanner.tools.tool_root(&path)
        {
            if *content == FileContent::Absent {
                self.read_only.remove(&path);
            } else if let Some(known) = self.read_only.get(&place).copied() {
                // What is read-only while a command runs, and was replaced just now, is found by the next scan.
                if follow == FollowReferences::Yes && self.object(&place) != Some(known) {
                    self.read_only.remove(&place);
                }
            } else if follow == FollowReferences::Yes
                && !self.has_baseline
                && self.scanner.tools.is_rooted(&place)
                && matches!(content, FileContent::File { .. } | FileContent::Directory)
                && let Some(object) = self.object(&place)
            {
                self.read_only.insert(place, object);
            }
            if self.read_only.keys().any(|place| path.starts_with(place)) {
                self.is_linked(&path);
            }
        }
        self.store_in_baseline(file);
    }

    /// Stores an accepted file, or says that there is no room for it.
    pub(super) fn store_in_baseline(&mut self, file: ControlFile) {
        let ControlFile { path, role, content, .. } = file;
        let before = self.baseline.get(&path).map(|(_, content)| content);
        if before == Some(&content) {
            return;
        }
        // A missing file, and a directory where git expects a file, are not kept in the baseline.
        let is_nothing =
            content == FileContent::Absent || (content == FileContent::Directory && role != Role::Tool);
        let size = |content: &FileContent| {
            if let FileContent::File { bytes, .. } = content { bytes.len() } else { 0 }
        };
        let known_bytes = self.baseline_bytes - before.map_or(0, size) + size(&content);
        if known_bytes > MAX_BASELINE_BYTES || (before.is_none() && self.baseline.len() >= MAX_CONTROL_FILES)
        {
            self.scanner.set_shortfall(format!(
                "more than {MAX_CONTROL_FILES} control files or {MAX_BASELINE_BYTES} bytes in them: the rest cannot be restored"
            ));
            return;
        }
        self.baseline_bytes = known_bytes;
        match is_nothing {
            true => drop(self.baseline.remove(&path)),
            false => drop(self.baseline.insert(path, (role, content))),
        }
        self.is_dirty = true;
    }
}
