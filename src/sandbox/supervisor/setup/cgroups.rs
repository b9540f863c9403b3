//! Puts the supervisor into its cgroups and makes room for the leaves of commands next to it.
//!
//! Makes no leaf for a command and sets no limit.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{FchmodatFlags, Mode, fchmodat},
    unistd::{Gid, Pid, Uid, fchownat},
};

use super::{
    descriptors::{PlanDescriptors, V1JoinFd},
    stage::StageError,
};
use crate::{
    cgroup::Hierarchy,
    proto::supervisor::{Identity, Stage},
    sys::file,
};

/// What a supervisor needs of a v2 cgroup to make leaves and to move processes into them (cgroups(7), "delegation").
const V2_FILES: [&str; 4] = [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
/// The same of a v1 cgroup.
const V1_FILES: [&str; 3] = [".", "cgroup.procs", "tasks"];

pub use crate::wire::launch::SUPERVISOR_LEAF;

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

/// Lets a supervisor with a subordinate id make leaves in cgroups that stay its user's, by their group. Its own leaf becomes the
/// user's, so that the launcher can clone a gate into it.
pub fn share_with_owner(descriptors: &PlanDescriptors, ids: &Identity) -> Result<(), StageError> {
    let user = (Uid::from_raw(ids.command_uid), Gid::from_raw(ids.command_gid));
    for (index, directory) in descriptors.directories.iter().enumerate() {
        let step = StageError::of_step(Stage::SupervisorCgroup, index);
        let at = directory.descriptor.as_fd();
        let files: &[&str] = match directory.hierarchy {
            Hierarchy::V2 => &V2_FILES,
            Hierarchy::V1 => &V1_FILES,
        };
        for name in files {
            share(at, name).map_err(&step)?;
        }
        if directory.hierarchy == Hierarchy::V2 && !directory.controllers.is_empty() {
            let leaf = Path::new(SUPERVISOR_LEAF);
            for name in [".", "cgroup.procs"] {
                fchownat(at, &leaf.join(name), Some(user.0), Some(user.1), AtFlags::empty())
                    .map_err(&step)?;
            }
        }
    }
    Ok(())
}

/// Gives a file of a cgroup to the supervisor's group, which may then write it.
fn share(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let writable = if name == "." { 0o775 } else { 0o664 };
    fchownat(directory, name, None, Some(Gid::from_raw(0)), AtFlags::empty())?;
    fchmodat(directory, name, Mode::from_bits_truncate(writable), FchmodatFlags::FollowSymlink)
}
