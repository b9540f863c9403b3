//! Whether this process is in a sandbox of Provost's itself, in which no other one can be made.

use std::{fs, io};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, openat2},
};

use crate::network::OWN_NAME;

/// Why no sandbox can be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process is in a sandbox of Provost's, in which no other one can be made: run the command as it is, it is confined already"
)]
pub struct Nested;

/// By the host's name, by what is taken from every command, and by the system call that the filter has none of.
///
/// # Errors
/// [`Nested`]: it is.
pub(crate) fn check() -> Result<(), Nested> {
    let is_named = nix::unistd::gethostname().is_ok_and(|name| name == OWN_NAME);
    match is_named && has_nothing().unwrap_or(false) && lacks_openat2() {
        true => Err(Nested),
        false => Ok(()),
    }
}

fn has_nothing() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Ok(field("CapBnd:") == Some("0000000000000000") && field("NoNewPrivs:") == Some("1"))
}

fn lacks_openat2() -> bool {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    openat2(AT_FDCWD, "/", how).map(drop) == Err(Errno::ENOSYS)
}
