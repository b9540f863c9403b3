//! One inotify(7) instance for a workspace: its watches and events.
//!
//! Knows which directory or file each watch is for, and nothing of what is in it. Never blocks.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};

use super::{budget::InotifyLease, tree::Tree};
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
pub enum InotifyEventKind {
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
pub enum AddWatchOutcome {
    /// From now on.
    New,
    /// It was before.
    Already,
    /// It is not.
    No,
}

/// An instance of inotify, where one could be had.
#[derive(Debug)]
pub struct InotifyEvents {
    inotify: Option<Inotify>,
    /// Of the host's instances and watches; there is no `inotify` without it.
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
    pub fn new(share: Option<InotifyLease>) -> Self {
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
    pub fn is_active(&self) -> bool {
        self.inotify.is_some()
    }

    /// How many directories are watched.
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Whether so much waits that it is for the thread to read.
    pub fn has_backlog(&self) -> bool {
        self.pending_bytes() > MAX_QUICK_READ_BYTES
    }

    /// Whether anything waits.
    pub fn has_events(&self) -> bool {
        self.pending_bytes() > 0
    }

    /// Reads the events that wait now. Events that arrive meanwhile are left for the next call, so that a flood of events
    /// does not keep the caller here.
    pub fn read(&mut self, mut each: impl FnMut(InotifyEventKind)) {
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
    pub fn watch_directory(&mut self, directory: &impl std::os::fd::AsRawFd, path: &Path) -> AddWatchOutcome {
        match self.watch(&Tree::proc_fd_path(directory), DIRECTORY_EVENTS) {
            Some(descriptor) => match self.directories.insert(descriptor, path.to_owned()) {
                None => AddWatchOutcome::New,
                Some(_) => AddWatchOutcome::Already,
            },
            None => AddWatchOutcome::No,
        }
    }

    /// Watches a file that is open. `by`: the directory whose scan finds it.
    pub fn watch_file(&mut self, file: &impl std::os::fd::AsRawFd, by: &Path) {
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
