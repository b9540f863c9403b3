//! How a process that was made reports on its set-up to the launcher, through a pipe.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::setup::StageError;
use crate::proto::supervisor::Stage;

/// Waits for the report.
pub(super) fn wait_until_ready(outcome: &OwnedFd) -> Result<(), StageError> {
    let bytes = read_outcome(outcome).map_err(|errno| StageError::new(Stage::Unspecified, errno))?;
    StageError::decode(bytes).map_or(Ok(()), Err)
}

/// The report on a set-up; `ECHILD` when it died without one (killed, or out of memory).
pub(super) fn read_outcome(outcome: &OwnedFd) -> Result<[u8; StageError::BYTES], Errno> {
    let mut bytes = [0_u8; StageError::BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match nix::unistd::read(outcome, &mut bytes[filled..]) {
            Ok(0) => return Err(Errno::ECHILD),
            Ok(count) => filled += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}
