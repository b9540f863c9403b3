//! Into the new root and out of the old one.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::mount::MntFlags;

use super::{new_root::NewRoot, stage::StageError};
use crate::{
    proto::supervisor::Stage,
    sys::mount::{self, Attributes, MountScope},
};

/// pivot_root(2) into the view, which is then read-only; the old root is gone with everything that was only there.
pub fn enter(view: &NewRoot) -> Result<(), StageError> {
    let step = |index| StageError::of_step(Stage::PivotRoot, index);
    let root: &OwnedFd = &view.root;
    nix::unistd::fchdir(root).map_err(step(0))?;
    // With both the same, the old root lies over the new one until it is taken off (pivot_root(2), NOTES).
    nix::unistd::pivot_root(".", ".").map_err(step(1))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH).map_err(step(2))?;
    nix::unistd::chdir(Path::new("/")).map_err(step(3))?;
    mount::restrict(root.as_fd(), Attributes::READ_ONLY, MountScope::Single).map_err(step(4))
}
