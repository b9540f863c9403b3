//! Links of a workspace: by which of them a tool comes to a place whose files are not judged where they are, and where a path leads.
//!
//! Git's objects and what package managers fill is not scanned. A path is followed as the kernel follows links: below the root by
//! descriptor, elsewhere by name.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    ops::Bound,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::{
    control_files::{MAX_CONTROL_FILES, SKIPPED_DIRECTORIES},
    tree::Tree,
};
use crate::policy::workspace_files;

/// Whether a path is in a directory named `.git`, or is one.
pub(super) fn is_in_git(path: &Path) -> bool {
    path.iter().any(|name| name == ".git")
}

/// Whether a git directory is expected at a path: it is named `.git`, or it is a submodule's or a worktree's in one.
pub(super) fn is_git_place(path: &Path) -> bool {
    let names: Vec<&OsStr> = path.iter().collect();
    let Some(at) = names.iter().rposition(|name| *name == ".git") else { return false };
    names.get(at + 1).is_none_or(|next| *next == "modules" || *next == "worktrees")
}

/// Whether git makes a directory of that name in `objects`.
pub(super) fn is_object_directory(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(name, b"pack" | b"info") || (name.len() == 2 && name.iter().all(is_hex))
}

/// Whether a path is, by its names, a git directory or in a part of one that is not scanned.
pub(super) fn is_hidden(path: &Path) -> bool {
    let is_hidden_part = |at: &Path| {
        let (Some(above), Some(name)) = (at.parent(), at.file_name()) else { return false };
        if is_git_place(above) && SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
            return name != "objects" || at == path;
        }
        let is_objects = above.file_name().is_some_and(|name| name == "objects");
        is_objects && above.parent().is_some_and(is_git_place) && is_object_directory(name)
    };
    is_git_place(path) || path.ancestors().any(is_hidden_part)
}

/// Whether a path is in a directory that package managers fill, or is one.
pub(super) fn is_in_store(path: &Path) -> bool {
    path.iter().any(workspace_files::is_store)
}

/// The part of a path in a `.git` that stands for what a link in it leads to: up to the name after `.git`.
pub(super) fn git_entry(path: &Path) -> PathBuf {
    let names = path.iter().collect::<Vec<_>>();
    let last = names.iter().rposition(|name| *name == ".git").unwrap_or(names.len());
    names.into_iter().take(last.saturating_add(2)).collect()
}

/// Places in stores and in `.git` to which links lead from elsewhere: tools come to what is below them.
#[derive(Debug, Default)]
pub(super) struct ExposedPaths(BTreeSet<PathBuf>);

impl ExposedPaths {
    /// Adds a place. Returns whether it is new.
    pub(super) fn add(&mut self, path: PathBuf) -> bool {
        !self.is_full() && self.0.insert(path)
    }

    /// Whether no more can be added.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_CONTROL_FILES
    }

    /// Whether a place is exposed, in an exposed place, or on the way to one.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        let from = (Bound::Included(path), Bound::<&Path>::Unbounded);
        path.ancestors().any(|at| self.0.contains(at))
            || self.0.range::<Path, _>(from).next().is_some_and(|next| next.starts_with(path))
    }

    /// Whether a link leads to a place, or above it, so that it counts as in no store.
    pub(super) fn reaches(&self, path: &Path) -> bool {
        path.ancestors()
            .any(|at| self.0.contains(at) && path.strip_prefix(at).is_ok_and(|below| !is_in_store(below)))
    }
}

/// The most links that are followed from one: as many as the kernel follows.
const MAX_LINKS_FOLLOWED: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(super) struct FollowedPath {
    /// Without links. Nothing may be there.
    pub target: PathBuf,
    /// The links on the way, the first one first.
    pub links: Vec<PathBuf>,
}

impl Tree {
    /// Where a link leads, as paths below the root; `None` where that is elsewhere. What is not there is taken as a
    /// directory that will be.
    pub(super) fn follow_link(&self, link: &Path) -> Option<FollowedPath> {
        let FollowedPath { target, links } = self.follow(&self.path().join(link))?;
        let target = self.below_root(&target)?;
        let links = links.iter().filter_map(|link| self.below_root(link)).collect();
        Some(FollowedPath { target, links })
    }

    /// Where an absolute path leads. `None`: by way of too many links, to nothing.
    pub(super) fn follow(&self, path: &Path) -> Option<FollowedPath> {
        let (mut target, mut left) = self.start(path);
        let mut links = Vec::new();
        while let Some(name) = left.pop() {
            if name == ".." {
                target.pop();
                continue;
            }
            target.push(&name);
            let Some(to) = self.link_at(&target) else { continue };
            links.push(target.clone());
            if links.len() > MAX_LINKS_FOLLOWED {
                return None;
            }
            target.pop();
            if to.is_absolute() {
                let (start, rest) = self.start(&to);
                target = start;
                left.extend(rest);
            } else {
                left.extend(reversed(&to));
            }
        }
        Some(FollowedPath { target, links })
    }

    /// An absolute path relative to the root, if it is below it.
    pub(super) fn below_root(&self, absolute: &Path) -> Option<PathBuf> {
        absolute.strip_prefix(self.path()).ok().map(Path::to_owned)
    }

    /// From where an absolute path is followed, and the names that are left: the root's own path has no links.
    fn start(&self, path: &Path) -> (PathBuf, Vec<OsString>) {
        match path.strip_prefix(self.path()) {
            Ok(below) => (self.path().to_owned(), reversed(below)),
            Err(_) => (PathBuf::from("/"), reversed(path)),
        }
    }

    fn link_at(&self, path: &Path) -> Option<PathBuf> {
        match self.below_root(path) {
            Some(below) => self.read_link(&below),
            None => std::fs::read_link(path).ok(),
        }
    }
}

/// The names of a path, the last one first. Those that lead nowhere are left out.
fn reversed(path: &Path) -> Vec<OsString> {
    let is_step = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_step).map(|part| part.as_os_str().to_owned()).rev().collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn what_is_not_scanned_of_a_repository_is_hidden_and_nothing_else_of_it() {
        for path in [
            ".git",
            "a/.git",
            "a/.git/objects",
            ".git/objects/0f/x",
            ".git/objects/pack",
            ".git/refs/x",
            "a/.git/logs",
            ".git/modules/m/refs/x",
            ".git/worktrees/w/logs",
        ] {
            assert!(is_hidden(Path::new(path)), "{path}");
        }
        for path in [
            "",
            "a",
            "objects/0f",
            "lib/logs/x",
            ".git/objects/zz",
            ".git/objects/0f0",
            ".git/annex/objects/0f/x",
            ".git/hooks",
        ] {
            assert!(!is_hidden(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_entry_of_a_git_directory_is_the_name_after_it() {
        assert_eq!(git_entry(Path::new("a/.git/annex/objects/x")), Path::new("a/.git/annex"));
        assert_eq!(git_entry(Path::new(".git")), Path::new(".git"));
        assert_eq!(git_entry(Path::new("a/b")), Path::new("a/b"));
    }

    #[test]
    fn what_is_below_an_exposed_place_counts_but_for_another_store_in_it() {
        let mut exposed = ExposedPaths::default();
        assert!(exposed.add("target/y".into()) && !exposed.add("target/y".into()));
        for (path, concerns, reaches) in [
            ("target/y", true, true),
            ("target/y/a", true, true),
            ("target/y/node_modules/b", true, false),
            ("target", true, false),
            ("target/yy", false, false),
            ("a", false, false),
        ] {
            let path = Path::new(path);
            assert_eq!((exposed.concerns(path), exposed.reaches(path)), (concerns, reaches), "{path:?}");
        }
    }

    #[test]
    fn a_link_is_followed_to_where_it_leads_below_the_root_whether_that_is_there_or_not() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path().canonicalize().unwrap();
        let root = above.join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("root", above.join("other")).unwrap();
        let tree = Tree::new(root.clone(), fs::File::open(&root).unwrap().into());
        let link = |to: &Path, name: &str| symlink(to, root.join(name)).unwrap();
        link(Path::new("a/b"), "there");
        link(Path::new("a/../x/y"), "absent");
        link(Path::new("../there/z"), "a/chain");
        link(&root.join("a"), "absolute");
        link(Path::new("../root/a"), "back");
        link(&above.join("other/a"), "other");
        link(Path::new("there/../c"), "down-and-up");
        link(Path::new(".."), "out");
        link(Path::new("loop"), "loop");
        for (name, target, links) in [
            ("there", Some("a/b"), 1),
            ("absent", Some("x/y"), 1),
            ("a/chain", Some("a/b/z"), 2),
            ("absolute", Some("a"), 1),
            ("back", Some("a"), 1),
            ("other", Some("a"), 1),
            ("down-and-up", Some("a/c"), 2),
            ("a", Some("a"), 0),
            ("out", None, 0),
            ("loop", None, 0),
        ] {
            let followed = tree.follow_link(Path::new(name));
            assert_eq!(followed.as_ref().map(|it| it.target.as_path()), target.map(Path::new), "{name}");
            assert_eq!(followed.map_or(0, |it| it.links.len()), links, "{name}");
        }
        let outside = tree.follow(&root.join("out/x")).unwrap();
        assert_eq!(outside.target, above.join("x"));
    }
}
