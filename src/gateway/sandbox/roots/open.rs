//! Checks which directories may be a session's root, and opens them.
//!
//! Refuses system directories, whole homes, the kernel's file systems, directories that reach governing files
//! ([`super::governing`]), and directories of other users. Every check is on one open descriptor; no path is
//! resolved twice.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::fstat,
};

use crate::{
    sandbox::roots::{
        governing::{Governing, GoverningError, VisiblePath},
        home::homes_for,
        root::{Root, RootRole},
    },
    sys::rights::Rights,
};

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It does not begin with a slash, or has a NUL.
    #[error("root {path:?} is not an absolute path")]
    NotAbsolute {
        /// As given.
        path: PathBuf,
    },
    /// It cannot be reached.
    #[error("find root {path:?}")]
    Find {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It cannot be opened, or was replaced during the check.
    #[error("open root {path:?}")]
    Open {
        /// Without links.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Errno,
    },
    /// The gateway cannot act with the caller's rights, and must not use its own.
    #[error(
        "root {path:?} cannot be looked at with the rights of uid {caller}: only a gateway of root serves other users"
    )]
    Rights {
        /// As given.
        path: PathBuf,
        /// Who asked.
        caller: u32,
    },
    /// It cannot be found out what is mounted below the roots.
    #[error("what is mounted below the roots cannot be read")]
    Mounts {
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It is not a directory.
    #[error("root {path:?} is not a directory")]
    NotADirectory {
        /// Without links.
        path: PathBuf,
    },
    /// It is, contains, or lies in a system directory.
    #[error(
        "root {path:?} is, holds or lies in the system's directory {system:?}: work in a directory of your own elsewhere"
    )]
    System {
        /// Without links.
        path: PathBuf,
        /// The system's.
        system: PathBuf,
    },
    /// It is or holds the home of a user.
    #[error("root {path:?} is or holds the whole home {home:?}: work in a directory in it")]
    Home {
        /// Without links.
        path: PathBuf,
        /// The home.
        home: PathBuf,
    },
    /// It reaches what governs its commands.
    #[error(transparent)]
    Governing(GoverningError),
    /// All users work in it.
    #[error("root {path:?} is shared by all users: make a directory in it and work there")]
    Shared {
        /// Without links.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error(
        "root {path:?} belongs to uid {owner}, not to the caller's {caller}: work in a directory of your own; --ro shows this \
         one to be read, and a profile with filesystem.shared_workspaces = true lets those work in it who may write there"
    )]
    Foreign {
        /// Without links.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who asked.
        caller: u32,
    },
}

/// Directories that no root may be, contain, or lie in.
pub(super) const SYSTEM: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/boot",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/lib/provost",
    "/lost+found",
];

/// Whose a directory must be that is worked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The caller's.
    Callers,
    /// Anybody's: what the caller may do there is what its modes say.
    Anybodys,
}

/// As [`open_owned`], of a directory of the caller's.
///
/// # Errors
/// As [`open_owned`].
pub fn open(path: &Path, role: RootRole, caller: &Rights, governing: &Governing) -> Result<Root, RootError> {
    open_owned(path, role, caller, governing, Ownership::Callers)
}

/// Opens a root with the caller's file system rights at each step. The caller learns nothing about directories that
/// it cannot enter itself. A directory that is only read may belong to anybody: commands have no more rights in it than
/// their caller.
///
/// # Errors
/// [`RootError`]: nothing was made, nothing is kept open.
pub(crate) fn open_owned(
    path: &Path,
    role: RootRole,
    caller: &Rights,
    governing: &Governing,
    ownership: Ownership,
) -> Result<Root, RootError> {
    if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
        return Err(RootError::NotAbsolute { path: path.to_owned() });
    }
    let rights = |_| RootError::Rights { path: path.to_owned(), caller: caller.uid };
    let (real, descriptor) = caller.run_with(|| find(path)).map_err(rights)??;
    let stat = fstat(&descriptor).map_err(|cause| RootError::Open { path: real.clone(), cause })?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(RootError::NotADirectory { path: real });
    }
    check_place(&real, &homes_for(caller))?;
    let shared = libc::S_ISVTX | libc::S_IWOTH;
    // The root of a file system in memory has this mode.
    let is_own_volume = role == RootRole::Volume && stat.st_uid == caller.uid;
    if role != RootRole::ReadOnly && !is_own_volume && stat.st_mode & shared == shared {
        return Err(RootError::Shared { path: real });
    }
    let is_foreign = caller.uid != 0 && stat.st_uid != caller.uid && ownership == Ownership::Callers;
    if role != RootRole::ReadOnly && is_foreign {
        return Err(RootError::Foreign { path: real, owner: stat.st_uid, caller: caller.uid });
    }
    let root = Root { path: real, descriptor, role };
    governing.check(&[visible(&root)]).map_err(RootError::Governing)?;
    Ok(root)
}

/// A root as a visible directory, with the most access that a profile can give: the profile is not known here.
pub fn visible(root: &Root) -> VisiblePath<'_> {
    let access = root.role.max_access();
    VisiblePath { path: &root.path, descriptor: root.descriptor.as_fd(), access }
}

/// Resolves a path, and returns its real name and a descriptor. Magic links such as `/proc/PID/root` are not
/// followed: they would resolve with this process's view.
fn find(path: &Path) -> Result<(PathBuf, OwnedFd), RootError> {
    let open = |path: &Path, resolve| {
        openat2(AT_FDCWD, path, OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(resolve))
    };
    let failed = |cause: io::Error| RootError::Find { path: path.to_owned(), cause };
    let found = open(path, ResolveFlag::RESOLVE_NO_MAGICLINKS).map_err(|errno| failed(errno.into()))?;
    let real = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)?;
    // The name that the kernel reports must lead to the same object: a removed directory has no name, and another
    // directory may have taken its old one.
    let again = |cause| RootError::Open { path: path.to_owned(), cause };
    let named =
        open(&real, ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS).map_err(again)?;
    let (one, other) = (fstat(&found).map_err(again)?, fstat(&named).map_err(again)?);
    if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
        return Err(again(Errno::ESTALE));
    }
    Ok((real, found))
}

fn check_place(real: &Path, homes: &[PathBuf]) -> Result<(), RootError> {
    let path = || real.to_owned();
    for system in SYSTEM {
        if real.starts_with(system) || Path::new(system).starts_with(real) {
            return Err(RootError::System { path: path(), system: system.into() });
        }
    }
    if let Some(home) = homes.iter().find(|home| home.starts_with(real)) {
        return Err(RootError::Home { path: path(), home: home.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::home::homes_in, *};

    fn place(path: &str) -> Result<(), RootError> {
        let homes =
            homes_in("root:x:0:0::/root:/bin/sh\nbob:x:1000:1000::/home/bob:/bin/sh\nx:x:9:9::/:/bin/sh\n");
        check_place(Path::new(path), &homes)
    }

    #[test]
    fn places_of_work_are_allowed() {
        for path in
            ["/home/bob/project", "/work", "/tmp/x", "/srv/project", "/root/project", "/var/lib/jobs/1"]
        {
            assert!(place(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn system_directories_and_what_holds_them_or_lies_in_them_are_refused() {
        for path in [
            "/",
            "/usr",
            "/usr/local/src",
            "/etc/x",
            "/var",
            "/run/user/1000",
            "/proc/1",
            "/opt/x",
            "/dev/shm",
        ] {
            assert!(matches!(place(path), Err(RootError::System { .. })), "{path}");
        }
        assert!(place("/usrlocal").is_ok(), "a name that only begins alike is another place");
    }

    #[test]
    fn whole_homes_are_refused() {
        for path in ["/home/bob", "/home", "/root"] {
            assert!(matches!(place(path), Err(RootError::Home { .. })), "{path}");
        }
    }

    #[test]
    fn a_relative_path_a_file_and_an_absent_directory_are_told_apart() {
        let caller = Rights::own();
        let open =
            |path: &str| open(Path::new(path), RootRole::Work, &caller, &Governing::default()).unwrap_err();
        assert!(matches!(open("work"), RootError::NotAbsolute { .. }));
        assert!(matches!(open("/no/such/directory"), RootError::Find { .. }));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(open(file.path().to_str().unwrap()), RootError::NotADirectory { .. }));
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let me = nix::unistd::Uid::current().as_raw();
        let caller = Rights { uid: me + 77, gid: me + 77, groups: [].into() };
        let open = |role| open(directory.path(), role, &caller, &Governing::default());
        if me != 0 {
            assert!(matches!(open(RootRole::Work), Err(RootError::Rights { .. })));
            return;
        }
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        assert!(matches!(open(RootRole::Work), Err(RootError::Foreign { owner, .. }) if owner == me));
        assert!(open(RootRole::ReadOnly).is_ok(), "it can be read");
        let anybodys = Ownership::Anybodys;
        let shared = open_owned(directory.path(), RootRole::Work, &caller, &Governing::default(), anybodys);
        assert!(shared.is_ok(), "{shared:?}");
    }
}
