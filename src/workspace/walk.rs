//! Finds the control places of a workspace, and hears of new ones by inotify: what has not changed is not read again.
//!
//! Every directory that it walks is watched, so that a new repository deep below is seen by its own directory. Bounded in
//! directories, in files and in time. What it could not look at it says, and does not take for looked at.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::{
        inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
        stat::fstat,
    },
};

use super::{
    budget::Share,
    control::{self, Role, SKIPPED, Sight},
    gitconfig::{self, Flavour},
    tree::{Content, Tree},
};
use crate::sys::pending;

/// The most directories of a root that are looked at and watched.
pub const DIRECTORIES_MAX: usize = 16_384;
/// The most control files of a root that are known.
pub const CONTROL_FILES_MAX: usize = 4_096;
/// What one read of events returns at least, where more than that waits: the reader's buffer is 4 KiB, and an event has at
/// most 272 bytes (inotify(7)).
const READ_BYTES_MIN: usize = 4_096 - 272;
/// Where more than this waits, something has changed: it is for the thread to read.
const QUIET_BYTES_MAX: usize = 4_096;
/// The most directories that are waiting to be readable.
const CLOSED_MAX: usize = 1_024;

/// New names in any directory.
const ANY: Flags = Flags::IN_CREATE.union(Flags::IN_MOVED_TO).union(Flags::IN_ONLYDIR);
/// Changes of a file, by whichever of its names.
const FILE: Flags = Flags::IN_MODIFY.union(Flags::IN_CLOSE_WRITE).union(Flags::IN_ATTRIB);

const WALKS_ONLY: &str = "changes are found by walks only, at each terminal's end";

/// Where to look, and how far.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    /// This directory, and all below it.
    Below(PathBuf),
    /// This directory alone.
    Only(PathBuf),
}

/// Walks a workspace and keeps watching it.
#[derive(Debug)]
pub struct Walk {
    inotify: Option<Inotify>,
    /// Of the host's instances and watches; there is no `inotify` without it.
    share: Option<Share>,
    /// Directories that are watched, and where each was last seen.
    directories: HashMap<WatchDescriptor, PathBuf>,
    /// Files that are watched, and the directories by which each is seen: a file can have many names.
    files: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
    /// Directories looked at in this walk, where none can be watched.
    walked: usize,
    tasks: VecDeque<Task>,
    /// What was heard of: before the rest.
    news: VecDeque<Task>,
    /// Known places that have changed without a word.
    reconsidered: Vec<(PathBuf, Role)>,
    /// Found closed to their owner.
    closed: BTreeSet<PathBuf>,
    /// The repositories' own directories.
    pub repositories: BTreeSet<PathBuf>,
    /// What tools other than git look for, below the root.
    tools: BTreeSet<PathBuf>,
    /// What an accepted configuration names, and by which repository it is seen.
    followed: BTreeMap<PathBuf, (PathBuf, Role)>,
    /// Directories of hooks that an accepted configuration names.
    hook_directories: BTreeSet<PathBuf>,
    /// Why some of it is not looked at.
    pub shortfall: Option<String>,
}

impl Walk {
    /// Begins at the root. Without a share of the host's inotify there are only walks.
    pub fn new(share: Option<Share>) -> Self {
        let made = match share {
            Some(share) => Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
                .map(|inotify| (inotify, share))
                .map_err(|errno| format!("inotify_init: {}", errno.desc())),
            None => Err("the instances of inotify that the gateway takes are in use".to_owned()),
        };
        let shortfall = made.as_ref().err().map(|reason| format!("{WALKS_ONLY}: {reason}"));
        let (inotify, share) = made.ok().unzip();
        Self {
            inotify,
            share,
            directories: HashMap::new(),
            files: HashMap::new(),
            walked: 0,
            tasks: VecDeque::from([Task::Below(PathBuf::new())]),
            news: VecDeque::new(),
            reconsidered: Vec::new(),
            closed: BTreeSet::new(),
            repositories: BTreeSet::new(),
            tools: BTreeSet::new(),
            followed: BTreeMap::new(),
            hook_directories: BTreeSet::new(),
            shortfall,
        }
    }

    /// Whether all that was to be looked at was, as far as is known without asking the kernel.
    pub fn is_done(&self) -> bool {
        self.tasks.is_empty() && self.has_no_news()
    }

    /// Whether nothing was heard of that was not looked at.
    pub fn has_no_news(&self) -> bool {
        self.news.is_empty() && self.reconsidered.is_empty()
    }

    /// Whether nothing can have changed since the last look. Does not block.
    pub fn is_quiet(&mut self) -> bool {
        match self.pending_bytes() {
            0 => {}
            few if few <= QUIET_BYTES_MAX => self.hear(),
            _ => return false,
        }
        self.is_done() && self.closed.is_empty() && self.inotify.is_some()
    }

    /// Looks at everything again.
    pub fn rescan(&mut self) {
        self.walked = 0;
        self.news.clear();
        self.tasks = VecDeque::from([Task::Below(PathBuf::new())]);
    }

    /// Looks at everything again where nothing can be heard of.
    pub fn rescan_if_deaf(&mut self) {
        if self.inotify.is_none() {
            self.rescan();
        }
    }

    /// Known places that have changed.
    pub fn reconsider(&mut self, changed: Vec<(PathBuf, Role)>) {
        self.reconsidered = changed;
    }

    /// A tool's file became known to be one. Each directory that may have some is looked at once for all of them.
    pub fn add_tools(&mut self, tools: &[PathBuf]) {
        let mut directories = BTreeSet::new();
        for tool in tools {
            if !self.tools.contains(tool) {
                directories.insert(tool.parent().unwrap_or(Path::new("")).to_owned());
                self.tools.insert(tool.clone());
            }
        }
        for directory in directories {
            // The first look at everything has not begun, or a look for tools waits there: both see these too.
            let is_waiting =
                |task: &Task| matches!(task, Task::Below(path) | Task::Only(path) if *path == directory);
            if !self.tasks.iter().any(is_waiting) {
                self.tasks.push_back(Task::Only(directory));
            }
        }
    }

    /// Takes what the kernel has noticed, as directories to look at.
    pub fn hear(&mut self) {
        if self.inotify.is_none() {
            return;
        }
        // What comes while this is read is for the next time: a flood keeps nobody here.
        for _ in 0..=self.pending_bytes() / READ_BYTES_MIN {
            match self.inotify.as_ref().map(Inotify::read_events) {
                Some(Ok(events)) => events.iter().for_each(|event| self.hear_one(event)),
                Some(Err(Errno::EINTR)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn pending_bytes(&self) -> usize {
        // It cannot fail for an inotify instance. If it did, nobody could say that nothing has changed.
        self.inotify.as_ref().map_or(0, |inotify| pending::bytes(inotify).unwrap_or(QUIET_BYTES_MAX + 1))
    }

    fn hear_one(&mut self, event: &InotifyEvent) {
        if event.mask.contains(Flags::IN_Q_OVERFLOW) {
            self.rescan();
        } else if event.mask.contains(Flags::IN_IGNORED) {
            let is_known =
                self.directories.remove(&event.wd).is_some() | self.files.remove(&event.wd).is_some();
            if let (true, Some(share)) = (is_known, &mut self.share) {
                share.give_watch_back();
            }
        } else if let Some(seen_by) = self.files.get(&event.wd) {
            seen_by.clone().into_iter().for_each(|path| self.push(Task::Only(path)));
        } else if let (Some(at), Some(name)) = (self.directories.get(&event.wd).cloned(), &event.name) {
            let path = at.join(name);
            let in_repository = self.repositories.contains(&at);
            let is_directory = event.mask.contains(Flags::IN_ISDIR);
            let makes_repository = name == "HEAD" && !in_repository;
            if let Some((repository, _)) = self.followed.get(&path) {
                self.push(Task::Only(repository.clone()));
            }
            // Of a directory that is new in a repository only its own content counts.
            let is_control = control::is_interesting(name) && !(is_directory && in_repository);
            if is_control || makes_repository || self.is_hooks(&at) || self.tools.contains(&path) {
                self.push(Task::Only(at.clone()));
            }
            if is_directory && !self.is_skipped(&at, &path) {
                self.push(Task::Below(path));
            }
        }
    }

    fn push(&mut self, task: Task) {
        if self.news.len() > DIRECTORIES_MAX {
            self.rescan();
        } else if !self.news.iter().rev().take(8).any(|waiting| *waiting == task) {
            // A burst is about few places, and only those at the end are compared.
            self.news.push_back(task);
        }
    }

    fn is_hooks(&self, path: &Path) -> bool {
        self.hook_directories.contains(path)
            || path.file_name().is_some_and(|name| name == "hooks")
                && path.parent().is_some_and(|above| self.repositories.contains(above))
    }

    fn is_skipped(&self, directory: &Path, path: &Path) -> bool {
        self.repositories.contains(directory)
            && path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped))
    }

    /// Looks at what was heard of and then at the rest, until a moment. Each control place that is found goes to `found`.
    /// Hears of nothing new, so that a flood of changes does not keep it from its end.
    pub fn look(&mut self, tree: &Tree, until: Instant, found: &mut impl FnMut(Sight)) {
        for path in std::mem::take(&mut self.closed) {
            self.news.push_back(Task::Below(path));
        }
        for (path, role) in std::mem::take(&mut self.reconsidered) {
            let by = path.parent().unwrap_or(Path::new("")).to_owned();
            self.see(tree, &by, path, role, found);
        }
        loop {
            let is_news = !self.news.is_empty();
            let queue = if is_news { &mut self.news } else { &mut self.tasks };
            let Some(task) = queue.pop_front() else { return };
            let (path, is_deep) = match task {
                Task::Below(path) => (path, true),
                Task::Only(path) => (path, false),
            };
            self.look_at(tree, &path, is_deep, is_news, &mut |mut sight| {
                if is_news {
                    // It was heard of, whatever its time says: what was moved keeps the times of what is in it.
                    sight.changed_at = i64::MAX;
                }
                found(sight);
            });
            if Instant::now() >= until {
                return;
            }
        }
    }

    fn look_at(
        &mut self,
        tree: &Tree,
        path: &Path,
        is_deep: bool,
        is_news: bool,
        found: &mut impl FnMut(Sight),
    ) {
        let directory = match tree.directory(path) {
            Ok(directory) => directory,
            Err(Errno::EACCES) => {
                if self.closed.len() < CLOSED_MAX {
                    self.closed.insert(path.to_owned());
                } else {
                    self.fall_short(format!("more than {CLOSED_MAX} directories are closed to their owner"));
                }
                return;
            }
            // Gone, a link, a file, or another file system.
            Err(_) => return,
        };
        // Before it is listed: what comes between is heard of.
        let by_descriptor = Tree::by_descriptor(&directory);
        let is_deep = match self.watch(&by_descriptor, ANY) {
            Some(descriptor) => {
                let is_new = self.directories.insert(descriptor, path.to_owned()).is_none();
                is_deep && !(is_new && self.has_too_many(self.directories.len()))
            }
            None => {
                self.walked += 1;
                is_deep && !self.has_too_many(self.walked)
            }
        };
        let (tools, absent): (Vec<PathBuf>, Vec<PathBuf>) = self
            .tools
            .iter()
            .filter(|tool| tool.parent() == Some(path))
            .cloned()
            .partition(|tool| !tool.file_name().is_some_and(|name| Tree::has_not(&directory, name)));
        let Ok(names) = Tree::names(directory) else { return };
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if control::is_repository(path, has) {
            if !self.repositories.contains(path) && !is_deep {
                // Only now known to be one: its parts are looked at as such.
                self.push(Task::Below(path.to_owned()));
            }
            self.repositories.insert(path.to_owned());
            self.see_repository(tree, path, has, found);
        } else {
            self.repositories.remove(path);
        }
        if self.is_hooks(path) {
            for (name, _) in names.iter().filter(|(name, _)| control::is_hook(name)) {
                self.see(tree, path, path.join(name), Role::Hook, found);
            }
        }
        if has(".git") {
            self.see(tree, path, path.join(".git"), Role::Pointer, found);
        }
        if has(".gitmodules") {
            self.see(tree, path, path.join(".gitmodules"), Role::Config(Flavour::Modules), found);
        }
        for path in absent {
            found(Sight { path, role: Role::Tool, content: Content::Absent, changed_at: 0 });
        }
        tools.into_iter().for_each(|tool| self.see(tree, path, tool, Role::Tool, found));
        if is_deep {
            let below =
                names.iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| path.join(name));
            let below: Vec<PathBuf> = below.filter(|below| !self.is_skipped(path, below)).collect();
            // What was heard of is looked at whole before the rest.
            let queue = if is_news { &mut self.news } else { &mut self.tasks };
            queue.extend(below.into_iter().map(Task::Below));
        }
    }

    fn see_repository(
        &mut self,
        tree: &Tree,
        path: &Path,
        has: impl Fn(&str) -> bool,
        found: &mut impl FnMut(Sight),
    ) {
        let role = Role::Config(Flavour::Repository);
        for (name, role) in [
            ("config", role),
            ("config.worktree", role),
            ("commondir", Role::Pointer),
            ("hooks", Role::Hooks),
        ] {
            if has(name) {
                self.see(tree, path, path.join(name), role, found);
            }
        }
        let followed = self.followed.iter().filter(|(_, (repository, _))| repository == path);
        let followed: Vec<_> = followed.map(|(path, (_, role))| (path.clone(), *role)).collect();
        followed.into_iter().for_each(|(named, role)| self.see(tree, path, named, role, found));
    }

    /// What an accepted configuration takes in or runs is as good as a part of it.
    pub fn follow(&mut self, tree: &Tree, config: &Path, bytes: &[u8]) {
        let repository = config.parent().unwrap_or(Path::new("")).to_owned();
        let worktree = match repository.file_name().is_some_and(|name| name == ".git") {
            true => repository.parent().unwrap_or(Path::new("")).to_owned(),
            false => repository.clone(),
        };
        for entry in gitconfig::dangerous(bytes, Flavour::Repository) {
            let (from, role) = match entry.name().starts_with("include") {
                true => (&repository, Role::Config(Flavour::Repository)),
                false => (&worktree, Role::Hook),
            };
            let word = entry.value.trim_start_matches('!').split_whitespace().next().unwrap_or_default();
            let Some(named) = control::beneath(tree, from, Path::new(word)) else { continue };
            match tree.content(&named).0 {
                Content::Directory if role == Role::Hook && self.hook_directories.insert(named.clone()) => {
                    self.push(Task::Only(named));
                }
                Content::File { .. }
                    if self.followed.len() < CONTROL_FILES_MAX
                        && self.followed.insert(named, (repository.clone(), role)).is_none() =>
                {
                    self.push(Task::Only(repository.clone()));
                }
                _ => {}
            }
        }
    }

    /// One control place, watched from now on by itself. `by`: the directory whose look sees it.
    fn see(&mut self, tree: &Tree, by: &Path, path: PathBuf, role: Role, found: &mut impl FnMut(Sight)) {
        if role != Role::Tool
            && let Ok(place) = tree.place(&path)
            && fstat(&place).is_ok_and(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFDIR)
            && let Some(descriptor) = self.watch(&Tree::by_descriptor(&place), FILE)
        {
            self.files.entry(descriptor).or_default().insert(by.to_owned());
        }
        let (content, changed_at) = tree.content(&path);
        found(Sight { path, role, content, changed_at });
    }

    fn watch(&mut self, place: &Path, what: Flags) -> Option<WatchDescriptor> {
        match self.inotify.as_ref()?.add_watch(place, what) {
            Ok(descriptor) => {
                let is_new =
                    !self.directories.contains_key(&descriptor) && !self.files.contains_key(&descriptor);
                if is_new && !self.share.as_mut().is_some_and(Share::take_watch) {
                    self.go_deaf("the watches of inotify that the gateway takes are in use");
                    return None;
                }
                Some(descriptor)
            }
            // It has gone, or is closed: then its directory is heard of, or it waits to be opened.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => None,
            Err(errno) => {
                self.go_deaf(&format!("inotify: {}", errno.desc()));
                None
            }
        }
    }

    fn go_deaf(&mut self, reason: &str) {
        (self.inotify, self.share) = (None, None);
        self.directories.clear();
        self.files.clear();
        self.fall_short(format!("{WALKS_ONLY}: {reason}"));
    }

    fn has_too_many(&mut self, directories: usize) -> bool {
        let has_too_many = directories > DIRECTORIES_MAX;
        if has_too_many {
            self.fall_short(format!("more than {DIRECTORIES_MAX} directories: the rest is not looked at"));
        }
        has_too_many
    }

    /// Says why some of it is not looked at; the first reason stays.
    pub fn fall_short(&mut self, reason: String) {
        self.shortfall.get_or_insert(reason);
    }
}
