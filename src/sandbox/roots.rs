//! Which folders may be a session's root, and opening them so that they stay the same.
//!
//! Refuses whatever is not somebody's work: system folders, whole homes, the kernel's file systems, the gateway's
//! own state, and folders of somebody else. Decides by descriptor, never twice by path.

use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2},
};

use super::spec::{Owner, Root};

/// Why a folder cannot be a root.
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
    /// It cannot be opened, or changed while it was looked at.
    #[error("open root {path:?}")]
    Open {
        /// Without links.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Errno,
    },
    /// Something else than a folder is there.
    #[error("root {path:?} is not a folder")]
    NotAFolder {
        /// Without links.
        path: PathBuf,
    },
    /// It holds, is, or lies in a folder of the system.
    #[error("root {path:?} is, holds or lies in the system's folder {system:?}")]
    System {
        /// Without links.
        path: PathBuf,
        /// The system's.
        system: PathBuf,
    },
    /// It is or holds the home of a user.
    #[error("root {path:?} is or holds the whole home {home:?}")]
    Home {
        /// Without links.
        path: PathBuf,
        /// The home.
        home: PathBuf,
    },
    /// It is, holds or lies in the gateway's state.
    #[error("root {path:?} is, holds or lies in the gateway's state")]
    State {
        /// Without links.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("root {path:?} belongs to uid {owner}, not to the caller's {caller}")]
    Foreign {
        /// Without links.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who asked.
        caller: u32,
    },
}

/// Folders that no root may be, hold, or lie in.
const SYSTEM: [&str; 17] = [
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

/// Opens a root for a caller. `state` is the gateway's own folder.
///
/// # Errors
/// [`RootError`]: nothing was made, nothing is kept open.
pub fn open(path: &Path, caller: Owner, state: &Path) -> Result<Root, RootError> {
    if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
        return Err(RootError::NotAbsolute { path: path.to_owned() });
    }
    let real = path.canonicalize().map_err(|cause| RootError::Find { path: path.to_owned(), cause })?;
    let descriptor = open_without_links(&real)?;
    let stat =
        nix::sys::stat::fstat(&descriptor).map_err(|cause| RootError::Open { path: real.clone(), cause })?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(RootError::NotAFolder { path: real });
    }
    check_place(&real, &homes(), state)?;
    if caller.uid != 0 && stat.st_uid != caller.uid {
        return Err(RootError::Foreign { path: real, owner: stat.st_uid, caller: caller.uid });
    }
    Ok(Root { path: real, descriptor })
}

/// What was canonical a moment ago must still be: a link that has appeared meanwhile is an error.
fn open_without_links(real: &Path) -> Result<OwnedFd, RootError> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(AT_FDCWD, real, how).map_err(|cause| RootError::Open { path: real.to_owned(), cause })
}

fn check_place(real: &Path, homes: &[PathBuf], state: &Path) -> Result<(), RootError> {
    let path = || real.to_owned();
    for system in SYSTEM {
        if real.starts_with(system) || Path::new(system).starts_with(real) {
            return Err(RootError::System { path: path(), system: system.into() });
        }
    }
    if let Some(home) = homes.iter().find(|home| home.starts_with(real)) {
        return Err(RootError::Home { path: path(), home: home.clone() });
    }
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    if real.starts_with(&state) || state.starts_with(real) {
        return Err(RootError::State { path: path() });
    }
    Ok(())
}

/// The homes of the host's users, by /etc/passwd. Places that are no homes of people (`/`, `/nonexistent`, ...) are
/// left out or harmless.
fn homes() -> Vec<PathBuf> {
    let passwd = std::fs::read(Path::new("/etc/passwd")).unwrap_or_default();
    let mut homes = homes_in(&String::from_utf8_lossy(&passwd));
    homes.push("/root".into());
    homes
}

fn homes_in(passwd: &str) -> Vec<PathBuf> {
    passwd
        .lines()
        .filter_map(|line| line.split(':').nth(5))
        .map(PathBuf::from)
        .filter(|home| {
            home.is_absolute() && home.components().any(|part| matches!(part, Component::Normal(_)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Result<(), RootError> {
        let homes =
            homes_in("root:x:0:0::/root:/bin/sh\nbob:x:1000:1000::/home/bob:/bin/sh\nx:x:9:9::/:/bin/sh\n");
        check_place(Path::new(path), &homes, Path::new("/srv/gateway/state"))
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
    fn system_folders_and_what_holds_them_or_lies_in_them_are_refused() {
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
    fn the_gateway_s_state_is_refused_from_both_sides() {
        for path in ["/srv", "/srv/gateway", "/srv/gateway/state", "/srv/gateway/state/sandboxes"] {
            assert!(matches!(place(path), Err(RootError::State { .. })), "{path}");
        }
    }

    #[test]
    fn a_relative_path_a_file_and_an_absent_folder_are_told_apart() {
        let caller = Owner { uid: 0, gid: 0 };
        let open = |path: &str| open(Path::new(path), caller, Path::new("/srv/gateway/state")).unwrap_err();
        assert!(matches!(open("work"), RootError::NotAbsolute { .. }));
        assert!(matches!(open("/no/such/folder"), RootError::Find { .. }));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(open(file.path().to_str().unwrap()), RootError::NotAFolder { .. }));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let me = nix::unistd::Uid::current().as_raw();
        let caller = Owner { uid: me + 77, gid: me + 77 };
        let refused = open(folder.path(), caller, Path::new("/srv/gateway/state")).unwrap_err();
        assert!(matches!(refused, RootError::Foreign { owner, .. } if owner == me));
    }
}
