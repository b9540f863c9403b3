//! Directories of the host that commands can write to without changing them: an overlay (overlayfs) with the
//! directories below, to be read, and a tmpfs above.
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

/// An overlay, detached, and the directory that has what is written to it.
pub(super) struct Overlay {
    pub(super) mount: OwnedFd,
    pub(super) written: OwnedFd,
}

/// Makes an overlay: `below` are detached mounts of the host's directories, the lowest last, and what is above them
/// belongs to `owner`. `root` is the sandbox's new root, in which nothing runs yet.
pub(super) fn make(
    root: &OwnedFd,
    below: Vec<OwnedFd>,
    planned: &Mount,
    owner: (u32, u32),
) -> Result<Overlay, Errno> {
    let read_only = NO_SUID_NO_DEV.and(Attributes::READ_ONLY);
    let above = session_files::make_tmpfs(planned, owner)?;
    let mut layers = Vec::with_capacity(below.len());
    for (index, layer) in below.into_iter().enumerate() {
        mount::restrict(layer.as_fd(), read_only, MountScope::Single)?;
        layers.push(Staged::attach(root, format!("{BELOW}{index}"), layer)?);
    }
    let above = Staged::attach(root, ABOVE.into(), above)?;
    for name in [UPPER, WORK] {
        mkdirat(&above.mount, name, Mode::from_bits_truncate(0o755))?;
    }
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    fchownat(&above.mount, UPPER, Some(uid), Some(gid), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let options = [
        fs_option(c"lowerdir", &layers.iter().map(Staged::path).collect::<Vec<_>>().join(":")),
        fs_option(c"upperdir", &format!("{}/{UPPER}", above.path())),
        fs_option(c"workdir", &format!("{}/{WORK}", above.path())),
        // An ordinary user's overlay keeps its notes in attributes that such a user may write.
        FsOption::Flag(c"userxattr"),
    ];
    let mount = mount::make(c"overlay", &options, NO_SUID_NO_DEV)?;
    let written = open_beneath(above.mount.as_fd(), Path::new(UPPER))?;
    // The overlay holds them all by itself.
    layers.into_iter().try_for_each(|layer| layer.detach(root))?;
    above.detach(root)?;
    Ok(Overlay { mount, written })
}

/// A mount at a place of the new root that no command ever sees.
struct Staged {
    mount: OwnedFd,
    name: String,
}

impl Staged {
    fn attach(root: &OwnedFd, name: String, mount: OwnedFd) -> Result<Self, Errno> {
        mkdirat(root, name.as_str(), Mode::from_bits_truncate(0o755))?;
        let place = open_beneath(root.as_fd(), Path::new(&name))?;
        mount::attach(mount.as_fd(), place.as_fd(), c"")?;
        Ok(Self { mount, name })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.mount.as_raw_fd())
    }

    fn detach(self, root: &OwnedFd) -> Result<(), Errno> {
        umount2(self.path().as_str(), MntFlags::MNT_DETACH)?;
        unlinkat(root, self.name.as_str(), UnlinkatFlags::RemoveDir)
    }
}
