//! One inotify(7) instance for a workspace: its watches and events; and the gateway's budget of instances and watches.
//!
//! An instance knows which directory or file each watch is for, and nothing of what is in it. It never blocks.
//!
//! The kernel counts instances for the gateway's user, which other programs of the host share. So all workspaces together use a part of the
//! host's limit, and those of one owner a part of that: an owner with many workspaces takes nothing from other owners or from the host. A
//! workspace without a lease is scanned instead.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};

use super::tree::Tree;
use crate::sys::pending;

/// What one read of events returns at least, where more than that waits: the reader's buffer is 4 KiB, and an event has at
/// most 272 bytes (inotify(7)).
const MIN_READ_BYTES: usize = 4_096 - 272;
/// Where more than this waits, something has changed: it is for the thread to read.
const MAX_QUICK_READ_BYTES: usize = 4_096;

/// New names in any directory.
const DIRECTORY_EVENTS: Flags = Flags::IN_CREATE.union(Flags::IN_MOVED_TO).union(Flags::IN_ONLYDIR);
/// Changes of a file, by whichever of its names.
const FILE_EVENTS: Flags = Flags::IN_MODIFY.union(Flags::IN_CLOSE_WRITE).union(Flags::IN_ATTRIB);

const SCANS_ONLY: &str = "changes are found by scans only, at each terminal's end";

/// Something that has changed.
#[derive(Debug)]
pub(super) enum InotifyEventKind {
    /// More than the kernel keeps.
    Overflow,
    /// A file, seen by these directories.
    File(BTreeSet<PathBuf>),
    /// A name came into a directory.
    Name {
        /// The directory, where it was last seen.
        at: PathBuf,
        /// The name.
        name: OsString,
        /// Whether it is a directory's.
        is_directory: bool,
    },
}

/// Whether a directory is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddWatchOutcome {
    /// From now on.
    New,
    /// It was before.
    Already,
    /// It is not.
    No,
}

/// An instance of inotify, where one could be had.
#[derive(Debug)]
pub(super) struct InotifyEvents {
    inotify: Option<Inotify>,
    /// The lease of the host's instances and watches; there is no `inotify` without it.
    lease: Option<InotifyLease>,
    /// Directories that are watched, and where each was last seen.
    directories: HashMap<WatchDescriptor, PathBuf>,
    /// Files that are watched, and the directories by which each is seen: a file can have many names.
    files: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
    /// Why it notices nothing.
    pub shortfall: Option<String>,
}

impl InotifyEvents {
    /// Watches nothing yet. Without a share of the host's inotify it never will.
    pub(super) fn new(share: Option<InotifyLease>) -> Self {
        let made = match share {
            Some(share) => Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
                .map(|inotify| (inotify, share))
                .map_err(|errno| format!("inotify_init: {}", errno.desc())),
            None => Err("the instances of inotify that the gateway takes are in use".to_owned()),
        };
        let shortfall = made.as_ref().err().map(|reason| format!("{SCANS_ONLY}: {reason}"));
        let (inotify, lease) = made.ok().unzip();
        Self { inotify, lease, directories: HashMap::new(), files: HashMap::new(), shortfall }
    }

    /// Whether inotify is in use. When it is not, changes are found by scans only.
    pub(super) fn is_active(&self) -> bool {
        self.inotify.is_some()
    }

    /// How many directories are watched.
    pub(super) fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Whether so much waits that it is for the thread to read.
    pub(super) fn has_backlog(&self) -> bool {
        self.pending_bytes() > MAX_QUICK_READ_BYTES
    }

    /// Whether anything waits.
    pub(super) fn has_events(&self) -> bool {
        self.pending_bytes() > 0
    }

    /// Reads the events that wait now. Events that arrive meanwhile are left for the next call, so that a flood of events
    /// does not keep the caller here.
    pub(super) fn read(&mut self, mut each: impl FnMut(InotifyEventKind)) {
        if self.inotify.is_none() {
            return;
        }
        for _ in 0..=self.pending_bytes() / MIN_READ_BYTES {
            match self.inotify.as_ref().map(Inotify::read_events) {
                Some(Ok(events)) => events.into_iter().for_each(|event| {
                    if let Some(noticed) = self.decode(event) {
                        each(noticed);
                    }
                }),
                Some(Err(Errno::EINTR)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn decode(&mut self, event: InotifyEvent) -> Option<InotifyEventKind> {
        if event.mask.contains(Flags::IN_Q_OVERFLOW) {
            return Some(InotifyEventKind::Overflow);
        }
        if event.mask.contains(Flags::IN_IGNORED) {
            let is_known =
                self.directories.remove(&event.wd).is_some() | self.files.remove(&event.wd).is_some();
            if let (true, Some(share)) = (is_known, &mut self.lease) {
                share.release_watch();
            }
            return None;
        }
        if let Some(seen_by) = self.files.get(&event.wd) {
            return Some(InotifyEventKind::File(seen_by.clone()));
        }
        let (at, name) = (self.directories.get(&event.wd)?.clone(), event.name?);
        Some(InotifyEventKind::Name { at, name, is_directory: event.mask.contains(Flags::IN_ISDIR) })
    }

    /// Watches a directory that is open.
    pub(super) fn watch_directory(
        &mut self,
        directory: &impl std::os::fd::AsRawFd,
        path: &Path,
    ) -> AddWatchOutcome {
        match self.watch(&Tree::proc_fd_path(directory), DIRECTORY_EVENTS) {
            Some(descriptor) => match self.directories.insert(descriptor, path.to_owned()) {
                None => AddWatchOutcome::New,
                Some(_) => AddWatchOutcome::Already,
            },
            None => AddWatchOutcome::No,
        }
    }

    /// Watches a file that is open. `by`: the directory whose scan finds it.
    pub(super) fn watch_file(&mut self, file: &impl std::os::fd::AsRawFd, by: &Path) {
        if let Some(descriptor) = self.watch(&Tree::proc_fd_path(file), FILE_EVENTS) {
            self.files.entry(descriptor).or_default().insert(by.to_owned());
        }
    }

    fn watch(&mut self, place: &Path, what: Flags) -> Option<WatchDescriptor> {
        match self.inotify.as_ref()?.add_watch(place, what) {
            Ok(descriptor) => {
                let is_new =
                    !self.directories.contains_key(&descriptor) && !self.files.contains_key(&descriptor);
                if is_new && !self.lease.as_mut().is_some_and(InotifyLease::add_watch) {
                    self.disable("the watches of inotify that the gateway takes are in use");
                    return None;
                }
                Some(descriptor)
            }
            // It has gone, or is closed: then its directory is watched, or it waits to be opened.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => None,
            Err(errno) => {
                self.disable(&format!("inotify: {}", errno.desc()));
                None
            }
        }
    }

    fn disable(&mut self, reason: &str) {
        (self.inotify, self.lease) = (None, None);
        self.directories.clear();
        self.files.clear();
        self.shortfall = Some(format!("{SCANS_ONLY}: {reason}"));
    }

    fn pending_bytes(&self) -> usize {
        // It cannot fail for an inotify instance. If it did, it would be unknown whether anything has changed.
        self.inotify.as_ref().map_or(0, |inotify| pending::bytes(inotify).unwrap_or(MAX_QUICK_READ_BYTES + 1))
    }
}

/// All workspaces together use at most one part in this many of the host's limit.
const HOST_DIVISOR: u64 = 4;
/// The workspaces of one owner use at most one part in this many of that.
const OWNER_DIVISOR: u64 = 4;
/// The kernel's smallest defaults, for a host that does not report its limits.
const INSTANCES_DEFAULT: u64 = 128;
const WATCHES_DEFAULT: u64 = 8_192;

/// The limits, and what is in use.
#[derive(Debug)]
pub(super) struct InotifyBudget {
    instances_max: u64,
    watches_max: u64,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    total: Counts,
    by_owner: HashMap<u32, Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    instances: u64,
    watches: u64,
}

impl InotifyBudget {
    /// The budget by the limits of this host.
    pub(super) fn of_host() -> Arc<Self> {
        let instances = setting("/proc/sys/fs/inotify/max_user_instances").unwrap_or(INSTANCES_DEFAULT);
        let watches = setting("/proc/sys/fs/inotify/max_user_watches").unwrap_or(WATCHES_DEFAULT);
        Self::new(instances / HOST_DIVISOR, watches / HOST_DIVISOR)
    }

    fn new(instances_max: u64, watches_max: u64) -> Arc<Self> {
        Arc::new(Self { instances_max, watches_max, in_use: Mutex::default() })
    }

    /// Leases an instance for a workspace of this owner; `None` when the budget is used up.
    pub(super) fn lease_instance(self: &Arc<Self>, owner: u32) -> Option<InotifyLease> {
        let mut taken = self.lock();
        let own = taken.by_owner.get(&owner).copied().unwrap_or_default();
        let fits = |count: u64, max: u64| count < max.max(1);
        if !fits(taken.total.instances, self.instances_max)
            || !fits(own.instances, self.instances_max / OWNER_DIVISOR)
        {
            return None;
        }
        taken.total.instances += 1;
        taken.by_owner.entry(owner).or_default().instances += 1;
        Some(InotifyLease { budget: self.clone(), owner, watches: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One workspace's instance and its watches, until this is dropped.
#[derive(Debug)]
pub(super) struct InotifyLease {
    budget: Arc<InotifyBudget>,
    owner: u32,
    watches: u64,
}

impl InotifyLease {
    /// Counts one watch more. Returns false when the budget is used up.
    pub(super) fn add_watch(&mut self) -> bool {
        let mut taken = self.budget.lock();
        let own = taken.by_owner.get(&self.owner).map_or(0, |own| own.watches);
        let fits = taken.total.watches < self.budget.watches_max
            && own < (self.budget.watches_max / OWNER_DIVISOR).max(1);
        if fits {
            taken.total.watches += 1;
            taken.by_owner.entry(self.owner).or_default().watches += 1;
            self.watches += 1;
        }
        fits
    }

    /// Counts one watch less: the kernel has removed it.
    pub(super) fn release_watch(&mut self) {
        if self.watches > 0 {
            self.watches -= 1;
            self.budget.lock().release(self.owner, Counts { instances: 0, watches: 1 });
        }
    }
}

impl Drop for InotifyLease {
    fn drop(&mut self) {
        self.budget.lock().release(self.owner, Counts { instances: 1, watches: self.watches });
    }
}

impl InUse {
    fn release(&mut self, owner: u32, counts: Counts) {
        self.total.instances -= counts.instances;
        self.total.watches -= counts.watches;
        if let Some(own) = self.by_owner.get_mut(&owner) {
            own.instances -= counts.instances;
            own.watches -= counts.watches;
            if own.instances == 0 && own.watches == 0 {
                self.by_owner.remove(&owner);
            }
        }
    }
}

fn setting(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_cannot_exceed_its_part() {
        let budget = InotifyBudget::new(8, 40);
        let mut held = vec![budget.lease_instance(1).unwrap(), budget.lease_instance(1).unwrap()];
        assert!(budget.lease_instance(1).is_none(), "a quarter of eight");
        held.push(budget.lease_instance(2).unwrap());
        for _ in 0..10 {
            assert!(held[0].add_watch());
        }
        assert!(!held[0].add_watch() && !held[1].add_watch(), "a quarter of forty, for all of an owner's");
        assert!(held[2].add_watch());
        held[0].release_watch();
        assert!(held[1].add_watch());
        held.clear();
        let taken = budget.lock();
        assert!(taken.by_owner.is_empty());
        assert_eq!((taken.total.instances, taken.total.watches), (0, 0));
    }

    #[test]
    fn all_owners_together_cannot_exceed_the_part_of_the_host() {
        let budget = InotifyBudget::new(4, 8);
        let held: Vec<_> = (0..4).map(|owner| budget.lease_instance(owner).unwrap()).collect();
        assert!(budget.lease_instance(5).is_none());
        drop(held);
        assert!(budget.lease_instance(5).is_some());
    }
}
