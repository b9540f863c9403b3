//! The repositories of a workspace: the values of their accepted configurations that name files, and their work trees, in
//! each of which a relative value names another file.
//!
//! A repository may be elsewhere: the root is then one of its work trees, and its configuration is read where it is. Paths
//! are absolute.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User, geteuid};

use super::{
    command_files::CommandFiles,
    config_rules::ConfigKind,
    control_files::{self, MAX_CONTROL_FILES},
    gitconfig::{self, ConfigEntry},
    tree::{MAX_CONTROL_FILE_BYTES, Tree},
};

/// The most work trees of a repository.
const MAX_WORK_TREES: usize = 256;
/// The most configurations of a repository elsewhere that are read, with what they include.
const MAX_FOREIGN_CONFIGS: usize = 32;

/// Stands for all repositories, as one outside of every root: what the owner's own configuration has is for each of them.
pub(super) const EVERY_REPOSITORY: &str = "/";
/// The configurations for all users. Those of the owner are in the home.
const SYSTEM_CONFIGS: [&str; 2] = ["/etc/gitconfig", "/usr/local/etc/gitconfig"];

/// The repositories, by their common directories.
#[derive(Debug, Default)]
pub(super) struct Repositories(BTreeMap<PathBuf, Repository>);

#[derive(Debug, Default)]
struct Repository {
    values: BTreeSet<ConfigEntry>,
    work_trees: BTreeSet<PathBuf>,
}

/// A path that a repository's configuration names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedPath {
    /// Where it is.
    pub path: PathBuf,
    /// As it is written, where it is relative.
    pub name: Option<PathBuf>,
    /// It is a path, and not a word of a command.
    pub is_path: bool,
}

impl Repositories {
    /// Adds an accepted value. Returns whether it is new.
    pub(super) fn add_value(&mut self, repository: &Path, value: ConfigEntry) -> bool {
        let values = &mut self.0.entry(repository.to_owned()).or_default().values;
        values.len() < MAX_CONTROL_FILES && values.insert(value)
    }

    /// Adds a repository, for which the values of all repositories are as well. Returns whether it is new.
    pub(super) fn add(&mut self, repository: &Path) -> bool {
        let is_new = self.0.len() < MAX_CONTROL_FILES && !self.0.contains_key(repository);
        if is_new {
            self.0.insert(repository.to_owned(), Repository::default());
        }
        is_new
    }

    /// Their common directories.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.0.keys().cloned().collect()
    }

    /// Adds a directory of a repository's files. Returns whether it is new.
    pub(super) fn add_work_tree(&mut self, repository: &Path, work_tree: PathBuf) -> bool {
        let work_trees = &mut self.0.entry(repository.to_owned()).or_default().work_trees;
        work_trees.len() < MAX_WORK_TREES && work_trees.insert(work_tree)
    }

    /// What the configuration of a repository names, in all of its work trees, and a value of which nobody knows what it
    /// runs.
    pub(super) fn named_paths(
        &self,
        tree: &Tree,
        repository: &Path,
    ) -> (BTreeSet<NamedPath>, Option<String>) {
        let (mut found, mut unknown) = (BTreeSet::new(), None);
        let Some(known) = self.0.get(repository) else { return (found, unknown) };
        let mut bases = known.work_trees.clone();
        bases.insert(repository.to_owned());
        if repository.file_name().is_some_and(|name| name == ".git") {
            bases.extend(repository.parent().map(Path::to_owned));
        }
        let of_all = self.0.get(Path::new(EVERY_REPOSITORY)).map(|all| &all.values);
        for value in known.values.iter().chain(of_all.into_iter().flatten()) {
            // A person's own aliases are everyday shell: what such a value runs would be said of every workspace.
            let is_own = known.values.contains(value) && repository != Path::new(EVERY_REPOSITORY);
            let is_path = value.is_path();
            let words: Vec<Vec<u8>> = if is_path {
                // New repositories get what is in a template.
                let parts: &[&[u8]] =
                    if value.is_template() { &[b"", b"/hooks", b"/config"] } else { &[b""] };
                parts.iter().map(|part| [value.value.as_slice(), part].concat()).collect()
            } else {
                let text = String::from_utf8_lossy(&value.value);
                let named = CommandFiles::of(&text);
                if is_own && (named.is_unknown || text.contains(char::REPLACEMENT_CHARACTER)) {
                    unknown.get_or_insert_with(|| value.shown());
                }
                named.files.into_iter().map(String::into_bytes).collect()
            };
            for word in words {
                let word = Path::new(OsStr::from_bytes(&word));
                let expanded = expand_home(tree.owner(), word);
                match expanded.is_empty() && word.is_relative() {
                    true => found.extend(bases.iter().map(|base| NamedPath {
                        path: base.join(word),
                        name: Some(word.to_owned()),
                        is_path,
                    })),
                    false => {
                        let paths = if expanded.is_empty() { vec![word.to_owned()] } else { expanded };
                        found.extend(paths.into_iter().map(|path| NamedPath { path, name: None, is_path }));
                    }
                }
            }
        }
        (found, unknown)
    }
}

/// The common directory of the repository that a directory is a part of.
pub(super) fn repository_directory(tree: &Tree, git_directory: &Path) -> PathBuf {
    let pointer = read_file(&git_directory.join("commondir"));
    let target = pointer.as_deref().and_then(|bytes| control_files::pointer_target(bytes, false));
    let common = target.map(|target| git_directory.join(OsStr::from_bytes(target)));
    let followed = common.and_then(|common| tree.follow(&common));
    followed.map_or_else(|| git_directory.to_owned(), |followed| followed.target)
}

/// The paths that an `include.path` of a configuration can be.
pub(super) fn included_paths(tree: &Tree, config: &Path, value: &[u8]) -> Vec<PathBuf> {
    let value = Path::new(OsStr::from_bytes(value));
    let expanded = expand_home(tree.owner(), value);
    match expanded.is_empty() {
        true => vec![config.parent().unwrap_or(Path::new("/")).join(value)],
        false => expanded,
    }
}

/// What the configurations of a repository outside of the root have.
#[derive(Debug, Default)]
pub(super) struct ForeignConfigs {
    /// The files outside of the root, read or not.
    pub files: BTreeSet<PathBuf>,
    /// The values that name files.
    pub values: Vec<ConfigEntry>,
    /// Included files that are below the root.
    pub included: BTreeSet<PathBuf>,
}

/// Reads the configurations of a repository outside of the root, with what they include.
pub(super) fn read_foreign(tree: &Tree, git_directory: &Path, common: &Path) -> ForeignConfigs {
    read_configs(
        tree,
        [common.join("config"), common.join("config.worktree"), git_directory.join("config.worktree")].into(),
    )
}

/// Reads the configurations that the owner's git has in every repository: the owner's own and the system's, with what they include.
pub(super) fn read_for_every_repository(tree: &Tree) -> ForeignConfigs {
    let mut configs: Vec<PathBuf> = SYSTEM_CONFIGS.map(PathBuf::from).into();
    for name in ["~/.gitconfig", "~/.config/git/config"] {
        configs.extend(expand_home(tree.owner(), Path::new(name)));
    }
    if geteuid().as_raw() == tree.owner() {
        let named =
            |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        configs.extend(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].into_iter().filter_map(named));
        configs.extend(named("XDG_CONFIG_HOME").map(|directory| directory.join("git/config")));
    }
    configs.sort();
    configs.dedup();
    read_configs(tree, configs)
}

/// Reads configurations outside of the root, with what they include. Those that are in it, or that links in it lead to, are only named.
fn read_configs(tree: &Tree, mut left: Vec<PathBuf>) -> ForeignConfigs {
    let mut found = ForeignConfigs::default();
    while let Some(config) = left.pop() {
        let is_inside = |path: &Path| tree.below_root(path).is_some();
        let followed = tree.follow(&config);
        let links_inside = followed.as_ref().is_some_and(|to| to.links.iter().any(|link| is_inside(link)));
        let ends_inside = followed.as_ref().map_or(is_inside(&config), |to| is_inside(&to.target));
        if found.included.len() < MAX_CONTROL_FILES && (ends_inside || links_inside || is_inside(&config)) {
            found.included.insert(config.clone());
        }
        if ends_inside {
            continue;
        }
        if found.files.len() >= MAX_FOREIGN_CONFIGS || !found.files.insert(config.clone()) {
            continue;
        }
        let Some(bytes) = read_file(&config) else { continue };
        for entry in gitconfig::dangerous(&bytes, ConfigKind::Repository) {
            if !entry.is_include() {
                found.values.push(entry);
                continue;
            }
            left.extend(included_paths(tree, &config, &entry.value));
        }
    }
    found
}

/// A regular file outside of the root, or a part of a repository that is not compared. Never waits for a writer.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let is_regular = file.metadata().is_ok_and(|found| found.is_file());
    is_regular.then(|| read_bounded(file)).flatten()
}

fn read_bounded(file: File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_CONTROL_FILE_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The paths that a path stands for which begins with `~`; none for another one. A person's `HOME` may be another directory
/// than the one that the system knows.
fn expand_home(owner: u32, path: &Path) -> Vec<PathBuf> {
    let mut names = path.components();
    let Some(first) = names.next().and_then(|first| first.as_os_str().to_str()?.strip_prefix('~')) else {
        return Vec::new();
    };
    let rest = names.as_path();
    let known = |user: nix::Result<Option<User>>| user.ok().flatten().map(|user| user.dir);
    let homes = match first {
        "" => {
            let own = std::env::var_os("HOME").map(PathBuf::from);
            let own = own.filter(|home| geteuid().as_raw() == owner && home.is_absolute());
            [own, known(User::from_uid(Uid::from_raw(owner)))]
        }
        name => [known(User::from_name(name)), None],
    };
    homes.into_iter().flatten().map(|home| home.join(rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Path) -> Tree {
        Tree::new(root.to_owned(), File::open(root).unwrap().into())
    }

    fn values(text: &str) -> Vec<ConfigEntry> {
        gitconfig::dangerous(text.as_bytes(), ConfigKind::Repository).into_iter().collect()
    }

    #[test]
    fn a_relative_value_names_a_file_in_every_work_tree_and_an_absolute_one_does_not() {
        let root = tempfile::tempdir().unwrap();
        let tree = tree(root.path());
        let mut repositories = Repositories::default();
        let git = Path::new("/r/.git");
        for value in values("[core]\nhooksPath = .githooks\nfsmonitor = /x/mon.sh\n") {
            assert!(repositories.add_value(git, value.clone()) && !repositories.add_value(git, value));
        }
        assert!(
            repositories.add_work_tree(git, "/w".into()) && !repositories.add_work_tree(git, "/w".into())
        );
        let (found, unknown) = repositories.named_paths(&tree, git);
        let paths: Vec<&str> = found.iter().filter_map(|named| named.path.to_str()).collect();
        assert_eq!(paths, ["/r/.git/.githooks", "/r/.githooks", "/w/.githooks", "/x/mon.sh"]);
        assert_eq!(unknown, None);
        assert!(repositories.add_value(git, values("[alias]\nx = !$(y)/z\n").remove(0)));
        assert_eq!(repositories.named_paths(&tree, git).1.as_deref(), Some("alias.x = !$(y)/z"));
    }

    #[test]
    fn a_home_is_expanded_and_other_names_with_a_tilde_are_not() {
        let owner = geteuid().as_raw();
        assert!(!expand_home(owner, Path::new("~/x")).is_empty());
        assert!(expand_home(owner, Path::new("~/x")).iter().all(|path| path.ends_with("x")));
        assert!(expand_home(owner, Path::new("a/~/x")).is_empty());
        assert!(expand_home(owner, Path::new("x~")).is_empty());
    }

    #[test]
    fn configurations_elsewhere_are_read_with_what_they_include() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path().canonicalize().unwrap();
        let (root, git) = (above.join("w"), above.join("r/.git"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(git.join("worktrees/w")).unwrap();
        fs::write(git.join("worktrees/w/commondir"), "../..\n").unwrap();
        fs::write(git.join("config"), "[include]\npath = more\npath = ../../w/inc\npath = config\n").unwrap();
        fs::write(git.join("more"), "[core]\nhooksPath = .githooks\n").unwrap();
        let tree = tree(&root);
        assert_eq!(repository_directory(&tree, &git.join("worktrees/w")), git);
        assert_eq!(repository_directory(&tree, &git), git);
        let found = read_foreign(&tree, &git.join("worktrees/w"), &git);
        assert_eq!(found.values.len(), 1);
        assert_eq!(found.included.len(), 1);
        assert!(found.files.contains(&git.join("config")) && found.files.contains(&git.join("more")));
    }
}
