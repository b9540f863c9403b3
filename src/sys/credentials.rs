//! What a process may: securebits, `no_new_privs`, dumpability, capabilities.
//!
//! Only takes away. Acts on the calling thread; the callers are single-threaded.

use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;

/// Root is nobody special, ambient capabilities cannot be raised, and none of it can be changed back. Changing
/// from uid 0 still takes the capabilities away (`SECBIT_NO_SETUID_FIXUP` stays off, locked).
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
    // SAFETY: only numbers are passed.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS as libc::c_ulong, 0, 0, 0) })
        .map(drop)
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
