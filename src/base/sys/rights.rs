//! A principal's rights on the file system, for one piece of work on one thread: fsuid, fsgid and supplementary
//! groups (credentials(7), setfsuid(2)).
//!
//! With an fsuid that is not root's, the kernel removes the capabilities that bypass permissions from the thread's
//! effective set (capabilities(7)), and restores them with root's. The work never runs with other rights than those
//! requested, and the process aborts if its own cannot be restored.

use std::sync::Arc;

use nix::{
    errno::Errno,
    unistd::{getegid, geteuid, getgroups},
};

/// An id that setfsuid(2) and setfsgid(2) ignore, to read the current one.
const NO_CHANGE: libc::c_uint = libc::c_uint::MAX;

/// The ids by which the kernel checks file permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Rights {
    /// The rights of this process.
    #[must_use]
    pub fn own() -> Self {
        let groups: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().map(nix::unistd::Gid::as_raw).collect();
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: groups.into() }
    }

    /// Runs `work` with these rights and no others. For root and for this process's own user nothing changes.
    /// `work` must not pass anything on to another thread, which has its own rights.
    ///
    /// # Errors
    /// `EPERM` where this process cannot take them on, for want of `CAP_SETUID` or `CAP_SETGID` over the ids; nothing was done.
    pub fn run_with<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let us = geteuid();
        // Root may do at least as much.
        if self.uid == us.as_raw() || self.uid == 0 {
            return Ok(work());
        }
        if !us.is_root() {
            return Err(Errno::EPERM);
        }
        let taken = RightsGuard::new(self)?;
        let done = work();
        drop(taken);
        Ok(done)
    }

    /// As [`Rights::run_with`], and others see these ids, too: a listener does with SO_PEERCRED and SO_PEERGROUPS of unix(7). The real and
    /// the saved ids of the thread stay this process's own, so that the user can neither signal nor trace it: kill(2), ptrace(2).
    ///
    /// # Errors
    /// As [`Rights::run_with`].
    pub fn run_as<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let own = Self::own();
        self.run_with(|| {
            if self.uid == own.uid || self.uid == 0 {
                return Ok(work());
            }
            let taken = EffectiveGuard::new(self, own)?;
            let done = work();
            drop(taken);
            Ok(done)
        })?
    }
}

/// Others see the thread as another user while this lives, which is shorter than its rights do.
struct EffectiveGuard {
    own: Rights,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl EffectiveGuard {
    fn new(rights: &Rights, own: Rights) -> Result<Self, Errno> {
        let taken = Self { own, _not_send: std::marker::PhantomData };
        set_effective_group(rights.gid)?;
        set_effective_user(rights.uid)?;
        Ok(taken)
    }
}

impl Drop for EffectiveGuard {
    fn drop(&mut self) {
        if set_effective_user(self.own.uid).is_err() || set_effective_group(self.own.gid).is_err() {
            // As in `RightsGuard`.
            std::process::abort();
        }
    }
}

/// The thread has other rights while this lives.
struct RightsGuard {
    own: Rights,
    /// The rights must be restored on the same thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl RightsGuard {
    fn new(rights: &Rights) -> Result<Self, Errno> {
        let own = Rights::own();
        // Who may not change the groups has changed nothing, and could not change them back.
        set_groups(&rights.groups)?;
        // From here on the own rights are restored on drop.
        let taken = Self { own, _not_send: std::marker::PhantomData };
        set_group(rights.gid)?;
        set_user(rights.uid)?;
        Ok(taken)
    }
}

impl Drop for RightsGuard {
    fn drop(&mut self) {
        if restore(&self.own).is_err() {
            // A thread that serves all users must not continue with one user's rights.
            std::process::abort();
        }
    }
}

/// The user first: only root may change groups, which is why it was changed last.
fn restore(own: &Rights) -> Result<(), Errno> {
    set_user(own.uid)?;
    set_groups(&own.groups)?;
    set_group(own.gid)
}

/// Affects the calling thread only; the C library's function would affect all threads.
pub(super) fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many numbers as the slice has, and keeps no reference to them.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(set).map(drop)
}

fn set_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: only a number is passed; the call sets what belongs to the calling thread.
    let now = unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(NO_CHANGE)
    };
    // It returns the previous value, and never an error.
    if now.cast_unsigned() == uid { Ok(()) } else { Err(Errno::EPERM) }
}

/// Affects the calling thread only, as in `set_groups`.
fn set_effective_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: only numbers are passed; the call sets what belongs to the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_setresuid, NO_CHANGE, uid, NO_CHANGE) };
    Errno::result(set).map(drop)
}

fn set_effective_group(gid: u32) -> Result<(), Errno> {
    // SAFETY: as in `set_effective_user`.
    let set = unsafe { libc::syscall(libc::SYS_setresgid, NO_CHANGE, gid, NO_CHANGE) };
    Errno::result(set).map(drop)
}

fn set_group(gid: u32) -> Result<(), Errno> {
    // SAFETY: as in `set_user`.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(NO_CHANGE)
    };
    if now.cast_unsigned() == gid { Ok(()) } else { Err(Errno::EPERM) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_principal_sees_what_it_sees_on_the_host_and_this_thread_afterwards_what_it_saw() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can take on rights");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let closed = directory.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::chown(&closed, None, Some(4243)).unwrap();
        let read = |uid, groups: &[u32]| {
            let rights = Rights { uid, gid: uid, groups: groups.into() };
            rights.run_with(|| fs::read(closed.join("file")).map_err(|error| error.kind())).unwrap()
        };
        assert_eq!(read(4242, &[]), Err(std::io::ErrorKind::PermissionDenied));
        assert_eq!(read(4242, &[4243]), Ok(b"x".to_vec()), "a member of the group may enter");
        assert_eq!(read(0, &[]), Ok(b"x".to_vec()));
        let own = Rights::own();
        assert!(fs::read(closed.join("file")).is_ok(), "what was taken on was given back");
        let panicked = std::panic::catch_unwind(|| {
            Rights { uid: 4242, gid: 4242, groups: [].into() }.run_with(|| panic!("in the work"))
        });
        assert!(panicked.is_err() && fs::read(closed.join("file")).is_ok());
        assert_eq!(Rights::own(), own);
    }

    #[test]
    fn a_listener_sees_the_principal_and_not_this_process() {
        use std::os::{
            fd::AsFd as _,
            unix::net::{UnixListener, UnixStream},
        };
        if !geteuid().is_root() {
            println!("SKIPPED: only root can take on rights");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let rights = Rights { uid: 4242, gid: 4243, groups: [4244].into() };
        let connect = || UnixStream::connect(&path).map_err(|error| error.kind());
        assert_eq!(
            rights.run_as(connect).unwrap().map(drop),
            Err(std::io::ErrorKind::PermissionDenied),
            "it is root's alone"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let own = Rights::own();
        let seen = |connected: UnixStream| {
            let accepted = listener.accept().unwrap().0;
            let peer = crate::sys::peer::credentials(&accepted.as_fd()).unwrap();
            drop(connected);
            (peer.uid, peer.gid)
        };
        assert_eq!(seen(rights.run_with(connect).unwrap().unwrap()), (0, 0), "rights alone are not seen");
        assert_eq!(seen(rights.run_as(connect).unwrap().unwrap()), (4242, 4243));
        assert_eq!(Rights::own(), own);
        assert_eq!(nix::unistd::getresuid().map(|ids| ids.effective.as_raw()), Ok(0));
    }

    #[test]
    fn root_that_may_not_change_its_ids_goes_on_with_its_own_rights() {
        use caps::{CapSet, Capability, drop};
        if !geteuid().is_root() {
            println!("SKIPPED: only root can take on rights");
            return;
        }
        for missing in [Capability::CAP_SETGID, Capability::CAP_SETUID] {
            // Capabilities belong to the thread.
            let tried = std::thread::spawn(move || {
                let own = Rights::own();
                drop(None, CapSet::Effective, missing).unwrap();
                let refused = Rights { uid: 4242, gid: 4243, groups: [4244].into() }.run_with(|| ());
                (refused, Rights::own() == own)
            });
            assert_eq!(tried.join().unwrap(), (Err(Errno::EPERM), true), "{missing}");
        }
    }

    #[test]
    fn who_is_not_root_cannot_become_another_user() {
        if geteuid().is_root() {
            println!("SKIPPED: root can");
            return;
        }
        let rights = Rights { uid: geteuid().as_raw() + 1, gid: 1, groups: [].into() };
        assert_eq!(rights.run_with(|| ()), Err(Errno::EPERM));
    }
}
