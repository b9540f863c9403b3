//! What of a scanned directory is a control file: by its name, by the repository that it is in, or because it is a link.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use nix::sys::stat::fstat;

use super::{
    control_files::{self, Cause, ControlFile, Role},
    git_state::STATE_DIRECTORIES,
    gitconfig::ConfigKind,
    links::{self, FollowedPath},
    path_age::{PathAge, path_age},
    scan_queue::{Candidate, ScanTask},
    scanner::Scanner,
    tree::{EntryKind, FileContent, Tree},
};

/// The names in a directory.
type Names = [(OsString, EntryKind)];

impl Scanner {
    /// The control files among the names of a directory, except a repository's own.
    pub(super) fn inspect_names(&mut self, path: &Path, names: &Names, cause: Cause) {
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if self.is_hooks(path) {
            for (name, _) in names.iter().filter(|(name, _)| control_files::is_hook(name)) {
                self.inspect(path, path.join(name), Role::Hook, cause);
            }
        }
        if has(".git") {
            self.inspect(path, path.join(".git"), Role::Pointer, cause);
        }
        if has(".gitmodules") {
            self.inspect(path, path.join(".gitmodules"), Role::Config(ConfigKind::Modules), cause);
        }
        for (name, _) in names {
            if let Some(role) = control_files::state_role(&self.repositories, path, name) {
                self.inspect(path, path.join(name), role, cause);
            }
        }
        for (named, role) in self.references.files_in(path) {
            self.inspect(path, named, role, cause);
        }
        let is_inside = self.tools.covers(path);
        for (name, _) in names {
            if (is_inside || self.tools.has_name(name)) && !control_files::is_quarantine_name(name) {
                let tool = path.join(name);
                if self.tools.covers(&tool) {
                    self.inspect(path, tool, Role::Tool, cause);
                }
            }
        }
    }

    pub(super) fn inspect_repository(&mut self, path: &Path, has: impl Fn(&str) -> bool, cause: Cause) {
        let role = Role::Config(ConfigKind::Repository);
        for (name, role) in [
            ("config", role),
            ("config.worktree", role),
            ("commondir", Role::Pointer),
            ("hooks", Role::Hooks),
        ] {
            if has(name) {
                self.inspect(path, path.join(name), role, cause);
            }
        }
        for directory in STATE_DIRECTORIES.into_iter().filter(|directory| has(directory)) {
            self.inspect(path, path.join(directory), Role::Hooks, cause);
        }
        for (named, role) in self.references.files_of(path) {
            self.inspect(path, named, role, cause);
        }
    }

    /// A name that may be a link: one in place of a directory that a tool's file is in, or one that leads to a place
    /// that is not scanned, is a control file. Where it leads to what package managers fill, that is judged as well.
    pub(super) fn inspect_name(&mut self, tree: &Tree, path: PathBuf, cause: Cause) {
        if tree.read_link(&path).is_none() {
            return;
        }
        let followed = tree.follow_link(&path);
        let cause = self.cause_of_link(tree, &path, followed.as_ref(), cause);
        let is_hidden = match &followed {
            Some(followed) => links::is_hidden(&followed.target),
            None => self.leads_to_unscanned_elsewhere(tree, &path),
        };
        if is_hidden || self.tools.is_on_the_way(&path) {
            if is_hidden || !tree.leads_to_file(&path) {
                let by = path.parent().unwrap_or(Path::new("")).to_owned();
                self.queue.push_file(Candidate { by, path, role: Role::Pointer, cause, is_link: true });
            } else if let Some(followed) = followed {
                // No tool finds anything in a file. What comes in its place is judged.
                self.add_tools_behind(path, followed.target, cause);
            }
            return;
        }
        let Some(followed) = followed else { return };
        let is_outside = !links::is_in_store(&path) || self.tools.exposed.concerns(&path);
        for place in followed.links.into_iter().filter(|link| *link != path).chain([followed.target]) {
            if links::is_in_git(&place) {
                self.expose(links::git_entry(&place), cause);
            } else if is_outside && links::is_in_store(&place) {
                self.expose(place, cause);
            }
        }
    }

    /// Why what is behind a link is scanned: its own times say nothing of a link that is new.
    fn cause_of_link(
        &self,
        tree: &Tree,
        path: &Path,
        followed: Option<&FollowedPath>,
        cause: Cause,
    ) -> Cause {
        let Some(since) = self.since else { return cause };
        let is_new = |link: &Path| {
            tree.content(link).1 >= since || path_age(tree, &self.repositories, link, since) == PathAge::New
        };
        let others = followed.into_iter().flat_map(|followed| &followed.links);
        match std::iter::once(path).chain(others.map(PathBuf::as_path)).any(is_new) {
            true => Cause::Event,
            false => cause,
        }
    }

    /// Whether a link leads out of the root, to a place where its files are not judged: a part of a repository that is not
    /// scanned, or a store of another root.
    fn leads_to_unscanned_elsewhere(&self, tree: &Tree, link: &Path) -> bool {
        let Some(followed) = tree.follow(&tree.path().join(link)) else { return false };
        let is_outside = !links::is_in_store(link) || self.tools.exposed.concerns(link);
        let is_in_other_store = || {
            tree.below_another_root(&followed.target).is_some_and(|below| links::is_in_store(&below))
                && !tree.leads_to_file(link)
        };
        links::is_hidden(&followed.target) || (is_outside && is_in_other_store())
    }

    /// A link leads to a place in a store or in a `.git`: what is below it is scanned as if it were elsewhere.
    fn expose(&mut self, place: PathBuf, cause: Cause) {
        if self.tools.exposed.add(place.clone()) {
            self.queue.push(ScanTask::Recursive(place), cause);
        } else if self.tools.exposed.is_full() {
            self.set_shortfall("too many links to packages: the rest is not followed".to_owned());
        }
    }

    /// An accepted link in place of a directory of a tool's: what is behind it counts as if it were there.
    pub(super) fn follow_accepted_link(&mut self, tree: &Tree, link: &Path) {
        if self.tools.is_on_the_way(link)
            && let Some(followed) = tree.follow_link(link)
        {
            self.add_tools_behind(link.to_owned(), followed.target, Cause::Walk);
        }
    }

    /// What is behind a link counts as if it were there. Returns whether it did not before.
    pub(super) fn add_tools_behind(&mut self, link: PathBuf, target: PathBuf, cause: Cause) -> bool {
        let added = self.tools.add_link(link, target.clone());
        match added {
            Ok(true) => self.queue.push(ScanTask::Recursive(target), cause),
            Ok(false) => {}
            Err(ref reason) => self.set_shortfall(reason.clone()),
        }
        added == Ok(true)
    }

    /// A control file is found. `by`: the directory whose scan finds it.
    fn inspect(&mut self, by: &Path, path: PathBuf, role: Role, cause: Cause) {
        self.queue.push_file(Candidate { by: by.to_owned(), path, role, cause, is_link: false });
    }

    /// Reads one control file and watches it from now on. `None`: it is no link any more, and was one.
    pub(super) fn read(&mut self, tree: &Tree, candidate: Candidate) -> Option<ControlFile> {
        let Candidate { by, path, role, cause, is_link } = candidate;
        if let Ok(place) = tree.open_path(&path)
            && fstat(&place).is_ok_and(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFDIR)
        {
            self.inotify.watch_file(&place, &by);
        }
        let (content, changed_at) = tree.content(&path);
        if is_link && !matches!(content, FileContent::Link(_)) {
            return None;
        }
        Some(ControlFile { path, role, content, changed_at, cause })
    }
}
