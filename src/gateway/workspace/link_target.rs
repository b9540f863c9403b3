//! Where a path leads, by way of links, as the kernel follows them: below the root by descriptor, elsewhere by name.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use super::tree::Tree;

/// The most links that are followed from one: as many as the kernel follows.
const MAX_LINKS_FOLLOWED: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub struct FollowedPath {
    /// Without links. Nothing may be there.
    pub target: PathBuf,
    /// The links on the way, the first one first.
    pub links: Vec<PathBuf>,
}

impl Tree {
    /// Where a link leads, as paths below the root; `None` where that is elsewhere. What is not there is taken as a
    /// directory that will be.
    pub fn follow_link(&self, link: &Path) -> Option<FollowedPath> {
        let FollowedPath { target, links } = self.follow(&self.path().join(link))?;
        let target = self.below_root(&target)?;
        let links = links.iter().filter_map(|link| self.below_root(link)).collect();
        Some(FollowedPath { target, links })
    }

    /// Where an absolute path leads. `None`: by way of too many links, to nothing.
    pub fn follow(&self, path: &Path) -> Option<FollowedPath> {
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
    pub fn below_root(&self, absolute: &Path) -> Option<PathBuf> {
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
