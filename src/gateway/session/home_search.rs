//! Opens what may be shown of a caller's home, with the rights that the thread has: the caller's.

use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;

use super::real_path::{self, Kind};
use crate::sandbox::{
    roots,
    spec::{Root, RootRole},
};

/// Where it is looked for.
pub(super) struct HomeSearch<'a> {
    /// Without links.
    pub(super) home: &'a Path,
    /// Whose home it is.
    pub(super) owner: u32,
    /// What commands of the session can change.
    pub(super) writable: &'a [PathBuf],
}

impl HomeSearch<'_> {
    /// What is shown, if it is the caller's or root's alone and no command of the session can change it. A link must lead to something
    /// of the same name: a directory with the whole path that is listed, a file with its last part.
    pub(super) fn open_shown(&self, shown: &Path) -> Option<Root> {
        let opened = real_path::open(None, &self.home.join(shown), Kind::Any).ok()?;
        let stat = fstat(&opened.descriptor).ok()?;
        let (path, descriptor) = (opened.found.path, opened.descriptor);
        let is_own = stat.st_uid == self.owner || stat.st_uid == 0;
        let is_closed = stat.st_mode & libc::S_IWOTH == 0;
        let is_kind = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFREG);
        let overlaps = |root: &PathBuf| root.starts_with(&path) || path.starts_with(root);
        let is_home = self.home.starts_with(&path) || roots::home_in(&path, self.owner).is_some();
        let is_apart = !self.writable.iter().any(overlaps) && !is_home;
        // A command that once worked where a toolchain may lie can have left a link there, to what it could not read.
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_named = path.ends_with(shown) || (is_file && path.file_name() == shown.file_name());
        let is_text = path.to_str().is_some();
        (is_own && is_closed && is_kind && is_apart && is_named && is_text).then_some(Root {
            path,
            descriptor,
            role: RootRole::ReadOnly,
        })
    }

    /// A directory of the caller's own, as [`Self::open_shown`].
    pub(super) fn open_own_directory(&self, shown: &Path) -> Option<Root> {
        let opened = self.open_shown(shown)?;
        let stat = fstat(&opened.descriptor).ok()?;
        let is_own = stat.st_uid == self.owner && stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        is_own.then_some(opened)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{chown, symlink},
    };

    use super::*;

    fn real(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().canonicalize().unwrap()
    }

    fn search(home: &Path) -> HomeSearch<'_> {
        HomeSearch { home, owner: nix::unistd::geteuid().as_raw(), writable: &[] }
    }

    fn shown(search: &HomeSearch<'_>, name: &str) -> Option<PathBuf> {
        search.open_shown(Path::new(name)).map(|root| root.path)
    }

    #[test]
    fn what_is_the_callers_or_roots_is_shown_and_a_cache_is_the_callers_own_directory() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can give a directory to another user");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let home = real(&place);
        for (name, owner) in [("own", 4242), ("roots", 0), ("other", 4243)] {
            fs::create_dir(home.join(name)).unwrap();
            chown(home.join(name), Some(owner), Some(owner)).unwrap();
        }
        fs::write(home.join("file"), "").unwrap();
        chown(home.join("file"), Some(4242), Some(4242)).unwrap();
        let search = HomeSearch { owner: 4242, ..search(&home) };
        for (name, is_shown, is_own_directory) in
            [("own", true, true), ("roots", true, false), ("other", false, false), ("file", true, false)]
        {
            assert_eq!(shown(&search, name), is_shown.then(|| home.join(name)), "{name}");
            let own = search.open_own_directory(Path::new(name)).map(|root| root.path);
            assert_eq!(own, is_own_directory.then(|| home.join(name)), "{name}");
        }
    }

    #[test]
    fn a_link_shows_a_file_of_its_name_and_a_directory_only_at_the_whole_place() {
        let place = tempfile::tempdir().unwrap();
        let (home, store) = (real(&place).join("home"), real(&place).join("store"));
        for directory in [home.join(".other"), store.join(".tool/bin"), store.join("bin")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(store.join("run"), "").unwrap();
        for (target, link) in [
            (".tool", ".tool"),
            ("bin", ".other/bin"),
            ("run", ".other/run"),
            ("run", ".other/another"),
            (".tool/bin", ".other/tool"),
        ] {
            symlink(store.join(target), home.join(link)).unwrap();
        }
        for (name, expected) in [
            (".tool", Some(".tool")),
            (".tool/bin", Some(".tool/bin")),
            (".other/run", Some("run")),
            (".other/another", None),
            (".other/bin", None),
            (".other/tool", None),
        ] {
            assert_eq!(shown(&search(&home), name), expected.map(|path| store.join(path)), "{name}");
        }
    }

    #[test]
    fn neither_the_home_nor_what_holds_it_nor_what_a_command_can_change_is_shown() {
        let place = tempfile::tempdir().unwrap();
        let holder = real(&place).join("holder");
        let home = holder.join("home");
        fs::create_dir_all(home.join(".tool/work/below")).unwrap();
        fs::create_dir(home.join(".tool/apart")).unwrap();
        symlink(&holder, home.join("holder")).unwrap();
        symlink(&home, home.join("home")).unwrap();
        for name in ["holder", "home"] {
            assert_eq!(shown(&search(&home), name), None, "{name}");
        }
        let search = HomeSearch { writable: &[home.join(".tool/work")], ..search(&home) };
        for name in [".tool", ".tool/work", ".tool/work/below"] {
            assert_eq!(shown(&search, name), None, "{name}");
        }
        assert_eq!(shown(&search, ".tool/apart"), Some(home.join(".tool/apart")));
    }
}
