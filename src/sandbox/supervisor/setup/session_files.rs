//! The directories that the sandboxes of a session have in common: a tmpfs that is made for the first of them, and attached in
//! each.
//!
//! No two sandboxes see one another's mounts, and none can copy a mount that is attached in another. So every supervisor
//! keeps a detached mount of each, and hands it to the next sandbox through the gateway.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::beneath::{NO_SUID_NO_DEV, fs_option};
use crate::{
    proto::supervisor::Mount,
    sys::mount::{self, Attributes, MountScope},
};

/// A tmpfs as planned, detached, whose root has this owner.
pub(super) fn make_tmpfs(planned: &Mount, (uid, gid): (u32, u32)) -> Result<OwnedFd, Errno> {
    let options = [
        fs_option(c"mode", &format!("{:o}", planned.mode)),
        fs_option(c"size", &planned.size_bytes.to_string()),
        fs_option(c"nr_inodes", &planned.inodes.to_string()),
        fs_option(c"uid", &uid.to_string()),
        fs_option(c"gid", &gid.to_string()),
    ];
    mount::make(c"tmpfs", &options, attributes(planned))
}

/// Attaches the tmpfs, and returns a detached mount of it for the next sandbox.
pub(super) fn attach(source: OwnedFd, planned: &Mount, place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let copy = |of: &OwnedFd| mount::copy(of.as_fd(), c"", MountScope::Single);
    let restrict = |one: &OwnedFd| mount::restrict(one.as_fd(), attributes(planned), MountScope::Single);
    match copy(&source) {
        Ok(own) => {
            restrict(&own)?;
            mount::attach(own.as_fd(), place, c"")?;
            Ok(source)
        }
        // Before Linux 6.15 only an attached mount can be copied. Nobody runs here who could see it unrestricted.
        Err(Errno::EINVAL) => {
            mount::attach(source.as_fd(), place, c"")?;
            let next = copy(&source)?;
            restrict(&source)?;
            Ok(next)
        }
        Err(errno) => Err(errno),
    }
}

fn attributes(planned: &Mount) -> Attributes {
    if planned.no_exec { NO_SUID_NO_DEV.and(Attributes::NO_EXEC) } else { NO_SUID_NO_DEV }
}
