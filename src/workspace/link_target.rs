//! Where a link of a workspace leads, by way of other links.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use super::tree::Tree;

/// The most links that are followed from one: as many as the kernel follows.
const MAX_LINKS_FOLLOWED: usize = 40;

/// Where a link leads.
#[derive(Debug)]
pub struct FollowedLink {
    /// Below the root, without links. Nothing may be there.
    pub target: PathBuf,
    /// The links on the way, the first one first.
    pub links: Vec<PathBuf>,
}

impl Tree {
    /// Where a link leads, as far as that is below the root. What is not there is taken as a directory that will be.
    pub fn follow_link(&self, link: &Path) -> Option<FollowedLink> {
        let mut left = reversed(link);
        let (mut target, mut links) = (PathBuf::new(), Vec::new());
        let mut steps = 0;
        while let Some(name) = left.pop() {
            if name != ".." {
                target.push(&name);
                let Some(to) = self.read_link(&target) else { continue };
                links.push(target.clone());
                target.pop();
                let to = match to.is_absolute() {
                    true => {
                        target = PathBuf::new();
                        let below = to.strip_prefix(self.path()).ok().map(Path::to_owned);
                        below.or_else(|| self.path_below(&to))?
                    }
                    false => to,
                };
                left.extend(reversed(&to));
            } else if !target.pop() {
                // Out of the root, and perhaps into it again.
                let rest: PathBuf = left.drain(..).rev().collect();
                left = reversed(&self.path_below(&self.path().join("..").join(rest))?);
            } else {
                continue;
            }
            steps += 1;
            if steps > MAX_LINKS_FOLLOWED {
                return None;
            }
        }
        Some(FollowedLink { target, links })
    }

    /// An absolute path, without links as far as it is there, if that is below the root.
    fn path_below(&self, absolute: &Path) -> Option<PathBuf> {
        let (there, real) =
            absolute.ancestors().find_map(|at| Some((at, std::fs::canonicalize(at).ok()?)))?;
        let path = real.join(absolute.strip_prefix(there).ok()?);
        path.strip_prefix(self.path()).ok().map(Path::to_owned)
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
        let tree = Tree::new(root.clone(), fs::File::open(&root).unwrap().into());
        let link = |to: &Path, name: &str| symlink(to, root.join(name)).unwrap();
        link(Path::new("a/b"), "there");
        link(Path::new("a/../x/y"), "absent");
        link(Path::new("../there/z"), "a/chain");
        link(&root.join("a"), "absolute");
        link(Path::new("../root/a"), "back");
        link(Path::new(".."), "out");
        link(Path::new("loop"), "loop");
        for (name, target, links) in [
            ("there", Some("a/b"), 1),
            ("absent", Some("x/y"), 1),
            ("a/chain", Some("a/b/z"), 2),
            ("absolute", Some("a"), 1),
            ("back", Some("a"), 1),
            ("a", Some("a"), 0),
            ("out", None, 0),
            ("loop", None, 0),
        ] {
            let followed = tree.follow_link(Path::new(name));
            assert_eq!(followed.as_ref().map(|it| it.target.as_path()), target.map(Path::new), "{name}");
            assert_eq!(followed.map_or(0, |it| it.links.len()), links, "{name}");
        }
    }
}
