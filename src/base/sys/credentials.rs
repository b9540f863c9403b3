//! Privileges of a process: securebits, capabilities, ids for file access.
//!
//! Only removes privileges, except for [`UsernsOwner`], which restores what it has changed. Affects the calling
//! thread; callers are single-threaded.

use caps::{CapSet, Capability, CapsHashSet};
use nix::{
    errno::Errno,
    unistd::{Gid, Uid, setfsgid, setfsuid},
};

use super::rights::{Rights, set_groups};

/// Root has no special rights, ambient capabilities cannot be raised, and this cannot be undone. Changing from uid
/// 0 still drops the capabilities (`SECBIT_NO_SETUID_FIXUP` stays off, locked).
const SECURE_BITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_KEEP_CAPS_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// Sets and locks the secure bits (capabilities(7)). Needs `CAP_SETPCAP`.
///
/// # Errors
/// The errno of prctl(2).
pub fn lock_secure_bits() -> Result<(), Errno> {
    set_secure_bits(SECURE_BITS)
}

/// Why capabilities could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("give up capabilities")]
pub struct CapabilitiesError(#[from] caps::errors::CapsError);

/// Keeps these capabilities permitted and effective, and no other in any set; the bounding set is emptied.
///
/// # Errors
/// When the kernel refuses a change. The library does not hand out the errno.
pub fn keep_capabilities(kept: &[Capability]) -> Result<(), CapabilitiesError> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    caps::clear(None, CapSet::Ambient)?;
    for capability in caps::all() {
        // A kernel older than the library does not know all of them, and says so here.
        if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(())
}

/// Lets permitted capabilities survive changes of ids, until the secure bits are locked.
///
/// # Errors
/// The errno of prctl(2).
pub fn keep_capabilities_over_change_of_ids() -> Result<(), Errno> {
    // SAFETY: only numbers are passed.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }).map(drop)
}

/// Acts as another user in the kernel's accounting, with all capabilities, while this lives.
///
/// The creator of a user namespace is charged for what is counted in it (namespaces(7), `max_inotify_instances`,
/// pending signals). That must not be the host's root, which is charged for everything else.
#[derive(Debug)]
pub struct UsernsOwner {
    bits: libc::c_int,
}

impl UsernsOwner {
    /// Takes the effective id of this user. Only for the host's root, single-threaded.
    ///
    /// # Errors
    /// The errno of prctl(2) or seteuid(2).
    pub fn assume(uid: u32) -> Result<Self, Errno> {
        // SAFETY: only numbers are passed.
        let bits = Errno::result(unsafe { libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0) })?;
        let this = Self { bits };
        set_secure_bits(bits | libc::SECBIT_NO_SETUID_FIXUP)?;
        nix::unistd::seteuid(nix::unistd::Uid::from_raw(uid))?;
        Ok(this)
    }

    /// In the process that was made meanwhile: it stays who it is. What changing the id took from it, its own files in
    /// /proc, it has again until its ids change next.
    ///
    /// # Errors
    /// The errno of prctl(2).
    pub fn stay(self) -> Result<(), Errno> {
        std::mem::forget(self);
        nix::sys::prctl::set_dumpable(true)
    }
}

impl Drop for UsernsOwner {
    fn drop(&mut self) {
        // The real and the saved id were never changed, which is what allows this.
        let _ = nix::unistd::seteuid(nix::unistd::getuid());
        let _ = set_secure_bits(self.bits);
    }
}

fn set_secure_bits(bits: libc::c_int) -> Result<(), Errno> {
    // SAFETY: only numbers are passed.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, bits as libc::c_ulong, 0, 0, 0) }).map(drop)
}

/// Lets the calling thread do with files what this user may, and no more: where it was root's, it loses the
/// capabilities by which root reads and writes everything (capabilities(7), "effect of user ID changes").
///
/// # Errors
/// `EPERM` where another user's rights cannot be had; the thread then has the rights that it had.
pub fn restrict_file_access_to(rights: &Rights) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
    if !Uid::effective().is_root() {
        return if uid == Uid::effective() { Ok(()) } else { Err(Errno::EPERM) };
    }
    if !uid.is_root() {
        set_groups(&rights.groups)?;
    }
    set_file_access_ids(uid, gid)
}

/// Takes these ids for access to files only (setfsuid(2)). Needs `CAP_SETUID` and `CAP_SETGID`.
///
/// # Errors
/// `EPERM` if the kernel did not change them.
pub fn set_file_access_ids(uid: Uid, gid: Gid) -> Result<(), Errno> {
    setfsgid(gid);
    setfsuid(uid);
    // Neither says whether it was done: a second call tells what is in force.
    let is_done = setfsgid(Gid::from_raw(u32::MAX)) == gid && setfsuid(Uid::from_raw(u32::MAX)) == uid;
    if is_done { Ok(()) } else { Err(Errno::EPERM) }
}
