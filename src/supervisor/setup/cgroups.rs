//! Puts the supervisor into its cgroups and makes room for the leaves of commands next to it.
//!
//! Makes no leaf for a command and sets no limit.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::Mode,
    unistd::Pid,
};

use super::{
    descriptors::{PlanDescriptors, V1JoinFd},
    stage::StageError,
};
use crate::{cgroup::Hierarchy, proto::supervisor::Stage, sys::file};

/// The supervisor's leaf in a v2 cgroup whose controllers are enabled for the other leaves.
pub const SUPERVISOR_LEAF: &str = "supervisor";

/// Opens the `tasks` files of all v1 cgroups.
pub fn open_v1_join_fds(descriptors: &PlanDescriptors) -> Result<Vec<V1JoinFd>, StageError> {
    let v1 = descriptors
        .directories
        .iter()
        .enumerate()
        .filter(|(_, directory)| directory.hierarchy == Hierarchy::V1);
    v1.map(|(index, directory)| {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let tasks = openat(&directory.descriptor, "tasks", flags, Mode::empty())
            .map_err(StageError::of_step(Stage::SupervisorCgroup, index))?;
        Ok(V1JoinFd { tasks, index })
    })
    .collect()
}

/// Joins the v1 cgroups. Writing `tasks` moves the own thread without the global lock that `cgroup.procs` takes.
pub fn join_v1_cgroups(descriptors: Vec<V1JoinFd>) -> Result<(), StageError> {
    for descriptor in descriptors {
        nix::unistd::write(&descriptor.tasks, b"0")
            .map_err(StageError::of_step(Stage::SupervisorCgroup, descriptor.index))?;
    }
    Ok(())
}

/// The v2 cgroup that the supervisor is cloned into.
pub fn v2_cgroup(descriptors: &PlanDescriptors) -> Option<BorrowedFd<'_>> {
    let v2 = descriptors.directories.iter().find(|directory| directory.hierarchy == Hierarchy::V2)?;
    Some(v2.descriptor.as_fd())
}

/// Moves a supervisor that could not be cloned into its v2 cgroup there, before it has done anything.
pub fn move_into_v2_cgroup(descriptors: &PlanDescriptors, supervisor: Pid) -> Result<(), StageError> {
    for (index, directory) in descriptors.directories.iter().enumerate() {
        if directory.hierarchy == Hierarchy::V2 {
            let processes = Path::new("cgroup.procs");
            file::write_once_at(directory.descriptor.as_fd(), processes, supervisor.to_string().as_bytes())
                .map_err(StageError::of_step(Stage::SupervisorCgroup, index))?;
        }
    }
    Ok(())
}

/// Moves the supervisor to its leaf, because a cgroup with processes cannot enable controllers for its children
/// (cgroups(7), "no internal processes"). The root of its cgroup namespace stays the sandbox's cgroup: with
/// `nsdelegate` no process can be cloned outside of the namespace's root.
pub fn move_to_supervisor_leaf(descriptors: &PlanDescriptors) -> Result<(), StageError> {
    for (index, directory) in descriptors.directories.iter().enumerate() {
        if directory.hierarchy == Hierarchy::V2 && !directory.controllers.is_empty() {
            let step = StageError::of_step(Stage::SupervisorCgroup, index);
            move_to_leaf(directory.descriptor.as_fd()).map_err(&step)?;
            let enable: Vec<String> = directory.controllers.iter().map(|name| format!("+{name}")).collect();
            let subtree = Path::new("cgroup.subtree_control");
            file::write_once_at(directory.descriptor.as_fd(), subtree, enable.join(" ").as_bytes())
                .map_err(&step)?;
        }
    }
    Ok(())
}

fn move_to_leaf(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    match nix::sys::stat::mkdirat(directory, SUPERVISOR_LEAF, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    file::write_once_at(directory, &Path::new(SUPERVISOR_LEAF).join("cgroup.procs"), b"0")
}
