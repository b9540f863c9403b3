//! Finds the control files of a workspace: by a scan of everything, and afterwards where inotify reports a change.
//!
//! Every scanned directory is watched, so that a new repository deep below is found by an event of its own directory.
//! Bounded in directories, files and time. What could not be scanned is reported as a shortfall.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Instant,
};

use nix::errno::Errno;

use super::{
    config_references::ConfigReferences,
    control_files::{self, Cause, ControlFile, Role},
    inotify_events::{AddWatchOutcome, InotifyEventKind, InotifyEvents, InotifyLease},
    links,
    repositories::Repositories,
    scan_queue::{Candidate, ScanQueue, ScanTask, Step},
    tool_paths::ToolPaths,
    tree::{FileContent, Tree},
};

/// The maximum number of directories of a root that are scanned and watched.
pub(super) const MAX_DIRECTORIES: usize = 16_384;
/// The maximum number of unreadable directories that are tried again.
const MAX_UNREADABLE: usize = 1_024;
/// What is said of what is mounted below the root. Commands cannot write there, unless it was mounted later than their sandbox began.
const OTHER_FILE_SYSTEM: &str = "a file system is mounted below the root: it is not scanned";
/// The bytes of control files that one slice of a scan reads before they are judged.
pub(super) const MAX_SLICE_BYTES: usize = 16 << 20;

/// Walks a workspace and keeps watching it.
#[derive(Debug)]
pub(super) struct Scanner {
    pub(super) inotify: InotifyEvents,
    /// The directories of this scan that are not watched, when inotify is not in use.
    scanned_unwatched: usize,
    pub(super) queue: ScanQueue,
    /// Directories that could not be opened and are tried again, and why they were scanned.
    unreadable: BTreeMap<PathBuf, Cause>,
    /// They were tried in this scan, of which this slice is not the first.
    has_retried: bool,
    /// The repositories' own directories.
    pub repositories: BTreeSet<PathBuf>,
    /// Those of them that are named as git names them, and are complete: their objects and names are not scanned.
    git_directories: BTreeSet<PathBuf>,
    /// The files of tools other than git.
    pub tools: ToolPaths,
    /// The files that accepted configurations name.
    pub(super) references: ConfigReferences,
    /// Since when a command runs, where the first scan goes on meanwhile.
    pub(super) since: Option<i64>,
    /// The values of accepted configurations, and where they are for.
    pub(super) known_repositories: Repositories,
    /// The owner's own configuration is read since events were read.
    pub(super) has_own_configuration: bool,
    /// Pointers of work trees whose repository is elsewhere.
    pub(super) foreign_pointers: BTreeSet<PathBuf>,
    /// A value of which nobody knows what it runs.
    pub(super) unknown_value: Option<String>,
    /// Why some of the workspace is not scanned.
    shortfall: Option<String>,
}

impl Scanner {
    /// Begins at the root. Without a share of the host's inotify there are only walks.
    pub(super) fn new(share: Option<InotifyLease>) -> Self {
        Self {
            inotify: InotifyEvents::new(share),
            scanned_unwatched: 0,
            queue: ScanQueue::with_root(),
            unreadable: BTreeMap::new(),
            has_retried: false,
            repositories: BTreeSet::new(),
            git_directories: BTreeSet::new(),
            tools: ToolPaths::default(),
            references: ConfigReferences::default(),
            since: None,
            known_repositories: Repositories::default(),
            has_own_configuration: false,
            foreign_pointers: BTreeSet::new(),
            unknown_value: None,
            shortfall: None,
        }
    }

    /// Whether all tasks are done. Does not ask the kernel for new events.
    pub(super) fn is_complete(&self) -> bool {
        self.queue.is_complete()
    }

    /// Whether nothing can have changed since the last scan. Does not block.
    pub(super) fn is_unchanged(&mut self) -> bool {
        if self.inotify.has_backlog() {
            return false;
        }
        if self.inotify.has_events() {
            self.read_events();
        }
        self.is_complete() && self.unreadable.is_empty() && self.inotify.is_active()
    }

    /// Whether inotify events wait. Does not block.
    pub(super) fn has_events(&self) -> bool {
        self.inotify.has_events()
    }

    /// Starts a scan of everything.
    pub(super) fn rescan(&mut self) {
        self.scanned_unwatched = 0;
        self.queue.rescan();
    }

    /// Starts a scan of everything when inotify is not in use.
    pub(super) fn rescan_without_inotify(&mut self) {
        if !self.inotify.is_active() {
            self.rescan();
        }
    }

    /// Reads these files again in the next scan.
    pub(super) fn recheck(&mut self, changed: impl IntoIterator<Item = (PathBuf, Role)>) {
        for (path, role) in changed {
            let by = path.parent().unwrap_or(Path::new("")).to_owned();
            self.queue.push_file(Candidate { by, path, role, cause: Cause::Walk, is_link: false });
        }
    }

    /// Adds files of tools. A directory that may hold several of them is scanned once.
    pub(super) fn add_tools(&mut self, tools: &[PathBuf]) {
        let directories: BTreeSet<PathBuf> = self.tools.add(tools).into_iter().collect();
        for directory in directories {
            // A scan of this directory that waits already finds these files too.
            if !self.queue.has_directory(&directory) {
                self.queue.push(ScanTask::Directory(directory), Cause::Walk);
            }
        }
    }

    /// Turns the inotify events into directories to scan.
    pub(super) fn read_events(&mut self) {
        self.has_own_configuration = false;
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
        let is_known = self.git_directories.contains(&at) || (in_repository && !links::is_git_place(&at));
        let makes_repository = name == "HEAD" && !is_known;
        if let Some((repository, _)) = self.references.file(&path) {
            let repository = repository.clone();
            self.push_event_task(ScanTask::Directory(repository));
        }
        // A directory that is new in a repository counts by its own content only.
        let is_control = control_files::is_interesting(name) && !(is_directory && in_repository);
        let is_state = control_files::is_state_directory(&self.repositories, &at);
        if is_control || makes_repository || is_state || self.is_hooks(&at) || self.tools.covers(&path) {
            self.push_event_task(ScanTask::Directory(at.clone()));
        }
        if !is_directory {
            self.push_name(path, Cause::Event);
        } else if !self.is_skipped(&at, &path) {
            self.push_event_task(ScanTask::Recursive(path));
        }
    }

    fn push_event_task(&mut self, task: ScanTask) {
        if !self.queue.push_event(task) {
            self.rescan();
        }
    }

    /// A name that may be a link by which tools come to a place that is not scanned.
    fn push_name(&mut self, path: PathBuf, cause: Cause) {
        let is_own = path.file_name().is_none_or(control_files::is_quarantine_name);
        if is_own || (links::is_in_git(&path) && !self.tools.exposed.concerns(&path)) {
            return;
        }
        match (self.queue.push_name(path, cause), cause) {
            (true, _) => {}
            (false, Cause::Event) => self.rescan(),
            (false, Cause::Walk) => self.set_shortfall("too many links: the rest is not scanned".to_owned()),
        }
    }

    pub(super) fn is_hooks(&self, path: &Path) -> bool {
        self.references.has_directory(path)
            || path.file_name().is_some_and(|name| name == "hooks")
                && path.parent().is_some_and(|above| self.repositories.contains(above))
    }

    /// Whether a directory holds what git keeps there and nothing else that a tool comes to: links to it are dangerous.
    fn is_skipped(&self, directory: &Path, path: &Path) -> bool {
        let Some(name) = path.file_name() else { return false };
        if self.git_directories.contains(directory) {
            return name == "refs" || name == "logs";
        }
        directory.file_name().is_some_and(|name| name == "objects")
            && directory.parent().is_some_and(|above| self.git_directories.contains(above))
            && links::is_object_directory(name)
    }

    /// Scans what events were about and then the rest, until a deadline. Each control file goes to `found`.
    /// Reads no new events, so that a flood of changes does not keep it from its end. `since`: when the first command
    /// started that runs alongside the first scan.
    pub(super) fn scan(
        &mut self,
        tree: &Tree,
        since: Option<i64>,
        deadline: Instant,
        found: &mut impl FnMut(ControlFile),
    ) {
        self.since = since;
        if !std::mem::replace(&mut self.has_retried, true) {
            for (path, cause) in std::mem::take(&mut self.unreadable) {
                self.queue.push_next(ScanTask::Recursive(path), cause);
            }
        }
        let mut bytes_read = 0;
        while let Some(step) = self.queue.take_next() {
            match step {
                Step::Read(candidate) => {
                    if let Some(file) = self.read(tree, candidate) {
                        if let FileContent::File { bytes, .. } = &file.content {
                            bytes_read += bytes.len();
                        }
                        found(file);
                    }
                }
                Step::Scan(task, cause) => self.scan_directory(tree, task, cause),
                Step::Name(path, cause) => self.inspect_name(tree, path, cause),
            }
            if bytes_read >= MAX_SLICE_BYTES || Instant::now() >= deadline {
                break;
            }
        }
        if self.queue.is_complete() {
            self.has_retried = false;
        }
    }

    fn scan_directory(&mut self, tree: &Tree, task: ScanTask, cause: Cause) {
        let (path, is_deep) = match &task {
            ScanTask::Recursive(path) => (path.as_path(), true),
            ScanTask::Directory(path) => (path.as_path(), false),
        };
        let directory = match tree.directory(path) {
            Ok(directory) => directory,
            // Gone, a link, or a file.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return,
            // A root of its own, which is scanned as such.
            Err(Errno::EXDEV) if tree.is_another_root(path) => return,
            Err(Errno::EXDEV) => return self.set_shortfall(OTHER_FILE_SYSTEM.to_owned()),
            Err(errno) => return self.retry_later(path, errno, cause),
        };
        // Before it is listed, so that changes in between cause events.
        let is_deep = match self.inotify.watch_directory(&directory, path) {
            AddWatchOutcome::New => is_deep && !self.exceeds_max_directories(self.inotify.directories()),
            AddWatchOutcome::Already => is_deep,
            AddWatchOutcome::No => {
                if self.inotify.is_active() {
                    // Closed to its owner: there are no events.
                    self.retry_later(path, Errno::EACCES, cause);
                }
                self.scanned_unwatched += 1;
                is_deep && !self.exceeds_max_directories(self.scanned_unwatched)
            }
        };
        let names = match Tree::names(directory) {
            Ok(names) => names,
            Err(errno) => return self.retry_later(path, errno, cause),
        };
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if control_files::is_repository(path, has) {
            if !self.repositories.contains(path) && !is_deep {
                // It has become a repository: its parts are scanned as such.
                self.queue.push_next(ScanTask::Recursive(path.to_owned()), cause);
            }
            if self.repositories.insert(path.to_owned()) {
                self.follow_repository(tree, path);
            }
            match has("HEAD") && links::is_git_place(path) {
                true => self.git_directories.insert(path.to_owned()),
                false => self.git_directories.remove(path),
            };
            self.inspect_repository(path, has, cause);
        } else {
            self.repositories.remove(path);
            self.git_directories.remove(path);
        }
        self.inspect_names(path, &names, cause);
        for (name, _) in names.iter().filter(|(_, kind)| kind.may_be_link()) {
            self.push_name(path.join(name), cause);
        }
        if is_deep {
            let below = names.iter().filter(|(_, kind)| kind.may_be_directory());
            for below in below.map(|(name, _)| path.join(name)) {
                if !self.is_skipped(path, &below) {
                    // What an event was about is scanned completely before the rest.
                    self.queue.push(ScanTask::Recursive(below), cause);
                }
            }
        }
    }

    /// What could not be opened is tried again at each scan: a directory that is closed to its owner, a host without
    /// descriptors.
    fn retry_later(&mut self, path: &Path, errno: Errno, cause: Cause) {
        if errno == Errno::ENAMETOOLONG {
            self.set_shortfall("paths of more than 4096 bytes are not scanned".to_owned());
            return;
        }
        if errno != Errno::EACCES {
            self.set_shortfall(format!("a directory cannot be opened: {}", errno.desc()));
        }
        if self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable.insert(path.to_owned(), cause);
        } else {
            self.set_shortfall(format!("more than {MAX_UNREADABLE} directories cannot be opened"));
        }
    }

    fn exceeds_max_directories(&mut self, directories: usize) -> bool {
        let has_too_many = directories > MAX_DIRECTORIES;
        if has_too_many {
            self.set_shortfall(format!("more than {MAX_DIRECTORIES} directories: the rest is not scanned"));
        }
        has_too_many
    }

    /// Records why some of the workspace is not scanned; the first reason stays.
    pub(super) fn set_shortfall(&mut self, reason: String) {
        self.shortfall.get_or_insert(reason);
    }

    /// Why some of the workspace is not scanned.
    pub(super) fn shortfall(&self) -> Option<&str> {
        let shortfall = self.shortfall.as_deref().or(self.inotify.shortfall.as_deref());
        shortfall.or(self.unknown_value.as_deref())
    }
}
