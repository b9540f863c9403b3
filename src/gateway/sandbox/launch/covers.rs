//! What is covered of the host's directories that a sandbox shows: the one place that decides it, for each of them.
//!
//! Covered are what governs commands, sockets on which the host's processes listen, and file systems that are mounted below: the
//! kernel's and the machine's own always, others where nobody would look for what a command leaves. Nothing is searched
//! but directories in which commands work, and those only for a socket that is elsewhere than it was bound. Changes nothing.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use super::{
    host_sockets::HostSockets,
    rootfs_error::RootfsError,
    shown::{ShownDirectory, ShownFor},
};
use crate::{
    byte_text,
    proto::supervisor::{Mount, mount::Kind},
    sandbox::{
        protections::COVERED_MOUNT,
        roots::{
            KERNEL_FILESYSTEMS, MEMORY_FILESYSTEMS,
            governing::{CoverExtent, GoverningView},
            machines_locations,
            path_walk::{self, FilesystemLocation, MountEntry, MountTable},
        },
        spec::Shortfall,
    },
};

/// The most that is covered in one directory.
pub(super) const MAX_COVERED: usize = 512;

/// What people and programs have there, which no directory of the system has.
const PRIVATE: [&str; 4] = ["/home", "/root", "/tmp", "/var/tmp"];

/// What is covered.
#[derive(Debug, Default)]
pub(super) struct Covers {
    /// By place.
    mounts: BTreeMap<PathBuf, Mount>,
    /// The sockets among them.
    pub sockets: BTreeSet<PathBuf>,
    /// What is not known.
    pub shortfall: Option<Shortfall>,
}

impl Covers {
    /// The covers, but for what the session shows by itself, or on the way to that.
    pub(super) fn into_mounts(self, is_shown: impl Fn(&Path) -> bool) -> impl Iterator<Item = Mount> {
        self.mounts.into_iter().filter(move |(place, _)| !is_shown(place)).map(|(_, mount)| mount)
    }

    /// The sockets below a directory, relative to it.
    pub(super) fn sockets_below(&self, directory: &Path) -> Vec<PathBuf> {
        self.sockets
            .iter()
            .filter_map(|place| place.strip_prefix(directory).ok().map(Path::to_owned))
            .collect()
    }

    /// One more cover; the first one of a place stays.
    pub(super) fn add(&mut self, place: &Path, what: &str, is_shown_read_only: bool) {
        let mount = Mount {
            kind: Kind::Cover.into(),
            source: what.to_owned(),
            target: byte_text::from_path(place),
            recursive: is_shown_read_only,
            ..Mount::default()
        };
        self.mounts.entry(place.to_owned()).or_insert(mount);
    }
}

/// Decides what is covered in all that is shown.
///
/// # Errors
/// [`RootfsError`]: it cannot be found out, cannot be covered, or is too much.
pub(super) fn decide(
    shown: &[ShownDirectory<'_>],
    system: &[PathBuf],
    governing: &GoverningView,
) -> Result<Covers, RootfsError> {
    let mut covers = Covers::default();
    let all: Vec<&Path> = shown.iter().map(|one| one.path).collect();
    for cover in governing.covers(system, &all).map_err(RootfsError::Governing)? {
        if cover.extent != CoverExtent::Nothing {
            covers.add(&cover.place, &cover.kind.to_string(), false);
        }
    }
    let machine = HiddenLocations::new(&governing.mounts);
    for one in shown {
        let mut hidden: Option<&Path> = None;
        let mut below: Vec<&MountEntry> = governing.mounts.mounted_below(one.path).collect();
        below.sort_by(|one, other| one.point.cmp(&other.point));
        for mount in below {
            if hidden.is_some_and(|above| mount.point.starts_with(above)) {
                continue;
            }
            match machine.visibility(one, mount) {
                Visibility::Shown => {}
                Visibility::ReadOnly => {
                    covers.add(&mount.point, &format!("{COVERED_MOUNT}, read-only"), true);
                }
                Visibility::Covered => {
                    hidden = Some(&mount.point);
                    covers.add(&mount.point, COVERED_MOUNT, false);
                }
            }
        }
    }
    let sockets = HostSockets::read(&governing.mounts).map_err(RootfsError::HostObjects)?;
    let found = sockets.below(shown);
    covers.shortfall = found
        .shortfall
        .map(|reason| Shortfall { protection: "host-sockets".into(), reason: reason.to_owned() });
    for place in found.places {
        let is_below = |(above, mount): (&PathBuf, &Mount)| !mount.recursive && place.starts_with(above);
        if !covers.mounts.iter().any(is_below) {
            covers.add(&place, "socket", false);
            covers.sockets.insert(place);
        }
    }
    for one in shown {
        if covers.mounts.keys().filter(|place| place.starts_with(one.path)).count() > MAX_COVERED {
            return Err(RootfsError::TooManyHostObjects { path: one.path.to_owned(), max: MAX_COVERED });
        }
    }
    Ok(covers)
}

#[derive(Debug, PartialEq, Eq)]
enum Visibility {
    Shown,
    ReadOnly,
    Covered,
}

/// Locations that are shown nowhere, looked up when something is mounted.
struct HiddenLocations<'a> {
    mounts: &'a MountTable,
    machine: OnceCell<Vec<FilesystemLocation>>,
    private: OnceCell<Vec<FilesystemLocation>>,
}

impl<'a> HiddenLocations<'a> {
    fn new(mounts: &'a MountTable) -> Self {
        Self { mounts, machine: OnceCell::new(), private: OnceCell::new() }
    }

    /// What a sandbox has of what is mounted below a directory.
    fn visibility(&self, shown: &ShownDirectory<'_>, mount: &MountEntry) -> Visibility {
        let is_kind = |kinds: &[&str]| kinds.iter().any(|kind| mount.filesystem == *kind);
        if is_kind(&KERNEL_FILESYSTEMS) {
            return Visibility::Covered;
        }
        let is_system = shown.shown_for == ShownFor::System;
        let is_hidden = || {
            self.is_machines(mount) || (is_system && (is_kind(&MEMORY_FILESYSTEMS) || self.is_private(mount)))
        };
        // A file is mounted for what it says: the resolv.conf(5) of a container.
        let is_file = || mount.point.symlink_metadata().is_ok_and(|found| !found.is_dir());
        if is_hidden() && !is_file() {
            return Visibility::Covered;
        }
        match (shown.is_recursive, shown.shown_for) {
            (false, _) => Visibility::Covered,
            (true, ShownFor::Session | ShownFor::SessionToRead) => Visibility::ReadOnly,
            (true, ShownFor::System | ShownFor::Profile | ShownFor::Writable) => Visibility::Shown,
        }
    }

    fn is_machines(&self, mount: &MountEntry) -> bool {
        meets(self.machine.get_or_init(|| machines_locations(self.mounts)), mount)
    }

    fn is_private(&self, mount: &MountEntry) -> bool {
        let location = |place: &&str| {
            let real = Path::new(place).canonicalize().ok()?;
            self.mounts.location_of(path_walk::open(&real).ok()?.as_fd()).ok()?
        };
        meets(self.private.get_or_init(|| PRIVATE.iter().filter_map(location).collect()), mount)
    }
}

/// Whether a mount shows one of these locations, holds it, or lies in it.
fn meets(locations: &[FilesystemLocation], mount: &MountEntry) -> bool {
    locations.iter().any(|one| one.is_within(&mount.location) || mount.location.is_within(one))
}
