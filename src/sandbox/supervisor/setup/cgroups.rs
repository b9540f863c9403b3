//! Puts the supervisor into its cgroups, makes room for the leaves of commands next to it, and shows programs the sandbox's cgroups.
//!
//! Makes no leaf for a command and sets no limit.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat},
    sys::stat::{FchmodatFlags, Mode, fchmodat},
    unistd::{Gid, Pid, Uid, fchownat},
};

use super::{
    PlanDescriptors, StageError, V1JoinFd,
    new_root::{NO_SUID_NO_DEV, NewRoot},
};
pub(crate) use crate::wire::launch::SUPERVISOR_LEAF;
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    proto::supervisor::{Identity, Stage},
    sys::{
        file,
        mount::{self, Attributes, FsOption, MountScope},
    },
};

/// What a supervisor needs of a v2 cgroup to make leaves and to move processes into them (cgroups(7), "delegation").
const V2_FILES: [&str; 4] = [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
/// The same of a v1 cgroup.
const V1_FILES: [&str; 3] = [".", "cgroup.procs", "tasks"];

/// Opens the `tasks` files of all v1 cgroups.
pub(crate) fn open_v1_join_fds(descriptors: &PlanDescriptors) -> Result<Vec<V1JoinFd>, StageError> {
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
pub(crate) fn join_v1_cgroups(descriptors: Vec<V1JoinFd>) -> Result<(), StageError> {
    for descriptor in descriptors {
        nix::unistd::write(&descriptor.tasks, b"0")
            .map_err(StageError::of_step(Stage::SupervisorCgroup, descriptor.index))?;
    }
    Ok(())
}

/// The v2 cgroup that the supervisor is cloned into.
pub(crate) fn v2_cgroup(descriptors: &PlanDescriptors) -> Option<BorrowedFd<'_>> {
    let v2 = descriptors.directories.iter().find(|directory| directory.hierarchy == Hierarchy::V2)?;
    Some(v2.descriptor.as_fd())
}

/// Moves a supervisor that could not be cloned into its v2 cgroup there, before it has done anything.
pub(crate) fn move_into_v2_cgroup(descriptors: &PlanDescriptors, supervisor: Pid) -> Result<(), StageError> {
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
pub(crate) fn move_to_supervisor_leaf(descriptors: &PlanDescriptors) -> Result<(), StageError> {
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
pub(crate) fn share_with_owner(descriptors: &PlanDescriptors, ids: &Identity) -> Result<(), StageError> {
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

/// Where programs look.
const PLACE: &str = "/sys/fs/cgroup";

/// The controllers of version 1 by their mount options. One that is not here is not shown.
const CONTROLLERS: [&CStr; 13] = [
    c"cpu",
    c"cpuacct",
    c"cpuset",
    c"memory",
    c"blkio",
    c"pids",
    c"freezer",
    c"devices",
    c"net_cls",
    c"net_prio",
    c"perf_event",
    c"hugetlb",
    c"misc",
];

/// The JVM takes no limit from version 1 before it has found a mount of each of these, whatever is in it.
const AWAITED: [&str; 3] = ["cpu", "cpuacct", "cpuset"];
/// The file that is shown of such a hierarchy: in it the sandbox has no cgroup, and the others' are nobody's business. It says nothing.
const PLAIN_FILE: &CStr = c"cgroup.clone_children";

/// Shows the cgroups of the plan. Call this in their namespace.
///
/// Shows the sandbox's own cgroups at `/sys/fs/cgroup`, read-only: programs size themselves by the limits that they find there (the
/// JVM, Go's automaxprocs, libuv).
///
/// The root of each is the sandbox's cgroup, because it is the root of the cgroup namespace: what is above is not there. A host that
/// does not let them be mounted has programs without limits, as before.
pub(super) fn show(view: &NewRoot, directories: &[CgroupDirectory]) -> Result<(), Errno> {
    let has_limits = |wanted: Hierarchy| {
        directories.iter().any(|one| one.hierarchy == wanted && !one.controllers.is_empty())
    };
    let is_hybrid = has_limits(Hierarchy::V1);
    if has_limits(Hierarchy::V2) {
        let place = Path::new(PLACE).join(if is_hybrid { "unified" } else { "" });
        if let Ok(mount) = mount::make(c"cgroup2", &[], attributes()) {
            mount::attach(mount.as_fd(), view.directory(&place)?.as_fd(), c"")?;
        }
    }
    if is_hybrid {
        let text = file::read_at(AT_FDCWD, Path::new("/proc/self/cgroup"))?;
        for names in hierarchies(&String::from_utf8_lossy(&text)) {
            show_v1(view, directories, names)?;
        }
    }
    Ok(())
}

/// The controllers of each hierarchy of version 1, as /proc/PID/cgroup has them.
fn hierarchies(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.split(':').nth(1));
    names.filter(|names| !names.is_empty() && !names.starts_with("name="))
}

fn show_v1(view: &NewRoot, directories: &[CgroupDirectory], names: &str) -> Result<(), Errno> {
    let has = |wanted: &str| names.split(',').any(|name| name == wanted);
    let is_own = |one: &CgroupDirectory| {
        one.hierarchy == Hierarchy::V1 && one.controllers.iter().any(|name| has(name))
    };
    let is_own = directories.iter().any(is_own);
    if !is_own && !AWAITED.into_iter().any(has) {
        return Ok(());
    }
    let known = |name: &str| CONTROLLERS.into_iter().find(|known| known.to_bytes() == name.as_bytes());
    let Some(options) =
        names.split(',').map(|name| known(name).map(FsOption::Flag)).collect::<Option<Vec<_>>>()
    else {
        return Ok(());
    };
    // Another hierarchy of these controllers is not made: only the host's first cgroup namespace may.
    let Ok(hierarchy) = mount::make(c"cgroup", &options, attributes()) else { return Ok(()) };
    let place: PathBuf = Path::new(PLACE).join(names);
    if is_own {
        return mount::attach(hierarchy.as_fd(), view.directory(&place)?.as_fd(), c"");
    }
    // Before Linux 6.15 only an attached mount can be copied.
    let Ok(one) = mount::copy(hierarchy.as_fd(), PLAIN_FILE, MountScope::Single) else { return Ok(()) };
    mount::restrict(one.as_fd(), attributes(), MountScope::Single)?;
    let file = view.empty_file(&place.join("cgroup.clone_children"))?;
    mount::attach(one.as_fd(), file.as_fd(), c"")
}

fn attributes() -> Attributes {
    NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_1_are_those_with_controllers() {
        let text = "9:name=systemd:/\n4:memory:/a:b\n3:cpu,cpuacct:/\n0::/x\n";
        assert_eq!(hierarchies(text).collect::<Vec<_>>(), ["memory", "cpu,cpuacct"]);
    }
}
