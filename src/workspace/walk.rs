//! Finds the control places of a workspace: by walking it once, and afterwards where the kernel has noticed something.
//!
//! Every directory that it walks is watched, so that a new repository deep below is seen by its own directory. Bounded in
//! directories, in files and in time. What it could not look at it says, and does not take for looked at.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::{errno::Errno, sys::stat::fstat};

use super::{
    budget::Share,
    control::{self, Role, SKIPPED, Sight},
    follow::Follows,
    gitconfig::Flavour,
    notice::{Notice, Noticed, Watched},
    tools::Tools,
    tree::Tree,
};

/// The most directories of a root that are looked at and watched.
pub const DIRECTORIES_MAX: usize = 16_384;
/// The most control files of a root that are known.
pub const CONTROL_FILES_MAX: usize = 4_096;
/// The most directories that are waiting to be readable.
const CLOSED_MAX: usize = 1_024;

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
    notice: Notice,
    /// Directories looked at in this walk, where none can be watched.
    walked: usize,
    tasks: VecDeque<Task>,
    /// What was heard of: before the rest.
    news: VecDeque<Task>,
    /// Known places that have changed without a word.
    reconsidered: Vec<(PathBuf, Role)>,
    /// Could not be opened, and are tried again.
    closed: BTreeSet<PathBuf>,
    /// The repositories' own directories.
    pub repositories: BTreeSet<PathBuf>,
    /// What tools other than git look for.
    pub tools: Tools,
    /// What accepted configurations name.
    follows: Follows,
    /// Why some of it is not looked at.
    shortfall: Option<String>,
}

impl Walk {
    /// Begins at the root. Without a share of the host's inotify there are only walks.
    pub fn new(share: Option<Share>) -> Self {
        Self {
            notice: Notice::new(share),
            walked: 0,
            tasks: VecDeque::from([Task::Below(PathBuf::new())]),
            news: VecDeque::new(),
            reconsidered: Vec::new(),
            closed: BTreeSet::new(),
            repositories: BTreeSet::new(),
            tools: Tools::default(),
            follows: Follows::default(),
            shortfall: None,
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
        if self.notice.has_much() {
            return false;
        }
        if self.notice.has_any() {
            self.hear();
        }
        self.is_done() && self.closed.is_empty() && self.notice.is_on()
    }

    /// Whether the kernel has noticed anything since it was last asked. Does not block.
    pub fn has_word(&self) -> bool {
        self.notice.has_any()
    }

    /// Looks at everything again.
    pub fn rescan(&mut self) {
        self.walked = 0;
        self.news.clear();
        self.tasks = VecDeque::from([Task::Below(PathBuf::new())]);
    }

    /// Looks at everything again where nothing can be heard of.
    pub fn rescan_if_deaf(&mut self) {
        if !self.notice.is_on() {
            self.rescan();
        }
    }

    /// Known places that have changed.
    pub fn reconsider(&mut self, changed: impl IntoIterator<Item = (PathBuf, Role)>) {
        self.reconsidered.extend(changed);
    }

    /// These are tools' files, too. Each directory that may have some is looked at once for all of them.
    pub fn add_tools(&mut self, tools: &[PathBuf]) {
        let directories: BTreeSet<PathBuf> = self.tools.add(tools).into_iter().collect();
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
        let mut noticed = Vec::new();
        self.notice.read(|one| noticed.push(one));
        noticed.into_iter().for_each(|one| self.hear_one(one));
    }

    fn hear_one(&mut self, noticed: Noticed) {
        match noticed {
            Noticed::Overflow => self.rescan(),
            Noticed::File(seen_by) => seen_by.into_iter().for_each(|path| self.push(Task::Only(path))),
            Noticed::Name { at, name, is_directory } => self.hear_name(at, &name, is_directory),
        }
    }

    fn hear_name(&mut self, at: PathBuf, name: &OsStr, is_directory: bool) {
        let path = at.join(name);
        let in_repository = self.repositories.contains(&at);
        let makes_repository = name == "HEAD" && !in_repository;
        if let Some((repository, _)) = self.follows.file(&path) {
            let repository = repository.clone();
            self.push(Task::Only(repository));
        }
        // Of a directory that is new in a repository only its own content counts.
        let is_control = control::is_interesting(name) && !(is_directory && in_repository);
        if is_control || makes_repository || self.is_hooks(&at) || self.tools.covers(&path) {
            self.push(Task::Only(at.clone()));
        }
        if is_directory && !self.is_skipped(&at, &path) {
            self.push(Task::Below(path));
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
        self.follows.has_directory(path)
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
            // Gone, a link, a file, or another file system.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => return,
            Err(errno) => return self.put_off(path, errno),
        };
        // Before it is listed: what comes between is heard of.
        let is_deep = match self.notice.watch_directory(&directory, path) {
            Watched::New => is_deep && !self.has_too_many(self.notice.directories()),
            Watched::Already => is_deep,
            Watched::No => {
                if self.notice.is_on() {
                    // Closed to its owner: nothing of it is noticed.
                    self.put_off(path, Errno::EACCES);
                }
                self.walked += 1;
                is_deep && !self.has_too_many(self.walked)
            }
        };
        let names = match Tree::names(directory) {
            Ok(names) => names,
            Err(errno) => return self.put_off(path, errno),
        };
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
        self.see_names(tree, path, &names, found);
        if is_deep {
            let below =
                names.iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| path.join(name));
            let below: Vec<PathBuf> = below.filter(|below| !self.is_skipped(path, below)).collect();
            // What was heard of is looked at whole before the rest.
            let queue = if is_news { &mut self.news } else { &mut self.tasks };
            queue.extend(below.into_iter().map(Task::Below));
        }
    }

    /// What could not be opened is tried again at each look: a directory that is closed to its owner, a host without
    /// descriptors.
    fn put_off(&mut self, path: &Path, errno: Errno) {
        if errno == Errno::ENAMETOOLONG {
            self.fall_short("paths of more than 4096 bytes are not looked at".to_owned());
            return;
        }
        if errno != Errno::EACCES {
            self.fall_short(format!("a directory cannot be opened: {}", errno.desc()));
        }
        if self.closed.len() < CLOSED_MAX {
            self.closed.insert(path.to_owned());
        } else {
            self.fall_short(format!("more than {CLOSED_MAX} directories cannot be opened"));
        }
    }

    /// The control places among the names of a directory, but for a repository's own.
    fn see_names(
        &mut self,
        tree: &Tree,
        path: &Path,
        names: &[(OsString, bool)],
        found: &mut impl FnMut(Sight),
    ) {
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
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
        let is_rebase = path.file_name().is_some_and(|name| name == "rebase-merge");
        if is_rebase && has("git-rebase-todo") {
            self.see(tree, path, path.join("git-rebase-todo"), Role::Todo, found);
        }
        for (named, role) in self.follows.files_in(path) {
            self.see(tree, path, named, role, found);
        }
        let is_inside = self.tools.covers(path);
        let tools: Vec<PathBuf> = names
            .iter()
            .filter(|(name, _)| (is_inside || self.tools.has_name(name)) && !control::is_aside(name))
            .map(|(name, _)| path.join(name))
            .filter(|path| self.tools.covers(path))
            .collect();
        tools.into_iter().for_each(|tool| self.see(tree, path, tool, Role::Tool, found));
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
        for (named, role) in self.follows.files_of(path) {
            self.see(tree, path, named, role, found);
        }
    }

    /// What an accepted configuration takes in or runs is as good as a part of it.
    pub fn follow(&mut self, tree: &Tree, config: &Path, bytes: &[u8]) {
        for directory in self.follows.take_in(tree, config, bytes) {
            self.push(Task::Only(directory));
        }
    }

    /// One control place, watched from now on by itself. `by`: the directory whose look sees it.
    fn see(&mut self, tree: &Tree, by: &Path, path: PathBuf, role: Role, found: &mut impl FnMut(Sight)) {
        if let Ok(place) = tree.place(&path)
            && fstat(&place).is_ok_and(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFDIR)
        {
            self.notice.watch_file(&place, by);
        }
        let (content, changed_at) = tree.content(&path);
        found(Sight { path, role, content, changed_at });
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

    /// Why some of it is not looked at.
    pub fn shortfall(&self) -> Option<&str> {
        self.shortfall.as_deref().or(self.notice.shortfall.as_deref())
    }
}
