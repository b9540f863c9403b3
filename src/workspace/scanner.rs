//! Finds the control files of a workspace: by a scan of everything, and afterwards where inotify reports a change.
//!
//! Every scanned directory is watched, so that a new repository deep below is found by an event of its own directory.
//! Bounded in directories, files and time. What could not be scanned is reported as a shortfall.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::{errno::Errno, sys::stat::fstat};

use super::{
    budget::InotifyLease,
    config_references::ConfigReferences,
    control_files::{self, ControlFile, Role, SKIPPED_DIRECTORIES},
    gitconfig::ConfigKind,
    inotify_events::{AddWatchOutcome, InotifyEventKind, InotifyEvents},
    tool_paths::ToolPaths,
    tree::Tree,
};

/// The maximum number of directories of a root that are scanned and watched.
pub const MAX_DIRECTORIES: usize = 16_384;
/// The maximum number of unreadable directories that are tried again.
const MAX_UNREADABLE: usize = 1_024;

/// A directory to scan.
#[derive(Debug, PartialEq, Eq)]
enum ScanTask {
    /// With all directories below it.
    Recursive(PathBuf),
    /// Alone.
    Directory(PathBuf),
}

/// Walks a workspace and keeps watching it.
#[derive(Debug)]
pub struct Scanner {
    inotify: InotifyEvents,
    /// The directories of this scan that are not watched, when inotify is not in use.
    scanned_unwatched: usize,
    tasks: VecDeque<ScanTask>,
    /// Directories that events were about: scanned before the rest.
    event_tasks: VecDeque<ScanTask>,
    /// Files of the baseline that have changed without an event.
    rechecks: Vec<(PathBuf, Role)>,
    /// Directories that could not be opened and are tried again.
    unreadable: BTreeSet<PathBuf>,
    /// The repositories' own directories.
    pub repositories: BTreeSet<PathBuf>,
    /// The files of tools other than git.
    pub tools: ToolPaths,
    /// The files that accepted configurations name.
    references: ConfigReferences,
    /// Why some of the workspace is not scanned.
    shortfall: Option<String>,
}

impl Scanner {
    /// Begins at the root. Without a share of the host's inotify there are only walks.
    pub fn new(share: Option<InotifyLease>) -> Self {
        Self {
            inotify: InotifyEvents::new(share),
            scanned_unwatched: 0,
            tasks: VecDeque::from([ScanTask::Recursive(PathBuf::new())]),
            event_tasks: VecDeque::new(),
            rechecks: Vec::new(),
            unreadable: BTreeSet::new(),
            repositories: BTreeSet::new(),
            tools: ToolPaths::default(),
            references: ConfigReferences::default(),
            shortfall: None,
        }
    }

    /// Whether all tasks are done. Does not ask the kernel for new events.
    pub fn is_complete(&self) -> bool {
        self.tasks.is_empty() && self.events_are_processed()
    }

    /// Whether everything that events were about is scanned.
    pub fn events_are_processed(&self) -> bool {
        self.event_tasks.is_empty() && self.rechecks.is_empty()
    }

    /// Whether nothing can have changed since the last scan. Does not block.
    pub fn is_unchanged(&mut self) -> bool {
        if self.inotify.has_backlog() {
            return false;
        }
        if self.inotify.has_events() {
            self.read_events();
        }
        self.is_complete() && self.unreadable.is_empty() && self.inotify.is_active()
    }

    /// Whether inotify events wait. Does not block.
    pub fn has_events(&self) -> bool {
        self.inotify.has_events()
    }

    /// Starts a scan of everything.
    pub fn rescan(&mut self) {
        self.scanned_unwatched = 0;
        self.event_tasks.clear();
        self.tasks = VecDeque::from([ScanTask::Recursive(PathBuf::new())]);
    }

    /// Starts a scan of everything when inotify is not in use.
    pub fn rescan_without_inotify(&mut self) {
        if !self.inotify.is_active() {
            self.rescan();
        }
    }

    /// Reads these files again in the next scan.
    pub fn recheck(&mut self, changed: impl IntoIterator<Item = (PathBuf, Role)>) {
        self.rechecks.extend(changed);
    }

    /// Adds files of tools. A directory that may hold several of them is scanned once.
    pub fn add_tools(&mut self, tools: &[PathBuf]) {
        let directories: BTreeSet<PathBuf> = self.tools.add(tools).into_iter().collect();
        for directory in directories {
            // A scan of this directory that waits already finds these files too.
            let is_waiting = |task: &ScanTask| matches!(task, ScanTask::Recursive(path) | ScanTask::Directory(path) if *path == directory);
            if !self.tasks.iter().any(is_waiting) {
                self.tasks.push_back(ScanTask::Directory(directory));
            }
        }
    }

    /// Turns the inotify events into directories to scan.
    pub fn read_events(&mut self) {
        let mut events = Vec::new();
        self.inotify.read(|event| events.push(event));
        events.into_iter().for_each(|event| self.apply_event(event));
    }

    fn apply_event(&mut self, noticed: InotifyEventKind) {
        match noticed {
            InotifyEventKind::Overflow => self.rescan(),
            InotifyEventKind::File(seen_by) => {
                seen_by.into_iter().for_each(|path| self.push_event_task(ScanTask::Directory(path)))
            }
            InotifyEventKind::Name { at, name, is_directory } => {
                self.apply_name_event(at, &name, is_directory)
            }
        }
    }

    fn apply_name_event(&mut self, at: PathBuf, name: &OsStr, is_directory: bool) {
        let path = at.join(name);
        let in_repository = self.repositories.contains(&at);
        let makes_repository = name == "HEAD" && !in_repository;
        if let Some((repository, _)) = self.references.file(&path) {
            let repository = repository.clone();
            self.push_event_task(ScanTask::Directory(repository));
        }
        // Of a directory that is new in a repository only its own content counts.
        let is_control = control_files::is_interesting(name) && !(is_directory && in_repository);
        if is_control || makes_repository || self.is_hooks(&at) || self.tools.covers(&path) {
            self.push_event_task(ScanTask::Directory(at.clone()));
        }
        if is_directory && !self.is_skipped(&at, &path) {
            self.push_event_task(ScanTask::Recursive(path));
        }
    }

    fn push_event_task(&mut self, task: ScanTask) {
        if self.event_tasks.len() > MAX_DIRECTORIES {
            self.rescan();
        } else if !self.event_tasks.iter().rev().take(8).any(|waiting| *waiting == task) {
            // A burst is about few places, and only those at the end are compared.
            self.event_tasks.push_back(task);
        }
    }

    fn is_hooks(&self, path: &Path) -> bool {
        self.references.has_directory(path)
            || path.file_name().is_some_and(|name| name == "hooks")
                && path.parent().is_some_and(|above| self.repositories.contains(above))
    }

    fn is_skipped(&self, directory: &Path, path: &Path) -> bool {
        self.repositories.contains(directory)
            && path.file_name().is_some_and(|name| SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped))
    }

    /// Scans what events were about and then the rest, until a deadline. Each control file goes to `found`.
    /// Reads no new events, so that a flood of changes does not keep it from its end.
    pub fn scan(&mut self, tree: &Tree, deadline: Instant, found: &mut impl FnMut(ControlFile)) {
        for path in std::mem::take(&mut self.unreadable) {
            self.event_tasks.push_back(ScanTask::Recursive(path));
        }
        for (path, role) in std::mem::take(&mut self.rechecks) {
            let by = path.parent().unwrap_or(Path::new("")).to_owned();
            self.inspect(tree, &by, path, role, found);
        }
        loop {
            let is_event = !self.event_tasks.is_empty();
            let queue = if is_event { &mut self.event_tasks } else { &mut self.tasks };
            let Some(task) = queue.pop_front() else { return };
            let (path, is_deep) = match task {
                ScanTask::Recursive(path) => (path, true),
                ScanTask::Directory(path) => (path, false),
            };
            self.scan_directory(tree, &path, is_deep, is_event, &mut |mut file| {
                if is_event {
                    // An event was about it, whatever its times say: a moved directory keeps the times of its files.
                    file.changed_at = i64::MAX;
                }
                found(file);
            });
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    fn scan_directory(
        &mut self,
        tree: &Tree,
        path: &Path,
        is_deep: bool,
        is_event: bool,
        found: &mut impl FnMut(ControlFile),
    ) {
        let directory = match tree.directory(path) {
            Ok(directory) => directory,
            // Gone, a link, a file, or another file system.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => return,
            Err(errno) => return self.retry_later(path, errno),
        };
        // Before it is listed, so that changes in between cause events.
        let is_deep = match self.inotify.watch_directory(&directory, path) {
            AddWatchOutcome::New => is_deep && !self.exceeds_max_directories(self.inotify.directories()),
            AddWatchOutcome::Already => is_deep,
            AddWatchOutcome::No => {
                if self.inotify.is_active() {
                    // Closed to its owner: there are no events.
                    self.retry_later(path, Errno::EACCES);
                }
                self.scanned_unwatched += 1;
                is_deep && !self.exceeds_max_directories(self.scanned_unwatched)
            }
        };
        let names = match Tree::names(directory) {
            Ok(names) => names,
            Err(errno) => return self.retry_later(path, errno),
        };
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if control_files::is_repository(path, has) {
            if !self.repositories.contains(path) && !is_deep {
                // It has become a repository: its parts are scanned as such.
                self.push_event_task(ScanTask::Recursive(path.to_owned()));
            }
            self.repositories.insert(path.to_owned());
            self.inspect_repository(tree, path, has, found);
        } else {
            self.repositories.remove(path);
        }
        self.inspect_names(tree, path, &names, found);
        if is_deep {
            let below =
                names.iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| path.join(name));
            let below: Vec<PathBuf> = below.filter(|below| !self.is_skipped(path, below)).collect();
            // What an event was about is scanned completely before the rest.
            let queue = if is_event { &mut self.event_tasks } else { &mut self.tasks };
            queue.extend(below.into_iter().map(ScanTask::Recursive));
        }
    }

    /// What could not be opened is tried again at each scan: a directory that is closed to its owner, a host without
    /// descriptors.
    fn retry_later(&mut self, path: &Path, errno: Errno) {
        if errno == Errno::ENAMETOOLONG {
            self.set_shortfall("paths of more than 4096 bytes are not scanned".to_owned());
            return;
        }
        if errno != Errno::EACCES {
            self.set_shortfall(format!("a directory cannot be opened: {}", errno.desc()));
        }
        if self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable.insert(path.to_owned());
        } else {
            self.set_shortfall(format!("more than {MAX_UNREADABLE} directories cannot be opened"));
        }
    }

    /// The control files among the names of a directory, except a repository's own.
    fn inspect_names(
        &mut self,
        tree: &Tree,
        path: &Path,
        names: &[(OsString, bool)],
        found: &mut impl FnMut(ControlFile),
    ) {
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if self.is_hooks(path) {
            for (name, _) in names.iter().filter(|(name, _)| control_files::is_hook(name)) {
                self.inspect(tree, path, path.join(name), Role::Hook, found);
            }
        }
        if has(".git") {
            self.inspect(tree, path, path.join(".git"), Role::Pointer, found);
        }
        if has(".gitmodules") {
            self.inspect(tree, path, path.join(".gitmodules"), Role::Config(ConfigKind::Modules), found);
        }
        let is_rebase = path.file_name().is_some_and(|name| name == "rebase-merge");
        if is_rebase && has("git-rebase-todo") {
            self.inspect(tree, path, path.join("git-rebase-todo"), Role::RebaseTodo, found);
        }
        for (named, role) in self.references.files_in(path) {
            self.inspect(tree, path, named, role, found);
        }
        let is_inside = self.tools.covers(path);
        let tools: Vec<PathBuf> = names
            .iter()
            .filter(|(name, _)| {
                (is_inside || self.tools.has_name(name)) && !control_files::is_quarantine_name(name)
            })
            .map(|(name, _)| path.join(name))
            .filter(|path| self.tools.covers(path))
            .collect();
        tools.into_iter().for_each(|tool| self.inspect(tree, path, tool, Role::Tool, found));
    }

    fn inspect_repository(
        &mut self,
        tree: &Tree,
        path: &Path,
        has: impl Fn(&str) -> bool,
        found: &mut impl FnMut(ControlFile),
    ) {
        let role = Role::Config(ConfigKind::Repository);
        for (name, role) in [
            ("config", role),
            ("config.worktree", role),
            ("commondir", Role::Pointer),
            ("hooks", Role::Hooks),
        ] {
            if has(name) {
                self.inspect(tree, path, path.join(name), role, found);
            }
        }
        for (named, role) in self.references.files_of(path) {
            self.inspect(tree, path, named, role, found);
        }
    }

    /// Follows what an accepted configuration includes or runs: it counts as a part of it.
    pub fn follow_references(&mut self, tree: &Tree, config: &Path, bytes: &[u8]) {
        for directory in self.references.add_config(tree, config, bytes) {
            self.push_event_task(ScanTask::Directory(directory));
        }
    }

    /// Reads one control file and watches it from now on. `by`: the directory whose scan finds it.
    fn inspect(
        &mut self,
        tree: &Tree,
        by: &Path,
        path: PathBuf,
        role: Role,
        found: &mut impl FnMut(ControlFile),
    ) {
        if let Ok(place) = tree.open_path(&path)
            && fstat(&place).is_ok_and(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFDIR)
        {
            self.inotify.watch_file(&place, by);
        }
        let (content, changed_at) = tree.content(&path);
        found(ControlFile { path, role, content, changed_at });
    }

    fn exceeds_max_directories(&mut self, directories: usize) -> bool {
        let has_too_many = directories > MAX_DIRECTORIES;
        if has_too_many {
            self.set_shortfall(format!("more than {MAX_DIRECTORIES} directories: the rest is not scanned"));
        }
        has_too_many
    }

    /// Records why some of the workspace is not scanned; the first reason stays.
    pub fn set_shortfall(&mut self, reason: String) {
        self.shortfall.get_or_insert(reason);
    }

    /// Why some of the workspace is not scanned.
    pub fn shortfall(&self) -> Option<&str> {
        self.shortfall.as_deref().or(self.inotify.shortfall.as_deref())
    }
}
