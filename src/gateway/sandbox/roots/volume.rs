//! File systems that are mounted below a directory to work in: disks, volumes of containers, memory. One that the caller may
//! work in by the rules for roots is worked in as the directory around it is; all others are covered, or shown to be read.

use std::{
    collections::BTreeMap,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use super::{
    governing::Governing,
    home::homes_for,
    open::{Ownership, RootError, SYSTEM, open_owned},
    path_walk::{self, FilesystemLocation, MountEntry, MountTable},
    root::{Root, RootRole},
};
use crate::sys::rights::Rights;

/// The most that a session takes; more are covered.
pub(super) const MAX_VOLUMES: usize = 16;

/// File systems by which the kernel shows itself, its processes and devices.
pub(crate) const KERNEL_FILESYSTEMS: [&str; 24] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "mqueue",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "bpf",
    "pstore",
    "efivarfs",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "binfmt_misc",
    "rpc_pipefs",
    "nfsd",
    "nsfs",
    "selinuxfs",
    "smackfs",
    "resctrl",
    "functionfs",
];

/// File systems in memory: below a directory of the system they are what the machine does now, or secrets of a container.
pub(crate) const MEMORY_FILESYSTEMS: [&str; 2] = ["tmpfs", "ramfs"];
/// What the machine does now.
const MACHINE: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];

/// Where the machine keeps what it does now, with what is in memory there: `/dev/shm`, the run directories of users.
pub(crate) fn machines_locations(mounts: &MountTable) -> Vec<FilesystemLocation> {
    let own = MACHINE.iter().filter_map(|place| location_of(mounts, Path::new(place)));
    let is_in_memory = |mount: &&MountEntry| MEMORY_FILESYSTEMS.iter().any(|kind| mount.filesystem == *kind);
    let below = MACHINE.iter().flat_map(|place| mounts.mounted_below(Path::new(place))).filter(is_in_memory);
    own.chain(below.map(|mount| mount.location.clone())).collect()
}

fn location_of(mounts: &MountTable, place: &Path) -> Option<FilesystemLocation> {
    let real = place.canonicalize().ok()?;
    mounts.location_of(path_walk::open(&real).ok()?.as_fd()).ok()?
}

/// The volumes below these roots. What cannot be worked in is left out: a sandbox covers it, and its receipt names it.
///
/// # Errors
/// [`RootError::Mounts`]: it cannot be found out what is mounted.
pub(crate) fn volumes_below(
    roots: &[Root],
    caller: &Rights,
    governing: &Governing,
    ownership: Ownership,
) -> Result<Vec<Root>, RootError> {
    let mounts = MountTable::read().map_err(|cause| RootError::Mounts { cause })?;
    let is_root = |point: &Path| roots.iter().any(|root| root.path == point);
    // Where several are mounted at one point, the last one is seen.
    let mut points: BTreeMap<&Path, &MountEntry> = BTreeMap::new();
    for root in roots.iter().filter(|root| root.role == RootRole::Work) {
        points.extend(mounts.mounted_below(&root.path).map(|mount| (mount.point.as_path(), mount)));
    }
    points.retain(|point, _| !is_root(point));
    if points.is_empty() {
        return Ok(Vec::new());
    }
    let hidden = Hidden::read(&mounts, caller);
    let mut volumes: Vec<Root> = Vec::new();
    // In the order of their paths: what is mounted below what is hidden is hidden, too.
    let mut passed_over: Option<&Path> = None;
    for (point, mount) in points {
        if passed_over.is_some_and(|above| point.starts_with(above)) || volumes.len() == MAX_VOLUMES {
            continue;
        }
        let volume = (!hidden.has(mount))
            .then(|| open_owned(point, RootRole::Volume, caller, governing, ownership).ok())
            .flatten()
            // By its own name, and not below what is mounted over it.
            .filter(|found| found.path == point && is_at(&mounts, found, &mount.location).unwrap_or(false));
        match volume {
            Some(volume) => volumes.push(volume),
            None => passed_over = Some(point),
        }
    }
    Ok(volumes)
}

fn is_at(mounts: &MountTable, root: &Root, location: &FilesystemLocation) -> io::Result<bool> {
    Ok(mounts
        .location_of(root.descriptor.as_fd())?
        .is_some_and(|found| found.is_within(location) && location.is_within(&found)))
}

/// What no root may be, by what it is and not by where it is mounted.
struct Hidden {
    system: Vec<FilesystemLocation>,
    homes: Vec<FilesystemLocation>,
}

impl Hidden {
    fn read(mounts: &MountTable, caller: &Rights) -> Self {
        let location = |place: &Path| location_of(mounts, place);
        let homes: Vec<PathBuf> = homes_for(caller);
        Self {
            system: SYSTEM
                .iter()
                .filter_map(|place| location(Path::new(place)))
                .chain(machines_locations(mounts))
                .collect(),
            homes: homes.iter().filter_map(|place| location(place)).collect(),
        }
    }

    fn has(&self, mount: &MountEntry) -> bool {
        let is_kernels = KERNEL_FILESYSTEMS.iter().any(|kind| mount.filesystem == *kind);
        let meets =
            |one: &FilesystemLocation| one.is_within(&mount.location) || mount.location.is_within(one);
        is_kernels
            || self.system.iter().any(meets)
            || self.homes.iter().any(|home| home.is_within(&mount.location))
    }
}
