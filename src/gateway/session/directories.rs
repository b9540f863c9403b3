//! Resolves a directory that a caller names, without leaving the session's roots.
//!
//! It walks by descriptor from a root, and reads links itself: nothing outside of the roots is looked at, so that no
//! answer reveals what is there. What is inside is looked at with the caller's rights. It opens nothing for use and
//! does not say whether the directory exists; the command's start does, and follows no link.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat},
    sys::stat::{Mode, fstat},
};

use super::Session;
use crate::{policy::AbsPath, sandbox::spec::Root};

/// Components and links that are followed for one directory. Beyond, the rest is left as it is, and not entered.
const STEPS_MAX: u32 = 256;

/// A link on the way escapes the roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EscapesRoot;

impl Session {
    /// A directory below a root, with links that stay in the roots replaced by where they lead. One that lies in no
    /// root, or is not there, comes back as it is.
    pub(crate) fn locate(&self, directory: &AbsPath) -> Result<AbsPath, EscapesRoot> {
        let Some((_, relative)) = find_root(&self.root_descriptors, directory.as_path()) else {
            return Ok(directory.clone());
        };
        if relative.as_os_str().is_empty() {
            return Ok(directory.clone());
        }
        // Not taken on: then nothing is looked at, and who enters the directory finds out.
        self.rights
            .run_with(|| locate(&self.root_descriptors, directory))
            .unwrap_or_else(|_| Ok(directory.clone()))
    }
}

fn locate(roots: &[Root], directory: &AbsPath) -> Result<AbsPath, EscapesRoot> {
    let Some((root, relative)) = find_root(roots, directory.as_path()) else { return Ok(directory.clone()) };
    if relative.as_os_str().is_empty() || !has_links(root, relative) {
        return Ok(directory.clone());
    }
    let real = Walk::new(root, relative).follow(roots)?;
    // What is too long for a path is refused where it is entered.
    Ok(AbsPath::of_path(&real).unwrap_or_else(|_| directory.clone()))
}

fn find_root<'a, 'p>(roots: &'a [Root], path: &'p Path) -> Option<(&'a Root, &'p Path)> {
    roots.iter().find_map(|root| path.strip_prefix(&root.path).ok().map(|relative| (root, relative)))
}

fn has_links(root: &Root, below: &Path) -> bool {
    matches!(open_below(root, below), Err(Errno::ELOOP))
}

fn open_below(root: &Root, below: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let relative = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    openat2(&root.descriptor, relative, how)
}

struct Walk<'a> {
    root: &'a Root,
    /// Where it is, below the root, without links.
    current: PathBuf,
    /// What is still to be walked, the next one last.
    remaining: Vec<OsString>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Root, below: &Path) -> Self {
        let mut walk = Self { root, current: PathBuf::new(), remaining: Vec::new() };
        walk.prepend(below);
        walk
    }

    fn prepend(&mut self, path: &Path) {
        self.remaining.extend(path.iter().rev().map(OsString::from));
    }

    fn follow(mut self, roots: &'a [Root]) -> Result<PathBuf, EscapesRoot> {
        for _ in 0..STEPS_MAX {
            let Some(name) = self.remaining.pop() else { break };
            if name == "." {
                continue;
            }
            if name == ".." {
                if !self.current.pop() {
                    return Err(EscapesRoot);
                }
                continue;
            }
            match self.link_at(Path::new(&name)) {
                Ok(None) => self.current.push(name),
                Ok(Some(target)) if target.is_absolute() => {
                    // Only by its text: what is outside is not looked at, not even on the way back in.
                    let plain = !target.components().any(|part| part == Component::ParentDir);
                    let (root, relative) = find_root(roots, &target).filter(|_| plain).ok_or(EscapesRoot)?;
                    self.root = root;
                    self.current = PathBuf::new();
                    self.prepend(relative);
                }
                Ok(Some(target)) => self.prepend(&target),
                // It is not there, or cannot be seen.
                Err(_) => {
                    self.current.push(name);
                    break;
                }
            }
        }
        let rest = self.remaining.iter().rev();
        Ok(rest.fold(self.root.path.join(self.current), |path, name| path.join(name)))
    }

    /// Where the entry of that name leads, when it is a link.
    fn link_at(&self, name: &Path) -> Result<Option<PathBuf>, Errno> {
        let directory = open_below(self.root, &self.current)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let entry = openat(&directory, name, flags, Mode::empty())?;
        if fstat(&entry)?.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Ok(None);
        }
        readlinkat(&entry, "").map(|target| Some(target.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;
    use crate::{sandbox::spec::RootRole, sys::rights::Rights};

    fn root(path: &Path) -> Root {
        let path = path.canonicalize().unwrap();
        let descriptor = fs::File::open(&path).unwrap().into();
        Root { descriptor, path, role: RootRole::Work }
    }

    #[test]
    fn links_are_followed_within_the_roots_and_nowhere_else() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = [root(one.path()), root(two.path())];
        let [one, two] = [&roots[0].path, &roots[1].path];
        fs::create_dir_all(one.join("deep/inner")).unwrap();
        for (target, link) in [
            ("deep", "near"),
            ("..", "up"),
            ("deep/../..", "round"),
            ("/etc", "out"),
            ("/no/such/directory", "nowhere"),
            ("missing", "dangling"),
            ("loop", "loop"),
            ("../near/inner", "deep/back"),
        ] {
            symlink(target, one.join(link)).unwrap();
        }
        symlink(two, one.join("other")).unwrap();
        symlink(one.join("deep"), one.join("absolute")).unwrap();
        symlink(format!("/etc/../{}/deep", one.display()), one.join("sideways")).unwrap();
        let locate = |name: &str| locate(&roots, &AbsPath::parse(one.join(name).to_str().unwrap()).unwrap());
        let at = |path: PathBuf| Ok(AbsPath::parse(path.to_str().unwrap()).unwrap());
        assert_eq!(locate("near/inner"), at(one.join("deep/inner")));
        assert_eq!(locate("deep/back"), at(one.join("deep/inner")));
        assert_eq!(locate("other"), at(two.clone()));
        assert_eq!(locate("absolute/inner"), at(one.join("deep/inner")));
        for out in ["up", "round", "out", "out/passwd", "nowhere", "sideways", "up/up"] {
            assert_eq!(locate(out), Err(EscapesRoot), "{out}");
        }
        for same in ["", "deep", "missing", "missing/below"] {
            assert_eq!(locate(same), at(one.join(same)), "{same}");
        }
        assert_eq!(locate("dangling"), at(one.join("missing")));
        assert_eq!(locate("loop"), at(one.join("loop")), "what never ends is not entered");
    }

    #[test]
    fn a_link_behind_directories_that_can_be_entered_and_not_read_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let roots = [root(place.path())];
        let closed = roots[0].path.join("closed");
        fs::create_dir_all(closed.join("deep")).unwrap();
        symlink("deep", closed.join("near")).unwrap();
        let set_mode = |mode| {
            for directory in [&closed, &roots[0].path] {
                fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
            }
        };
        set_mode(0o311);
        // Root reads everything.
        let rights = match nix::unistd::geteuid().is_root() {
            true => Rights { uid: 4242, gid: 4242, groups: [].into() },
            false => Rights::own(),
        };
        let at = |path: PathBuf| AbsPath::parse(path.to_str().unwrap()).unwrap();
        let located = rights.run_with(|| locate(&roots, &at(closed.join("near"))));
        set_mode(0o755);
        assert_eq!(located, Ok(Ok(at(closed.join("deep")))));
    }

    #[test]
    fn a_directory_in_no_root_is_not_looked_at() {
        let place = AbsPath::parse("/etc/passwd").unwrap();
        assert_eq!(locate(&[], &place), Ok(place));
    }
}
