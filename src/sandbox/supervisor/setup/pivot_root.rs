//! Enters the new root and detaches the old one.

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

/// Enters the new root with pivot_root(2) and makes it read-only. The old root is unmounted.
pub fn enter(view: &NewRoot) -> Result<(), StageError> {
    let step = |index| StageError::of_step(Stage::PivotRoot, index);
    let root: &OwnedFd = &view.root;
    nix::unistd::fchdir(root).map_err(step(0))?;
    // With both arguments the same, the old root is stacked on the new one until it is unmounted (pivot_root(2),
    // NOTES).
    nix::unistd::pivot_root(".", ".").map_err(step(1))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH).map_err(step(2))?;
    nix::unistd::chdir(Path::new("/")).map_err(step(3))?;
    mount::restrict(root.as_fd(), Attributes::READ_ONLY, MountScope::Single).map_err(step(4))
}
