//! The baseline of a workspace's control files, and what is done about a dangerous change: it is accepted, undone or reported.
//!
//! What was there before a command ran is accepted as it is, within the bounds of the baseline. What changes while a command runs is
//! judged. A change is accepted that runs nothing which was not accepted before: a copy, another work tree, what is harmless by its
//! content. Files are accessed by descriptor, with the permissions of the calling thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::{errno::Errno, sys::stat::fstat};
use sha2::{Digest, Sha256};

use super::{
    control_files::{self, Cause, ControlFile, MAX_CONTROL_FILES, Role},
    following::FollowReferences,
    git_state,
    inotify_events::InotifyLease,
    path_age::{PathAge, path_age},
    scanner::Scanner,
    tree::{FileContent, Tree, Undone},
};
use crate::{policy::profile::OnChange, printable};

/// What is said of a change that may be none, and is left alone.
const UNCERTAIN: &str = "; it may have been there before the command";

/// What is said of a protected file in whose place another one has come.
const REPLACED: &str = "a file that tools run or read commands from was replaced from outside: it is not read-only in this sandbox any more, and \
                        what is changed in it from now on is undone and kept next to it: save it again when no command runs";

/// Whether a command can have changed a tool's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    /// No: it is read-only in every sandbox.
    ReadOnly,
    /// It was read-only. The host has put another one in its place, which is found now.
    Replaced,
    /// Yes.
    None,
}

/// What a scan does with what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanMode {
    /// No command runs: what is there is accepted.
    Accept,
    /// The first scan is not complete, and a command runs since this moment (as [`ControlFile::changed_at`]): what has
    /// changed since is judged, the rest is accepted.
    AcceptBefore(i64, OnChange),
    /// A command runs.
    Judge(OnChange),
}

/// Whether a command may be executing what is in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandState {
    /// At least one runs.
    Running,
    /// None does any more.
    Ended,
}

/// Compares a workspace with its baseline.
#[derive(Debug)]
pub(super) struct IntegrityChecker {
    tree: Tree,
    scanner: Scanner,
    baseline: BTreeMap<PathBuf, (Role, FileContent)>,
    baseline_bytes: usize,
    /// Tools' files and directories at the root that were there before any command, and the device and inode of each. They are read-only in
    /// every sandbox, so that a change in them was made outside, until another one takes their place: that takes the mount off.
    read_only: BTreeMap<PathBuf, (u64, u64)>,
    /// Tools' files that are read-only by their names, and have had other names, and the device and inode of each: a command changes
    /// such a file by another one.
    linked: BTreeMap<PathBuf, (u64, u64)>,
    /// The last name of what was in a place before an undo.
    kept: BTreeMap<PathBuf, OsString>,
    /// Rebase lists that running commands may be executing: judged when no command runs.
    deferred_todos: BTreeSet<PathBuf>,
    /// The owner's own configuration has been followed.
    has_own_configuration: bool,
    /// Files of a stored baseline that are not followed yet.
    unfollowed: Vec<PathBuf>,
    /// Pointers whose repository, outside of the root, has changed while a command ran: followed when none runs.
    deferred_pointers: BTreeSet<PathBuf>,
    /// What was read and is not judged yet, by path. Missing files are the last, so that a renamed file is compared with
    /// its old content.
    unjudged: BTreeMap<(bool, PathBuf), ControlFile>,
    /// Changes that could not be undone and were reported.
    failed_undos: BTreeMap<PathBuf, FileContent>,
    /// The first scan is complete.
    pub has_baseline: bool,
    /// The baseline has changed since it was last stored.
    pub is_dirty: bool,
}

impl IntegrityChecker {
    /// `known`: the stored baseline of an earlier gateway.
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
            read_only: BTreeMap::new(),
            linked: BTreeMap::new(),
            kept: BTreeMap::new(),
            deferred_todos: BTreeSet::new(),
            has_own_configuration: false,
            unfollowed: Vec::new(),
            deferred_pointers: BTreeSet::new(),
            unjudged: BTreeMap::new(),
            failed_undos: BTreeMap::new(),
            has_baseline: known.is_some(),
            is_dirty: true,
        };
        for (path, role, content) in known.unwrap_or_default() {
            this.unfollowed.push(path.clone());
            this.store_in_baseline(ControlFile { path, role, content, changed_at: 0, cause: Cause::Walk });
        }
        this
    }

    /// Whether nothing can have changed since the last scan. Does not block.
    pub(super) fn is_unchanged(&mut self) -> bool {
        self.deferred_todos.is_empty()
            && self.deferred_pointers.is_empty()
            && self.unjudged.is_empty()
            && self.scanner.is_unchanged()
    }

    /// Whether inotify events wait. Does not block.
    pub(super) fn has_events(&self) -> bool {
        self.scanner.has_events()
    }

    /// Whether the baseline is empty: no file of it can change without an event.
    pub(super) fn baseline_is_empty(&self) -> bool {
        self.baseline.is_empty()
    }

    /// Whether the scan of everything is complete, and all that it found is judged.
    pub(super) fn scan_is_complete(&self) -> bool {
        self.unjudged.is_empty() && self.scanner.is_complete()
    }

    /// Why some of the workspace is not scanned.
    pub(super) fn shortfall(&self) -> Option<&str> {
        self.scanner.shortfall()
    }

    /// The files of the baseline.
    pub(super) fn baseline(&self) -> impl Iterator<Item = (&Path, Role, &FileContent)> {
        self.baseline.iter().map(|(path, (role, content))| (path.as_path(), *role, content))
    }

    /// Adds the files of tools that a profile protects.
    pub(super) fn add_tools(&mut self, tools: &[PathBuf]) {
        self.scanner.add_tools(tools);
    }

    /// Starts a scan of everything when inotify is not in use.
    pub(super) fn rescan_without_inotify(&mut self) {
        self.scanner.rescan_without_inotify();
    }

    /// Compares the files of the baseline themselves: a file that is mapped into memory changes without an event.
    pub(super) fn compare_files(&mut self) {
        let changed = |path: &PathBuf, known: &FileContent| self.tree.content(path).0 != *known;
        let is_file =
            |content: &FileContent| matches!(content, FileContent::File { .. } | FileContent::Unsupported(_));
        let files = self.baseline.iter().filter(|(_, (_, content))| is_file(content));
        let changed: Vec<(PathBuf, Role)> = files
            .filter(|(path, (_, content))| changed(path, content))
            .map(|(path, (role, _))| (path.clone(), *role))
            .collect();
        self.scanner.recheck(changed);
    }

    /// Reads the inotify events until now: what the next scans are about.
    pub(super) fn read_events(&mut self) {
        self.scanner.read_events();
    }

    /// Scans what may have changed and judges what it finds, until a deadline; the rest is left to the next call. A rebase
    /// list is judged only if `commands` says, just before, that none runs: one may start during the scan.
    pub(super) fn scan(
        &mut self,
        mode: ScanMode,
        commands: &dyn Fn() -> CommandState,
        deadline: Instant,
    ) -> Vec<DangerousChange> {
        if commands() == CommandState::Ended {
            let deferred = std::mem::take(&mut self.deferred_todos);
            self.scanner.recheck(deferred.into_iter().map(|path| (path, Role::RebaseTodo)));
        }
        // While a command runs, what a person changes waits: a command may have written what it names.
        if mode == ScanMode::Accept || !self.has_own_configuration {
            if !std::mem::replace(&mut self.scanner.has_own_configuration, true) {
                self.scanner.follow_own_configuration(&self.tree);
            }
            self.has_own_configuration = true;
        }
        for path in std::mem::take(&mut self.unfollowed) {
            if let Some((role, content)) = self.baseline.get(&path) {
                self.scanner.follow_accepted(&self.tree, &path, (*role, content), FollowReferences::Yes);
            }
        }
        if mode == ScanMode::Accept {
            let deferred = std::mem::take(&mut self.deferred_pointers);
            self.scanner.recheck(deferred.into_iter().map(|path| (path, Role::Pointer)));
        }
        let mut changes = Vec::new();
        // What the call before left comes first: no more is read until it is judged.
        self.judge(mode, commands, deadline, &mut changes);
        if self.unjudged.is_empty() {
            let mut found = Vec::new();
            let since = if let ScanMode::AcceptBefore(moment, _) = mode { Some(moment) } else { None };
            self.scanner.scan(&self.tree, since, deadline, &mut |file| found.push(file));
            found.into_iter().for_each(|file| self.add_unjudged(file));
            self.judge(mode, commands, deadline, &mut changes);
        }
        self.has_baseline |= self.scan_is_complete();
        changes
    }

    /// A file that was read twice is judged once: both readings are older than what is done about it.
    fn add_unjudged(&mut self, mut file: ControlFile) {
        for is_absent in [false, true] {
            if let Some(older) = self.unjudged.remove(&(is_absent, file.path.clone())) {
                file.changed_at = file.changed_at.max(older.changed_at);
                file.cause = file.cause.max(older.cause);
            }
        }
        let is_absent = file.content == FileContent::Absent;
        self.unjudged.insert((is_absent, file.path.clone()), file);
    }

    /// Judges what was read, until a deadline, and one file at least.
    fn judge(
        &mut self,
        mode: ScanMode,
        commands: &dyn Fn() -> CommandState,
        deadline: Instant,
        changes: &mut Vec<DangerousChange>,
    ) {
        while let Some((_, file)) = self.unjudged.pop_first() {
            self.assess(mode, commands, file, changes);
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    fn assess(
        &mut self,
        mode: ScanMode,
        commands: &dyn Fn() -> CommandState,
        mut file: ControlFile,
        changes: &mut Vec<DangerousChange>,
    ) {
        let mut doubt = "";
        let on_change = match mode {
            ScanMode::Accept => return self.update_baseline(file, FollowReferences::Yes),
            ScanMode::AcceptBefore(moment, on_change) => match self.age(&file, moment) {
                PathAge::Unchanged => return self.update_baseline(file, FollowReferences::Yes),
                // To undo it would destroy what a person has, where a command has only worked next to it.
                PathAge::Uncertain => {
                    doubt = UNCERTAIN;
                    OnChange::Report
                }
                PathAge::New => on_change,
            },
            ScanMode::Judge(on_change) => on_change,
        };
        if file.role == Role::RebaseTodo && commands() == CommandState::Running {
            self.deferred_todos.insert(file.path);
            return;
        }
        if file.role == Role::Tool {
            match self.protection(&file.path) {
                Protection::ReadOnly => return self.update_baseline(file, FollowReferences::No),
                Protection::Replaced => {
                    // What was read may be older than what is there now.
                    (file.content, file.changed_at) = self.tree.content(&file.path);
                    if self.baseline.get(&file.path).is_none_or(|(_, known)| *known != file.content) {
                        let path = self.tree.path().join(&file.path);
                        let action = ChangeAction::Reported;
                        let what = REPLACED.to_owned();
                        changes.push(DangerousChange { path, what, action, sha256: sha256(&file.content) });
                        return self.update_baseline(file, FollowReferences::Yes);
                    }
                }
                Protection::None => {}
            }
            if self.is_harmless_tool_file(&file) {
                return self.update_baseline(file, FollowReferences::No);
            }
        }
        if file.role == Role::Hook && self.is_accepted_in_another_work_tree(&file) {
            return self.update_baseline(file, FollowReferences::No);
        }
        let before = self.baseline.get(&file.path).map(|(_, content)| content);
        let Some(what) = control_files::assess_change(&self.tree, &self.scanner.repositories, before, &file)
        else {
            return self.update_baseline(file, FollowReferences::No);
        };
        let cleaned = match (&file.role, &file.content) {
            (Role::RebaseTodo, FileContent::File { bytes, mode }) => {
                Some(FileContent::File { bytes: git_state::without_new_commands(bytes, before), mode: *mode })
            }
            _ => None,
        };
        let before = cleaned.as_ref().or(before);
        let (action, kept) = match (on_change, before) {
            (OnChange::Report, _) => (Ok(ChangeAction::Reported), None),
            (OnChange::Undo | OnChange::Quarantine, before) => {
                let undone = match before {
                    Some(before @ (FileContent::File { .. } | FileContent::Link(_))) => {
                        let known = self.kept.get(&file.path).map(OsString::as_os_str);
                        let restored = self.tree.restore(&file.path, before, known);
                        // No room for what was there: what is there now must not stay.
                        restored.or_else(|errno| self.tree.quarantine(&file.path).map_err(|_| errno))
                    }
                    _ => self.tree.quarantine(&file.path),
                };
                match undone {
                    Ok(Undone { is_restored: true, kept }) => (Ok(ChangeAction::Restored), kept),
                    Ok(Undone { is_restored: false, kept }) => (Ok(ChangeAction::Quarantined), kept),
                    Err(errno) => (Err(errno), None),
                }
            }
        };
        if action == Err(Errno::ENOENT) {
            // It was removed meanwhile, or quarantined with its directory.
            return;
        }
        let action = action.unwrap_or_else(|errno| ChangeAction::Failed(errno.to_string()));
        let sha256 = sha256(&file.content);
        let is_failure = matches!(action, ChangeAction::Failed(_));
        let was_reported = is_failure && self.failed_undos.get(&file.path) == Some(&file.content);
        if !was_reported {
            let path = self.tree.path().join(&file.path);
            let what = what + doubt + &kept.as_deref().map(kept_as).unwrap_or_default();
            changes.push(DangerousChange { path, what, action: action.clone(), sha256 });
        }
        match action {
            // Reported once, until it changes again.
            ChangeAction::Reported => self.update_baseline(file, FollowReferences::Yes),
            ChangeAction::Failed(_) if self.failed_undos.len() < MAX_CONTROL_FILES => {
                self.failed_undos.insert(file.path, file.content);
            }
            ChangeAction::Restored | ChangeAction::Quarantined => {
                // The undo has put a file of its own there, which is not read-only.
                self.read_only.remove(&file.path);
                if let Some(kept) = kept
                    && (self.kept.len() < MAX_CONTROL_FILES || self.kept.contains_key(&file.path))
                {
                    self.kept.insert(file.path, kept);
                }
            }
            ChangeAction::Failed(_) => {}
        }
    }

    /// Since when a file is what it is where it is: an event was about it, or its times and those of the way to it say so.
    fn age(&self, file: &ControlFile, moment: i64) -> PathAge {
        match file.content {
            _ if file.cause == Cause::Event => PathAge::New,
            FileContent::Absent => PathAge::Unchanged,
            // What is in a directory is judged by itself.
            FileContent::File { .. } | FileContent::Link(_) | FileContent::Unsupported(_)
                if file.changed_at >= moment =>
            {
                PathAge::New
            }
            _ => path_age(&self.tree, &self.scanner.repositories, &file.path, moment),
        }
    }
}

/// What is said of what an undo took out of its place. A person may have put it there, which nobody knows.
fn kept_as(name: &OsStr) -> String {
    let name = printable::line(&name.to_string_lossy()).into_owned();
    format!("; what was there is now {name}, next to it: if it is yours, rename it back when no command runs")
}

fn sha256(content: &FileContent) -> Option<String> {
    match content {
        FileContent::File { bytes, .. } => Some(hex(&Sha256::digest(bytes))),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most names of one directory, and the most directories in one another, that are compared with accepted ones.
const MAX_COPY_NAMES: usize = 256;
const MAX_COPY_DEPTH: usize = 8;

impl IntegrityChecker {
    /// Whether a tool's file is read-only in the sandboxes that are there. A file that was replaced is found once.
    fn protection(&mut self, path: &Path) -> Protection {
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
    fn is_linked(&mut self, path: &Path) -> bool {
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
    fn object(&self, path: &Path) -> Option<(u64, u64)> {
        let stat = fstat(self.tree.open_path(path).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Whether a tool's file runs nothing that was not accepted: its content is harmless, or the baseline has the same content at another
    /// path (a copy, a worktree, a renamed directory).
    fn is_harmless_tool_file(&self, file: &ControlFile) -> bool {
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
    fn is_accepted_in_another_work_tree(&self, file: &ControlFile) -> bool {
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

/// The maximum bytes of all control files in the baseline.
const MAX_BASELINE_BYTES: usize = 16 << 20;

impl IntegrityChecker {
    /// Accepts a file.
    fn update_baseline(&mut self, file: ControlFile, follow: FollowReferences) {
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
    fn store_in_baseline(&mut self, file: ControlFile) {
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

/// What was done about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeAction {
    /// It holds what it held before.
    Restored,
    /// It was renamed so that no tool finds it.
    Quarantined,
    /// Nothing: the profile asks for a report only.
    Reported,
    /// It could not be undone.
    Failed(String),
}

/// A dangerous change of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DangerousChange {
    /// Absolute.
    pub path: PathBuf,
    /// What it would have made people's tools run.
    pub what: String,
    /// What was done about it.
    pub action: ChangeAction,
    /// SHA-256 of what was there, where it was a file.
    pub sha256: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, time::Duration};

    use nix::unistd::geteuid;

    use super::*;
    use crate::workspace::{inotify_events::InotifyBudget, tree::SharedRoots};

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn scan(checker: &mut IntegrityChecker, mode: ScanMode) -> Vec<DangerousChange> {
        checker.read_events();
        checker.rescan_without_inotify();
        checker.compare_files();
        let mut found = checker.scan(mode, &|| CommandState::Ended, Instant::now() + TEST_TIMEOUT);
        while !checker.scan_is_complete() {
            found.extend(checker.scan(mode, &|| CommandState::Ended, Instant::now() + TEST_TIMEOUT));
        }
        found
    }

    /// Which changes of a command are found in a root that is one of several directories.
    fn found(host: impl Fn(&Path, &Path), command: impl Fn(&Path, &Path)) -> Vec<String> {
        let above = tempfile::tempdir().unwrap();
        let above = above.path().canonicalize().unwrap();
        let root = above.join("root");
        fs::create_dir(&root).unwrap();
        host(&above, &root);
        let roots = SharedRoots::default();
        roots.lock().unwrap().extend([root.clone(), above.join("other")]);
        let tree = Tree::new(root.clone(), fs::File::open(&root).unwrap().into()).among(roots);
        let lease = InotifyBudget::of_host().lease_instance(geteuid().as_raw());
        let mut checker = IntegrityChecker::new(tree, lease, None);
        checker.add_tools(&[".vscode".into(), ".envrc".into()]);
        assert_eq!(scan(&mut checker, ScanMode::Accept), []);
        command(&above, &root);
        let changes = scan(&mut checker, ScanMode::Judge(OnChange::Undo));
        let relative =
            |change: DangerousChange| change.path.strip_prefix(&root).unwrap().display().to_string();
        changes.into_iter().map(relative).collect()
    }

    fn repository(git: &Path, config: &str) {
        for directory in ["objects", "refs"] {
            fs::create_dir_all(git.join(directory)).unwrap();
        }
        write(&git.join("HEAD"), "ref: refs/heads/main\n");
        write(&git.join("config"), config);
    }

    #[test]
    fn hooks_of_a_repository_elsewhere_count_in_the_root_that_is_its_worktree() {
        let host = |above: &Path, root: &Path| {
            let git = above.join("r/.git");
            repository(&git, "[core]\nhooksPath = own\n[include]\npath = more\n");
            write(&git.join("more"), "[core]\nfsmonitor = ./mon.sh\n");
            write(&git.join("worktrees/w/commondir"), "../..\n");
            write(&root.join(".git"), &format!("gitdir: {}\n", git.join("worktrees/w").display()));
            fs::create_dir(root.join("own")).unwrap();
        };
        let command = |_: &Path, root: &Path| {
            write(&root.join("own/pre-commit"), "x");
            write(&root.join("mon.sh"), "x");
            write(&root.join("other"), "x");
        };
        assert_eq!(found(host, command), ["mon.sh", "own/pre-commit"]);
    }

    #[test]
    fn what_an_accepted_link_leads_to_is_compared() {
        let host = |_: &Path, root: &Path| {
            repository(&root.join(".git"), "");
            write(&root.join("scripts/check.sh"), "");
            write(&root.join("hk/pre-push"), "");
            write(&root.join("cfg/tasks.json"), "{}");
            write(&root.join("conf"), "");
            fs::create_dir_all(root.join(".git/own")).unwrap();
            symlink("../hk", root.join(".git/hooks")).unwrap();
            symlink("../scripts/check.sh", root.join("hk/pre-commit")).unwrap();
            symlink("cfg", root.join(".vscode")).unwrap();
            symlink("conf", root.join(".envrc")).unwrap();
        };
        let command = |_: &Path, root: &Path| {
            for place in ["scripts/check.sh", "hk/pre-push", "cfg/tasks.json", "conf", "free"] {
                write(&root.join(place), "x");
            }
        };
        assert_eq!(found(host, command), ["cfg/tasks.json", "conf", "hk/pre-push", "scripts/check.sh"]);
    }

    #[test]
    fn a_link_into_what_is_not_scanned_of_another_root_is_dangerous() {
        let command = |above: &Path, root: &Path| {
            fs::create_dir_all(above.join("other/target/y")).unwrap();
            fs::create_dir_all(above.join("other/y")).unwrap();
            for (to, name) in
                [("other/.git/refs/r", "a"), ("other/target/y", "b"), ("other/y", "c"), ("target/y", "d")]
            {
                symlink(above.join(to), root.join(name)).unwrap();
            }
        };
        assert_eq!(found(|_, _| {}, command), ["a", "b"]);
    }
}
