//! What of a workspace an accepted control file stands for: what its configuration names, in every work tree of the
//! repository, and what a link leads to. It is scanned and judged as the file itself is.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};

use super::{
    config_references::NamedBy,
    control_files::{self, Cause, MAX_CONTROL_FILES, Role},
    gitconfig::{self, ConfigKind},
    repositories::{self, EVERY_REPOSITORY, ForeignConfigs},
    scan_queue::ScanTask,
    scanner::Scanner,
    tree::{FileContent, Tree},
};

/// How far an accepted file is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowReferences {
    /// What it names becomes a control place.
    Yes,
    /// What was accepted before becomes one in its new places: those of a new work tree.
    No,
}

impl Scanner {
    /// Follows an accepted control file.
    pub(super) fn follow_accepted(
        &mut self,
        tree: &Tree,
        path: &Path,
        (role, content): (Role, &FileContent),
        follow: FollowReferences,
    ) {
        match (role, content) {
            (Role::Config(ConfigKind::Repository), FileContent::File { bytes, .. }) => {
                self.follow_config(tree, path, bytes, follow);
            }
            (Role::Pointer, FileContent::File { bytes, .. }) => {
                let Some(target) = control_files::pointer_target(bytes, true) else { return };
                if let Some(work_tree) = path.parent().filter(|_| path.ends_with(".git")) {
                    let git = tree.path().join(work_tree).join(OsStr::from_bytes(target));
                    self.follow_git_directory(tree, work_tree, &git, follow);
                }
            }
            (Role::Pointer, FileContent::Link(_)) if path.ends_with(".git") => {
                let work_tree = path.parent().unwrap_or(Path::new(""));
                self.follow_git_directory(tree, work_tree, &tree.path().join(path), follow);
                self.follow_link(tree, path, Role::Hooks);
            }
            (Role::Pointer, FileContent::Link(_)) => self.follow_accepted_link(tree, path),
            (Role::Tool, FileContent::Link(_)) => self.follow_tool_link(tree, path),
            (Role::Hook | Role::Hooks | Role::Config(_) | Role::RebaseTodo, FileContent::Link(_)) => {
                self.follow_link(tree, path, role);
            }
            _ => {}
        }
    }

    /// What an accepted link leads to, and the links on the way, are for the same as the link.
    fn follow_link(&mut self, tree: &Tree, link: &Path, role: Role) {
        let by = link.parent().unwrap_or(Path::new("")).to_owned();
        let config_of: Vec<PathBuf> = match role {
            Role::Config(_) => self.repositories_of(tree, link).into_iter().collect(),
            _ => Vec::new(),
        };
        // A directory of hooks is for hooks.
        let (role, may_be_directory) = match role {
            Role::Hooks if self.is_hooks(link) => (Role::Hook, true),
            role => (role, false),
        };
        let repositories = config_of.into_iter().map(Some).chain([None]);
        for repository in repositories {
            let named = NamedBy { by: by.clone(), role, may_be_directory, repository, shared_name: None };
            let to_scan = self.references.add_link(tree, link, &named);
            self.push_references(to_scan);
        }
    }

    /// A tool's file, or a directory, that is a link: what it leads to counts as if it were there.
    fn follow_tool_link(&mut self, tree: &Tree, link: &Path) {
        let Some(followed) = tree.follow_link(link) else { return };
        for place in followed.links.into_iter().chain([followed.target]).filter(|place| place != link) {
            if link.starts_with(&place) {
                // All of the workspace, or a part of it with the tool's own directory in it.
                self.set_shortfall(
                    "a link of a tool's leads to what it is in: that is not compared".to_owned(),
                );
                continue;
            }
            let above = place.parent().unwrap_or(Path::new("")).to_owned();
            let mut to_scan = self.references.add_ways(&place);
            if self.add_tools_behind(link.to_owned(), place, Cause::Walk) {
                to_scan.push(above);
            }
            self.push_references(to_scan);
        }
    }

    fn follow_config(&mut self, tree: &Tree, config: &Path, bytes: &[u8], follow: FollowReferences) {
        let own = self.repositories_of(tree, config);
        let mut is_new = false;
        if follow == FollowReferences::Yes {
            for entry in gitconfig::dangerous(bytes, ConfigKind::Repository) {
                for repository in &own {
                    if entry.is_include() {
                        let paths =
                            repositories::included_paths(tree, &tree.path().join(config), &entry.value);
                        paths.iter().for_each(|path| self.add_included(tree, path, repository));
                    } else {
                        is_new |= self.known_repositories.add_value(repository, entry.clone());
                    }
                }
            }
        }
        for path in gitconfig::worktree_paths(bytes) {
            for repository in &own {
                let path = repository.join(OsStr::from_bytes(&path));
                let followed = tree.follow(&path).map(|followed| followed.target);
                is_new |= self.known_repositories.add_work_tree(repository, followed.unwrap_or(path));
            }
        }
        if is_new || follow == FollowReferences::Yes {
            match own.contains(Path::new(EVERY_REPOSITORY)) {
                true => self.follow_values_of_all(tree),
                false => own.iter().for_each(|repository| self.follow_values(tree, repository)),
            }
        }
    }

    /// The repositories of which a configuration is a part.
    fn repositories_of(&self, tree: &Tree, config: &Path) -> BTreeSet<PathBuf> {
        let mut found: BTreeSet<PathBuf> = self.references.repositories_of(config).cloned().collect();
        let is_named = config.file_name().is_some_and(|name| name == "config" || name == "config.worktree");
        if is_named || found.is_empty() {
            let directory = tree.path().join(config.parent().unwrap_or(Path::new("")));
            found.insert(repositories::repository_directory(tree, &directory));
        }
        found
    }

    /// A directory of files has its repository there: the values of its configuration are for these files, too.
    fn follow_git_directory(&mut self, tree: &Tree, work_tree: &Path, git: &Path, follow: FollowReferences) {
        let Some(git) = tree.follow(git).map(|followed| followed.target) else { return };
        let common = repositories::repository_directory(tree, &git);
        let mut is_new = self.known_repositories.add_work_tree(&common, tree.path().join(work_tree));
        let is_foreign = tree.below_root(&common).is_none();
        if is_foreign && self.foreign_pointers.len() < MAX_CONTROL_FILES {
            self.foreign_pointers.insert(work_tree.join(".git"));
        }
        if follow == FollowReferences::Yes && is_foreign {
            let foreign = repositories::read_foreign(tree, &git, &common);
            is_new |= self.follow_foreign(tree, foreign, (&common, work_tree));
        }
        if is_new {
            self.follow_values(tree, &common);
        }
    }

    /// What configurations outside of the root name, for a repository. They are watched, and seen by a directory below the root. Returns whether
    /// a value is new.
    fn follow_foreign(
        &mut self,
        tree: &Tree,
        foreign: ForeignConfigs,
        (repository, seen_by): (&Path, &Path),
    ) -> bool {
        for file in &foreign.files {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
            if let Ok(place) = open(file, flags, Mode::empty()) {
                self.inotify.watch_file(&place, seen_by);
            }
        }
        let mut is_new = false;
        for value in foreign.values {
            is_new |= self.known_repositories.add_value(repository, value);
        }
        foreign.included.iter().for_each(|path| self.add_included(tree, path, repository));
        is_new
    }

    /// What the owner's own configuration and the system's name is guarded in every repository. They are read when a scan begins while
    /// no command runs: what a person changes later is followed then.
    pub(super) fn follow_own_configuration(&mut self, tree: &Tree) {
        let every = Path::new(EVERY_REPOSITORY);
        // The root may be a part of a repository's files.
        for above in tree.path().ancestors().skip(1).filter(|above| above.join(".git").exists()) {
            self.known_repositories.add_work_tree(every, above.to_owned());
        }
        let own = repositories::read_for_every_repository(tree);
        if self.follow_foreign(tree, own, (every, Path::new(""))) {
            self.follow_values_of_all(tree);
        }
    }

    fn follow_values_of_all(&mut self, tree: &Tree) {
        for repository in self.known_repositories.directories() {
            self.follow_values(tree, &repository);
        }
    }

    /// A repository is found, whether it has a configuration or not.
    pub(super) fn follow_repository(&mut self, tree: &Tree, directory: &Path) {
        let common = repositories::repository_directory(tree, &tree.path().join(directory));
        if self.known_repositories.add(&common) {
            self.follow_values(tree, &common);
        }
    }

    fn add_included(&mut self, tree: &Tree, path: &Path, repository: &Path) {
        let named = NamedBy {
            by: seen_by(tree, repository, path),
            role: Role::Config(ConfigKind::Repository),
            may_be_directory: false,
            repository: Some(repository.to_owned()),
            shared_name: None,
        };
        let to_scan = self.references.add_path(tree, path, &named);
        self.push_references(to_scan);
    }

    /// What the values of a repository name becomes a control place, in all of its work trees.
    fn follow_values(&mut self, tree: &Tree, repository: &Path) {
        let (paths, unknown) = self.known_repositories.named_paths(tree, repository);
        if let Some(value) = unknown {
            self.unknown_value.get_or_insert_with(|| format!("which files this runs is not known: {value}"));
        }
        for found in paths {
            let named = NamedBy {
                by: seen_by(tree, repository, &found.path),
                role: Role::Hook,
                may_be_directory: found.is_path,
                repository: Some(repository.to_owned()),
                shared_name: found.name,
            };
            let to_scan = self.references.add_path(tree, &found.path, &named);
            self.push_references(to_scan);
        }
        if self.references.is_full() {
            self.set_shortfall(
                "too many files are named by configurations: the rest is not compared".to_owned(),
            );
        }
    }

    fn push_references(&mut self, to_scan: Vec<PathBuf>) {
        for directory in to_scan {
            if !self.queue.is_next(&directory) {
                self.queue.push_next(ScanTask::Directory(directory), Cause::Walk);
            }
        }
    }
}

/// The directory by which a named place is seen: its repository, or where it is.
fn seen_by(tree: &Tree, repository: &Path, path: &Path) -> PathBuf {
    let by = tree.below_root(repository).or_else(|| tree.below_root(path.parent()?));
    by.unwrap_or_default()
}
