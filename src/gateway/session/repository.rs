//! Finds the git repository around a directory, and which git directory its files belong to.
//!
//! Everything is read as data, by descriptor and with the rights of a user: git itself is not run. What a file names is
//! believed only if the directory that it names points back, because a command can write such files in its own workspace.
//! Decides nothing about roots: what is found is opened and checked as any root.

use std::{
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::AtFlags,
    sys::stat::{FileStat, fstat, fstatat},
};

use super::{
    real_path::{self, FoundPath, Kind, Opened},
    small_file::{self, Links},
};
use crate::{
    sandbox::{
        roots::{RootError, home_in},
        spec::Root,
    },
    sys::rights::Rights,
    workspace,
};

/// The most bytes that are read of a file with one path in it: `.git`, `commondir`, `gitdir`.
const POINTER_MAX_BYTES: u64 = 8 << 10;
/// The most bytes that are read of a repository's configuration.
const CONFIG_MAX_BYTES: u64 = 1 << 20;

/// A repository around a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EnclosingRepository {
    /// The directory of its files.
    pub(super) worktree: FoundPath,
    /// Its git directory, unless that lies in `worktree`.
    pub(super) git_directory: Option<FoundPath>,
}

/// Why a repository is not taken for a workspace.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotTaken {
    #[error("{0:?} is a git directory and has no files to work on")]
    InGitDirectory(PathBuf),
    #[error("{path:?} belongs to uid {owner}, not to uid {expected}")]
    Owner { path: PathBuf, owner: u32, expected: u32 },
    #[error("{0:?} is a link")]
    Link(PathBuf),
    #[error("{0:?} names no git directory")]
    NoPointer(PathBuf),
    #[error("{git_directory:?}, which {worktree:?} names, does not point back at it")]
    OneSided { worktree: PathBuf, git_directory: PathBuf },
    #[error("{0:?} keeps a part of itself elsewhere")]
    Scattered(PathBuf),
    #[error("its main working directory {worktree:?} is or holds the home {home:?}")]
    Home { worktree: PathBuf, home: PathBuf },
    #[error("{path:?} cannot be read: {cause}")]
    Unreadable { path: PathBuf, cause: Errno },
    #[error("the directory's rights cannot be used: {0}")]
    Rights(Errno),
    #[error("{0:?} was replaced meanwhile")]
    Replaced(PathBuf),
    #[error("{}", causes(.0))]
    Root(#[from] RootError),
}

fn causes(error: &RootError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// The repository around a directory; `None` where there is none.
///
/// # Errors
/// [`NotTaken`]: there is one, and a command could have made it look as it does, or it is not the caller's alone.
pub(super) fn enclosing(start: &Root, caller: &Rights) -> Result<Option<EnclosingRepository>, NotTaken> {
    let unreadable = |cause| NotTaken::Unreadable { path: start.path.clone(), cause };
    let stat = fstat(&start.descriptor).map_err(unreadable)?;
    // Files of a user are read with that user's rights, also when root asks.
    let rights = match caller.uid {
        0 if stat.st_uid != 0 => Rights { uid: stat.st_uid, gid: stat.st_gid, groups: [].into() },
        _ => caller.clone(),
    };
    rights
        .run_with(|| Search { device: stat.st_dev, owner: rights.uid }.upwards(start))
        .map_err(NotTaken::Rights)?
}

/// The search for one repository.
struct Search {
    /// Git does not cross file systems either.
    device: u64,
    /// To whom every part must belong.
    owner: u32,
}

impl Search {
    fn upwards(&self, start: &Root) -> Result<Option<EnclosingRepository>, NotTaken> {
        for path in start.path.ancestors() {
            let Ok(directory) = real_path::open(None, path, Kind::Directory) else {
                return Ok(None);
            };
            if directory.found.object.0 != self.device {
                return Ok(None);
            }
            let link = path.join(".git");
            let entry = match fstatat(&directory.descriptor, ".git", AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(entry) => entry,
                Err(Errno::ENOENT) if !is_git_directory(directory.descriptor.as_fd()) => continue,
                Err(Errno::ENOENT) if path == start.path => return Ok(None),
                Err(Errno::ENOENT) => return Err(NotTaken::InGitDirectory(path.to_owned())),
                Err(cause) => return Err(NotTaken::Unreadable { path: link, cause }),
            };
            let found = match entry.st_mode & libc::S_IFMT {
                libc::S_IFDIR => match self.own_git_directory(&directory, &link)? {
                    Some(()) => None,
                    // Git does not take it for a repository either.
                    None => continue,
                },
                libc::S_IFREG => self.linked_git_directory(&directory, &link, &entry)?,
                libc::S_IFLNK => return Err(NotTaken::Link(link)),
                _ => return Err(NotTaken::NoPointer(link)),
            };
            self.check_owner(&directory)?;
            return Ok(Some(EnclosingRepository { worktree: directory.found, git_directory: found }));
        }
        Ok(None)
    }

    /// `.git` as a directory.
    fn own_git_directory(&self, worktree: &Opened, path: &Path) -> Result<Option<()>, NotTaken> {
        let git = open_named(worktree, Path::new(".git"), path)?;
        if !has(git.descriptor.as_fd(), "HEAD") {
            return Ok(None);
        }
        self.check_owner(&git)?;
        let is_whole = is_git_directory(git.descriptor.as_fd()) && !has(git.descriptor.as_fd(), "commondir");
        if is_whole { Ok(Some(())) } else { Err(NotTaken::Scattered(git.found.path)) }
    }

    /// `.git` as a file: of a linked worktree, of a submodule, or of a directory with a bare repository in it.
    fn linked_git_directory(
        &self,
        worktree: &Opened,
        path: &Path,
        entry: &FileStat,
    ) -> Result<Option<FoundPath>, NotTaken> {
        self.check_owner_id(path, entry.st_uid)?;
        let text = read_pointer(worktree, ".git", path)?;
        let target = text.strip_prefix("gitdir:").map(str::trim).filter(|target| !target.is_empty());
        let target = target.ok_or_else(|| NotTaken::NoPointer(path.to_owned()))?;
        let git = open_named(worktree, Path::new(target), path)?;
        self.check_owner(&git)?;
        let common = self.repository_directory(&git)?;
        let main = common.as_ref().unwrap_or(&git);
        if !is_git_directory(main.descriptor.as_fd()) {
            return Err(NotTaken::NoPointer(path.to_owned()));
        }
        self.check_owner(main)?;
        let is_inside = |part: &Opened| part.found.path.starts_with(&worktree.found.path);
        if is_inside(&git) && is_inside(main) {
            // Nothing outside of the working directory belongs to it.
            return Ok(None);
        }
        let points_back = match &common {
            Some(common) => {
                let place = git.found.path.parent().map(|above| above == common.found.path.join("worktrees"));
                place == Some(true) && self.names_worktree(&git, worktree)
            }
            None => configured_worktrees(&git).contains(&worktree.found),
        };
        if !points_back {
            let (worktree, git_directory) = (worktree.found.path.clone(), git.found.path);
            return Err(NotTaken::OneSided { worktree, git_directory });
        }
        self.check_main_worktree(main)?;
        Ok(Some(main.found.clone()))
    }

    /// A repository whose files are a user's home keeps what is in that home.
    fn check_main_worktree(&self, git: &Opened) -> Result<(), NotTaken> {
        let by_place = git.found.path.file_name().filter(|name| *name == ".git").and(git.found.path.parent());
        let configured = configured_worktrees(git).into_iter().map(|found| found.path);
        for worktree in by_place.map(Path::to_owned).into_iter().chain(configured) {
            if let Some(home) = home_in(&worktree, self.owner) {
                return Err(NotTaken::Home { worktree, home });
            }
        }
        Ok(())
    }

    /// The directory of the repository that a linked worktree's own directory belongs to.
    fn repository_directory(&self, git: &Opened) -> Result<Option<Opened>, NotTaken> {
        if !has(git.descriptor.as_fd(), "commondir") {
            return Ok(None);
        }
        let path = git.found.path.join("commondir");
        let text = read_pointer(git, "commondir", &path)?;
        open_named(git, Path::new(text.trim()), &path).map(Some)
    }

    /// Whether a linked worktree's own directory names the `.git` file of this one.
    fn names_worktree(&self, git: &Opened, worktree: &Opened) -> bool {
        let Ok(text) = read_pointer(git, "gitdir", &git.found.path) else { return false };
        let named = Path::new(text.trim());
        let (Some(directory), Some(name)) = (named.parent(), named.file_name()) else { return false };
        let directory = real_path::open(Some(git.descriptor.as_fd()), directory, Kind::Directory);
        name == ".git" && directory.is_ok_and(|directory| directory.found == worktree.found)
    }

    fn check_owner(&self, directory: &Opened) -> Result<(), NotTaken> {
        let cause = |cause| NotTaken::Unreadable { path: directory.found.path.clone(), cause };
        self.check_owner_id(&directory.found.path, fstat(&directory.descriptor).map_err(cause)?.st_uid)
    }

    fn check_owner_id(&self, path: &Path, owner: u32) -> Result<(), NotTaken> {
        if owner == self.owner {
            return Ok(());
        }
        Err(NotTaken::Owner { path: path.to_owned(), owner, expected: self.owner })
    }
}

/// Where a repository's configuration says that its files are.
fn configured_worktrees(git: &Opened) -> Vec<FoundPath> {
    let text =
        small_file::read(git.descriptor.as_fd(), Path::new("config"), Links::Refused, CONFIG_MAX_BYTES)
            .unwrap_or_default();
    let named = workspace::worktrees(&text).into_iter();
    let opened =
        named.map(|path| real_path::open(Some(git.descriptor.as_fd()), Path::new(&path), Kind::Directory));
    opened.flatten().map(|opened| opened.found).collect()
}

/// Whether a directory is a repository's own, with all of its parts in it.
fn is_git_directory(directory: BorrowedFd<'_>) -> bool {
    let is_directory = |name: &str| {
        let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
    };
    has(directory, "HEAD") && is_directory("objects") && is_directory("refs")
}

fn has(directory: BorrowedFd<'_>, name: &str) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}

/// The directory that a file of another one names. Links on the way are followed, as git does.
fn open_named(base: &Opened, path: &Path, named_by: &Path) -> Result<Opened, NotTaken> {
    real_path::open(Some(base.descriptor.as_fd()), path, Kind::Directory)
        .map_err(|cause| NotTaken::Unreadable { path: named_by.to_owned(), cause })
}

/// A file with one path in it.
fn read_pointer(directory: &Opened, name: &str, path: &Path) -> Result<String, NotTaken> {
    let text =
        small_file::read(directory.descriptor.as_fd(), Path::new(name), Links::Refused, POINTER_MAX_BYTES);
    let text = text.map_err(|error| NotTaken::Unreadable {
        path: path.to_owned(),
        cause: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    })?;
    let text = std::ffi::OsString::from_vec(text).into_string();
    // A name that is no text cannot be a root either.
    text.map_err(|_| NotTaken::NoPointer(path.to_owned()))
}

#[cfg(test)]
mod tests;
