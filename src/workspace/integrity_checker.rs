//! What is known of a workspace, and what becomes of a change: it is accepted, undone, or only said.
//!
//! Whatever was there before a command ran is its owner's business and is accepted as it is. What changes while one runs
//! is judged. Acts by descriptor and with the rights of the thread that calls it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::errno::Errno;
use sha2::{Digest, Sha256};

use super::{
    budget::InotifyLease,
    control_files::{self, ControlFile, MAX_CONTROL_FILES, Role},
    rebase_todo,
    scanner::Scanner,
    tree::{FileContent, Tree},
};
use crate::policy::profile::OnChange;

/// The most bytes of all control files of a root that are known.
const MAX_BASELINE_BYTES: usize = 16 << 20;

/// The most names of one directory, and the most directories in one another, that are compared with accepted ones.
const MAX_COPY_NAMES: usize = 256;
const MAX_COPY_DEPTH: usize = 8;

/// What was done about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeAction {
    /// It holds what it held before.
    Restored,
    /// It was moved aside.
    Quarantined,
    /// Nothing: the profile wants to be told, no more.
    Reported,
    /// It could not be undone.
    Failed(String),
}

/// A dangerous change of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DangerousChange {
    /// Absolute.
    pub path: PathBuf,
    /// What it would have made people's tools run.
    pub what: String,
    /// What was done about it.
    pub action: ChangeAction,
    /// SHA-256 of what was there, where it was a file.
    pub sha256: Option<String>,
}

/// What becomes of what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanMode {
    /// No command runs: what is there is accepted.
    Accept,
    /// The first look is not done, and a command runs since this moment (as [`ControlFile::changed_at`]): what has changed
    /// since is judged, the rest accepted.
    AcceptBefore(i64, OnChange),
    /// A command runs.
    Judge(OnChange),
}

/// What is known of a workspace.
#[derive(Debug)]
pub struct IntegrityChecker {
    tree: Tree,
    scanner: Scanner,
    baseline: BTreeMap<PathBuf, (Role, FileContent)>,
    baseline_bytes: usize,
    /// Tools' places at the root that were there before any command: they are read-only in every sandbox, and what changes in
    /// them was changed outside.
    read_only: BTreeSet<PathBuf>,
    /// Lists that running commands may be working off: judged when none runs.
    deferred_todos: BTreeSet<PathBuf>,
    is_final_scan: bool,
    /// Could not be undone, and was said.
    failed_undos: BTreeMap<PathBuf, FileContent>,
    /// The first look at everything has come to its end.
    pub has_baseline: bool,
    /// What is known has changed since it was last written down.
    pub is_dirty: bool,
}

impl IntegrityChecker {
    /// Knows nothing yet, or all that a gateway before this one has known.
    pub(super) fn new(
        tree: Tree,
        share: Option<InotifyLease>,
        known: Option<Vec<(PathBuf, Role, FileContent)>>,
    ) -> Self {
        let mut this = Self {
            tree,
            scanner: Scanner::new(share),
            baseline: BTreeMap::new(),
            baseline_bytes: 0,
            read_only: BTreeSet::new(),
            deferred_todos: BTreeSet::new(),
            is_final_scan: false,
            failed_undos: BTreeMap::new(),
            has_baseline: known.is_some(),
            is_dirty: true,
        };
        for (path, role, content) in known.unwrap_or_default() {
            this.update_baseline(ControlFile { path, role, content, changed_at: 0 }, FollowReferences::Yes);
        }
        this
    }

    /// Whether nothing can have changed since the last look. Does not block.
    pub fn is_unchanged(&mut self) -> bool {
        self.deferred_todos.is_empty() && self.scanner.is_unchanged()
    }

    /// Whether the kernel has noticed anything since it was last asked. Does not block.
    pub fn has_events(&self) -> bool {
        self.scanner.has_events()
    }

    /// Whether nothing is known that could change without a word.
    pub fn baseline_is_empty(&self) -> bool {
        self.baseline.is_empty()
    }

    /// Whether the look at everything has come to its end.
    pub fn scan_is_complete(&self) -> bool {
        self.scanner.is_complete()
    }

    /// Whether nothing was heard of that was not looked at.
    pub fn events_are_processed(&self) -> bool {
        self.scanner.events_are_processed()
    }

    /// Some of the workspace is not looked at.
    pub fn set_shortfall(&mut self, reason: &str) {
        self.scanner.set_shortfall(reason.to_owned());
    }

    /// Why some of the workspace is not looked at.
    pub fn shortfall(&self) -> Option<&str> {
        self.scanner.shortfall()
    }

    /// What is known, to be written down.
    pub fn baseline(&self) -> impl Iterator<Item = (&Path, Role, &FileContent)> {
        self.baseline.iter().map(|(path, (role, content))| (path.as_path(), *role, content))
    }

    /// Watches for these, too.
    pub fn add_tools(&mut self, tools: &[PathBuf]) {
        self.scanner.add_tools(tools);
    }

    /// Looks at everything again where nothing can be heard of.
    pub fn rescan_without_inotify(&mut self) {
        self.scanner.rescan_without_inotify();
    }

    /// Compares the known files themselves: a file that somebody holds mapped changes without a word. `is_last`: no command
    /// runs any more.
    pub fn compare_files(&mut self, is_last: bool) {
        self.is_final_scan = is_last;
        if is_last {
            self.scanner.recheck(
                std::mem::take(&mut self.deferred_todos).into_iter().map(|path| (path, Role::RebaseTodo)),
            );
        }
        let changed = |path: &PathBuf, known: &FileContent| self.tree.content(path).0 != *known;
        let files =
            self.baseline.iter().filter(|(_, (_, content))| matches!(content, FileContent::File { .. }));
        let changed: Vec<(PathBuf, Role)> = files
            .filter(|(path, (_, content))| changed(path, content))
            .map(|(path, (role, _))| (path.clone(), *role))
            .collect();
        self.scanner.recheck(changed);
    }

    /// Takes what the kernel has noticed until now: what the next looks are about.
    pub fn read_events(&mut self) {
        self.scanner.read_events();
    }

    /// Looks at what may have changed, until a moment.
    pub fn scan(&mut self, mode: ScanMode, until: Instant) -> Vec<DangerousChange> {
        let mut changes = Vec::new();
        let mut found = Vec::new();
        self.scanner.scan(&self.tree, until, &mut |sight| found.push(sight));
        // What has gone is forgotten last: what was renamed is compared with what it was.
        found.sort_by_key(|sight| sight.content == FileContent::Absent);
        // What was looked at twice is judged once: the second sight is older than what was done about the first.
        let mut judged = BTreeSet::new();
        for sight in found {
            if judged.insert(sight.path.clone()) {
                self.assess(mode, sight, &mut changes);
            }
        }
        self.has_baseline |= self.scanner.is_complete();
        changes
    }

    fn assess(&mut self, mode: ScanMode, sight: ControlFile, changes: &mut Vec<DangerousChange>) {
        let on_change = match mode {
            ScanMode::Accept => return self.update_baseline(sight, FollowReferences::Yes),
            ScanMode::AcceptBefore(moment, _) if sight.changed_at < moment => {
                return self.update_baseline(sight, FollowReferences::Yes);
            }
            ScanMode::AcceptBefore(_, on_change) | ScanMode::Judge(on_change) => on_change,
        };
        if sight.role == Role::RebaseTodo && !self.is_final_scan {
            self.deferred_todos.insert(sight.path);
            return;
        }
        if sight.role == Role::Tool && self.is_harmless_tool_file(&sight) {
            return self.update_baseline(sight, FollowReferences::No);
        }
        let before = self.baseline.get(&sight.path).map(|(_, content)| content);
        let Some(what) = control_files::assess_change(&self.tree, &self.scanner.repositories, before, &sight)
        else {
            return self.update_baseline(sight, FollowReferences::No);
        };
        let cleaned = match (&sight.role, &sight.content) {
            (Role::RebaseTodo, FileContent::File { bytes, mode }) => Some(FileContent::File {
                bytes: rebase_todo::without_new_commands(bytes, before),
                mode: *mode,
            }),
            _ => None,
        };
        let before = cleaned.as_ref().or(before);
        let action = match (on_change, before) {
            (OnChange::Report, _) => Ok(ChangeAction::Reported),
            (on_change, Some(before @ (FileContent::File { .. } | FileContent::Link(_)))) => {
                let kept = match on_change {
                    OnChange::Quarantine => self.tree.quarantine(&sight.path),
                    OnChange::Undo | OnChange::Report => Ok(()),
                };
                match kept.and_then(|()| self.tree.restore(&sight.path, before)) {
                    Ok(()) => Ok(ChangeAction::Restored),
                    // No room for what was there: what is there now must not stay.
                    Err(_) if kept.is_ok() && on_change == OnChange::Quarantine => {
                        Ok(ChangeAction::Quarantined)
                    }
                    Err(errno) => self
                        .tree
                        .quarantine(&sight.path)
                        .map(|()| ChangeAction::Quarantined)
                        .map_err(|_| errno),
                }
            }
            (_, _) => self.tree.quarantine(&sight.path).map(|()| ChangeAction::Quarantined),
        };
        if action == Err(Errno::ENOENT) {
            // It has gone meanwhile, or was moved aside with its directory.
            return;
        }
        let action = action.unwrap_or_else(|errno| ChangeAction::Failed(errno.to_string()));
        let sha256 = match &sight.content {
            FileContent::File { bytes, .. } => Some(hex(&Sha256::digest(bytes))),
            _ => None,
        };
        let is_failure = matches!(action, ChangeAction::Failed(_));
        let was_said = is_failure && self.failed_undos.get(&sight.path) == Some(&sight.content);
        if !was_said {
            let path = self.tree.path().join(&sight.path);
            changes.push(DangerousChange { path, what, action: action.clone(), sha256 });
        }
        match action {
            // Said once, until it changes again.
            ChangeAction::Reported => self.update_baseline(sight, FollowReferences::Yes),
            ChangeAction::Failed(_) if self.failed_undos.len() < MAX_CONTROL_FILES => {
                self.failed_undos.insert(sight.path, sight.content);
            }
            ChangeAction::Failed(_) | ChangeAction::Restored | ChangeAction::Quarantined => {}
        }
    }

    /// Whether a tool's place runs nothing that was not accepted: it cannot be a command's, its content is harmless, or the
    /// same is known of another place: a copy, a worktree, a directory by another name.
    fn is_harmless_tool_file(&self, sight: &ControlFile) -> bool {
        if self.read_only.iter().any(|place| sight.path.starts_with(place)) {
            return true;
        }
        match &sight.content {
            FileContent::File { bytes, .. } => self.is_file_accepted(&sight.path, bytes),
            FileContent::Directory => {
                self.baseline.contains_key(&sight.path)
                    || self.is_directory_accepted(&sight.path, MAX_COPY_DEPTH)
            }
            FileContent::Absent | FileContent::Link(_) | FileContent::Unsupported => false,
        }
    }

    fn is_file_accepted(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(name) = self.scanner.tools.path_within_tool(path) else { return false };
        let is_copy = |(known, (role, content)): (&PathBuf, &(Role, FileContent))| {
            *role == Role::Tool
                && matches!(content, FileContent::File { bytes: known, .. } if known == bytes)
                && self.scanner.tools.path_within_tool(known) == Some(name)
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
                    FileContent::Link(_) | FileContent::Unsupported => false,
                }
            })
    }

    fn update_baseline(&mut self, sight: ControlFile, follow: FollowReferences) {
        let ControlFile { path, role, content, .. } = sight;
        if let (FollowReferences::Yes, Role::Config(_), FileContent::File { bytes, .. }) =
            (follow, role, &content)
        {
            self.scanner.follow_references(&self.tree, &path, bytes);
        }
        if role == Role::Tool
            && let Some(place) = self.scanner.tools.tool_root(&path)
        {
            if content == FileContent::Absent {
                self.read_only.remove(&path);
            } else if follow == FollowReferences::Yes
                && !self.has_baseline
                && self.scanner.tools.is_rooted(&place)
                && matches!(content, FileContent::File { .. } | FileContent::Directory)
            {
                self.read_only.insert(place);
            }
        }
        let before = self.baseline.get(&path).map(|(_, content)| content);
        if before == Some(&content) {
            return;
        }
        // What is not there, and a directory where git wants a file, is as good as unknown.
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

/// Whether what a configuration names becomes a control place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowReferences {
    Yes,
    No,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
