//! The files that an accepted configuration includes or runs, and what accepted links stand for: they count as a part of it,
//! whether they exist yet or not.
//!
//! Every path is followed as the kernel does: the links on the way, and the place that it leads to, count as well. A
//! directory on the way must not become a link. Only places below the root are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use super::{
    control_files::{MAX_CONTROL_FILES, Role},
    links,
    tree::{FileContent, Tree},
};

/// What a place is named by.
#[derive(Debug, Clone)]
pub(super) struct NamedBy {
    /// The directory by which it is seen, below the root: the repository.
    pub by: PathBuf,
    /// What is there is for this.
    pub role: Role,
    /// It may be a directory of hooks.
    pub may_be_directory: bool,
    /// The repository, as an absolute path. A configuration is a part of it.
    pub repository: Option<PathBuf>,
    /// What its configuration calls the place in every work tree.
    pub shared_name: Option<PathBuf>,
}

/// Files and directories that configurations and links name.
#[derive(Debug, Default)]
pub(super) struct ConfigReferences {
    /// By which directory each is seen.
    files: BTreeMap<PathBuf, (PathBuf, Role)>,
    /// Directories of hooks.
    directories: BTreeSet<PathBuf>,
    /// Which repositories an included configuration, or one that a link leads to, is a part of: absolute.
    config_of: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// The places that work trees of a repository have by the same name, and the other way.
    shared: BTreeMap<(PathBuf, PathBuf), BTreeSet<PathBuf>>,
    shared_names: BTreeMap<PathBuf, (PathBuf, PathBuf)>,
}

impl ConfigReferences {
    /// The directory by which a file is seen.
    pub(super) fn file(&self, path: &Path) -> Option<&(PathBuf, Role)> {
        self.files.get(path)
    }

    /// Whether hooks are in this directory.
    pub(super) fn has_directory(&self, path: &Path) -> bool {
        self.directories.contains(path)
    }

    /// The files that are named by a repository.
    pub(super) fn files_of(&self, repository: &Path) -> Vec<(PathBuf, Role)> {
        let own = self.files.iter().filter(|(_, (by, _))| by == repository);
        own.map(|(path, (_, role))| (path.clone(), *role)).collect()
    }

    /// The files that are in a directory: it may have come with them in it.
    pub(super) fn files_in(&self, directory: &Path) -> Vec<(PathBuf, Role)> {
        let in_it = self.files.iter().filter(|(path, _)| path.parent() == Some(directory));
        in_it.map(|(path, (_, role))| (path.clone(), *role)).collect()
    }

    /// The repositories of which a configuration is a part, as absolute paths, except by where it is.
    pub(super) fn repositories_of(&self, config: &Path) -> impl Iterator<Item = &PathBuf> {
        self.config_of.get(config).into_iter().flatten()
    }

    /// The places where other work trees of the repository have the file that is at this place, or in this directory.
    pub(super) fn counterparts(&self, path: &Path) -> Vec<PathBuf> {
        let at_name = |at: &Path, below: Option<&std::ffi::OsStr>| {
            let name = self.shared_names.get(at)?;
            let places = self.shared.get(name)?.iter().filter(|place| *place != at);
            let join = |place: &PathBuf| below.map_or_else(|| place.clone(), |below| place.join(below));
            Some(places.map(join).collect::<Vec<_>>())
        };
        let of_file = at_name(path, None);
        let of_directory = || at_name(path.parent()?, path.file_name());
        of_file.or_else(of_directory).unwrap_or_default()
    }

    /// Adds what an absolute path leads to. Returns the directories to scan.
    pub(super) fn add_path(&mut self, tree: &Tree, path: &Path, named: &NamedBy) -> Vec<PathBuf> {
        let Some(followed) = tree.follow(path) else { return Vec::new() };
        let mut places: BTreeSet<PathBuf> = followed.links.into_iter().chain([followed.target]).collect();
        if !path.components().any(|part| part == Component::ParentDir) {
            places.insert(path.to_owned());
        }
        let mut to_scan = self.add_places(tree, places, named);
        // What a path goes down to before it goes up again decides where it leads, too.
        let mut way = PathBuf::new();
        for part in path.components() {
            if part != Component::ParentDir {
                way.push(part);
                continue;
            }
            if let Some(way) = tree.below_root(&way) {
                self.add_way(&way, &mut to_scan);
                to_scan.extend(self.add_ways(&way));
            }
            way = tree.follow(&way).map_or(way, |followed| followed.target);
            way.pop();
        }
        to_scan
    }

    /// Adds what a link leads to, and the links on the way. Returns the directories to scan.
    pub(super) fn add_link(&mut self, tree: &Tree, link: &Path, named: &NamedBy) -> Vec<PathBuf> {
        let link = tree.path().join(link);
        let Some(followed) = tree.follow(&link) else { return Vec::new() };
        let places = followed.links.into_iter().chain([followed.target]);
        self.add_places(tree, places.filter(|place| *place != link), named)
    }

    fn add_places(
        &mut self,
        tree: &Tree,
        places: impl IntoIterator<Item = PathBuf>,
        named: &NamedBy,
    ) -> Vec<PathBuf> {
        let mut to_scan = Vec::new();
        for place in places.into_iter().filter_map(|place| tree.below_root(&place)) {
            if !place.as_os_str().is_empty() {
                to_scan.extend(self.add_ways(&place));
                self.add(tree, place, named, &mut to_scan);
            }
        }
        to_scan
    }

    fn add(&mut self, tree: &Tree, place: PathBuf, named: &NamedBy, to_scan: &mut Vec<PathBuf>) {
        if self.is_full() {
            return;
        }
        match (&named.repository, &named.shared_name) {
            (Some(repository), Some(name)) => {
                let shared = (repository.clone(), name.clone());
                self.shared.entry(shared.clone()).or_default().insert(place.clone());
                self.shared_names.insert(place.clone(), shared);
            }
            (Some(repository), None) if matches!(named.role, Role::Config(_)) => {
                self.config_of.entry(place.clone()).or_default().insert(repository.clone());
            }
            _ => {}
        }
        // What is not there yet, and what a link leads to, may become either.
        if named.may_be_directory
            && self.directories.insert(place.clone())
            && tree.content(&place).0 == FileContent::Directory
        {
            to_scan.push(place.clone());
        }
        self.add_file(place, named.by.clone(), named.role, to_scan);
    }

    /// Adds the directories on the way to a place: a link in the place of one leads elsewhere. Returns the directories to scan.
    pub(super) fn add_ways(&mut self, place: &Path) -> Vec<PathBuf> {
        let mut to_scan = Vec::new();
        place.ancestors().skip(1).for_each(|way| self.add_way(way, &mut to_scan));
        to_scan
    }

    fn add_way(&mut self, way: &Path, to_scan: &mut Vec<PathBuf>) {
        let is_plain = !way.as_os_str().is_empty() && !links::is_in_git(way);
        if is_plain && !self.is_full() && !self.files.contains_key(way) {
            let by = way.parent().unwrap_or(Path::new("")).to_owned();
            self.add_file(way.to_owned(), by, Role::Hooks, to_scan);
        }
    }

    /// What a file is for counts more than that it is on the way to another one.
    fn add_file(&mut self, place: PathBuf, by: PathBuf, role: Role, to_scan: &mut Vec<PathBuf>) {
        if self.files.get(&place).is_none_or(|(_, old)| *old == Role::Hooks && role != Role::Hooks) {
            to_scan.extend(place.parent().map(Path::to_owned));
            to_scan.push(by.clone());
            self.files.insert(place, (by, role));
        }
    }

    /// Whether no more can be added.
    pub(super) fn is_full(&self) -> bool {
        self.files.len() >= MAX_CONTROL_FILES || self.directories.len() >= MAX_CONTROL_FILES
    }
}
