//! The supervisor's own place in the cgroup hierarchies, and room for leaves beside it.
//!
//! Makes no leaf for a command and sets no limit.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use nix::{errno::Errno, sys::stat::Mode, unistd::Pid};

use super::{Descriptors, StageError};
use crate::{cgroup::Hierarchy, proto::supervisor::Stage, sys::file};

/// The supervisor's leaf in a v2 folder whose controllers are handed on to other leaves.
pub const SUPERVISOR_LEAF: &str = "supervisor";

/// Puts the calling process into the sandbox's v1 folders, for its child to inherit. Through `tasks`: for one's
/// own thread that takes no global lock, unlike `cgroup.procs`.
pub fn join_v1(descriptors: &Descriptors) -> Result<(), StageError> {
    for (index, folder) in descriptors.folders.iter().enumerate() {
        if folder.hierarchy == Hierarchy::V1 {
            file::write_once_at(folder.descriptor.as_fd(), Path::new("tasks"), b"0")
                .map_err(StageError::of_step(Stage::SupervisorCgroup, index))?;
        }
    }
    Ok(())
}

/// The v2 folder that the supervisor is cloned into.
pub fn birthplace(descriptors: &Descriptors) -> Option<BorrowedFd<'_>> {
    let v2 = descriptors.folders.iter().find(|folder| folder.hierarchy == Hierarchy::V2)?;
    Some(v2.descriptor.as_fd())
}

/// Puts a supervisor that could not be born in its v2 folder there, before it has done anything.
pub fn seat(descriptors: &Descriptors, supervisor: Pid) -> Result<(), StageError> {
    for (index, folder) in descriptors.folders.iter().enumerate() {
        if folder.hierarchy == Hierarchy::V2 {
            let processes = Path::new("cgroup.procs");
            file::write_once_at(folder.descriptor.as_fd(), processes, supervisor.to_string().as_bytes())
                .map_err(StageError::of_step(Stage::SupervisorCgroup, index))?;
        }
    }
    Ok(())
}

/// Moves the supervisor out of a v2 folder that is to hand controllers to leaves: a group with processes of its
/// own cannot (cgroups(7), "no internal processes"). Its cgroup namespace stays rooted at the folder, because
/// with `nsdelegate` nothing outside of the namespace's root can be cloned into.
pub fn make_room_for_leaves(descriptors: &Descriptors) -> Result<(), StageError> {
    for (index, folder) in descriptors.folders.iter().enumerate() {
        if folder.hierarchy == Hierarchy::V2 && !folder.controllers.is_empty() {
            let step = StageError::of_step(Stage::SupervisorCgroup, index);
            move_to_leaf(folder.descriptor.as_fd()).map_err(&step)?;
            let enable: Vec<String> = folder.controllers.iter().map(|name| format!("+{name}")).collect();
            let subtree = Path::new("cgroup.subtree_control");
            file::write_once_at(folder.descriptor.as_fd(), subtree, enable.join(" ").as_bytes())
                .map_err(&step)?;
        }
    }
    Ok(())
}

fn move_to_leaf(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    match nix::sys::stat::mkdirat(folder, SUPERVISOR_LEAF, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    file::write_once_at(folder, &Path::new(SUPERVISOR_LEAF).join("cgroup.procs"), b"0")
}
