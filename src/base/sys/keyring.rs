//! The session keyring: keyctl(2).

use nix::errno::Errno;

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Leaves the session keyring that was inherited for a new, empty, unnamed one.
///
/// A kernel without keyrings has nothing to leave: that is success.
///
/// # Errors
/// The errno of keyctl(2), e.g. `EDQUOT`.
pub fn leave_inherited() -> Result<(), Errno> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is read.
    let done = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match Errno::result(done) {
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
