//! A directory of the host that commands can write to without changing it: an overlay (overlayfs) with the directory below, to be
//! read, and a tmpfs above.
//!
//! Made with the power that the supervisor has over its own user namespace, and no other: below and above are reached with the
//! rights of that namespace's root, whose ids are those of the sandbox.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
    sys::stat::{Mode, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat},
};

use super::{
    beneath::{NO_SUID_NO_DEV, fs_option, open_beneath},
    session_files,
};
use crate::{
    proto::supervisor::Mount,
    sys::mount::{self, Attributes, FsOption, MountScope},
};

/// Where the parts are attached while the overlay is made: overlayfs takes paths, and no detached mounts before Linux 6.15.
const BELOW: &str = ".below";
const ABOVE: &str = ".above";
/// What commands write, and what overlayfs needs next to it, in the tmpfs.
const UPPER: &str = "upper";
const WORK: &str = "work";

/// Makes an overlay, detached: `below` is a detached mount of the host's directory, and its root belongs to `owner`. `root` is
/// the sandbox's new root, in which nothing runs yet.
pub(super) fn make(
    root: &OwnedFd,
    below: OwnedFd,
    planned: &Mount,
    owner: (u32, u32),
) -> Result<OwnedFd, Errno> {
    let read_only = NO_SUID_NO_DEV.and(Attributes::READ_ONLY);
    mount::restrict(below.as_fd(), read_only, MountScope::Single)?;
    let above = session_files::make_tmpfs(planned, owner)?;
    let below = Staged::attach(root, BELOW, below)?;
    let above = Staged::attach(root, ABOVE, above)?;
    for name in [UPPER, WORK] {
        mkdirat(&above.mount, name, Mode::from_bits_truncate(0o755))?;
    }
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    fchownat(&above.mount, UPPER, Some(uid), Some(gid), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let options = [
        fs_option(c"lowerdir", &below.path()),
        fs_option(c"upperdir", &format!("{}/{UPPER}", above.path())),
        fs_option(c"workdir", &format!("{}/{WORK}", above.path())),
        // An ordinary user's overlay keeps its notes in attributes that such a user may write.
        FsOption::Flag(c"userxattr"),
    ];
    let overlay = mount::make(c"overlay", &options, NO_SUID_NO_DEV)?;
    // The overlay holds both by itself.
    below.detach(root)?;
    above.detach(root)?;
    Ok(overlay)
}

/// A mount at a place of the new root that no command ever sees.
struct Staged {
    mount: OwnedFd,
    name: &'static str,
}

impl Staged {
    fn attach(root: &OwnedFd, name: &'static str, mount: OwnedFd) -> Result<Self, Errno> {
        mkdirat(root, name, Mode::from_bits_truncate(0o755))?;
        let place = open_beneath(root.as_fd(), Path::new(name))?;
        mount::attach(mount.as_fd(), place.as_fd(), c"")?;
        Ok(Self { mount, name })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.mount.as_raw_fd())
    }

    fn detach(self, root: &OwnedFd) -> Result<(), Errno> {
        umount2(self.path().as_str(), MntFlags::MNT_DETACH)?;
        unlinkat(root, self.name, UnlinkatFlags::RemoveDir)
    }
}
