//! What the kernel notices of a workspace: one inotify(7) instance, its watches, and their share of the host's.
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

use super::{budget::Share, tree::Tree};
use crate::sys::pending;

/// What one read of events returns at least, where more than that waits: the reader's buffer is 4 KiB, and an event has at
/// most 272 bytes (inotify(7)).
const READ_BYTES_MIN: usize = 4_096 - 272;
/// Where more than this waits, something has changed: it is for the thread to read.
const QUIET_BYTES_MAX: usize = 4_096;

/// New names in any directory.
const ANY: Flags = Flags::IN_CREATE.union(Flags::IN_MOVED_TO).union(Flags::IN_ONLYDIR);
/// Changes of a file, by whichever of its names.
const FILE: Flags = Flags::IN_MODIFY.union(Flags::IN_CLOSE_WRITE).union(Flags::IN_ATTRIB);

const WALKS_ONLY: &str = "changes are found by walks only, at each terminal's end";

/// Something that has changed.
#[derive(Debug)]
pub enum Noticed {
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
pub enum Watched {
    /// From now on.
    New,
    /// It was before.
    Already,
    /// It is not.
    No,
}

/// An instance of inotify, where one could be had.
#[derive(Debug)]
pub struct Notice {
    inotify: Option<Inotify>,
    /// Of the host's instances and watches; there is no `inotify` without it.
    share: Option<Share>,
    /// Directories that are watched, and where each was last seen.
    directories: HashMap<WatchDescriptor, PathBuf>,
    /// Files that are watched, and the directories by which each is seen: a file can have many names.
    files: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
    /// Why it notices nothing.
    pub shortfall: Option<String>,
}

impl Notice {
    /// Watches nothing yet. Without a share of the host's inotify it never will.
    pub fn new(share: Option<Share>) -> Self {
        let made = match share {
            Some(share) => Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
                .map(|inotify| (inotify, share))
                .map_err(|errno| format!("inotify_init: {}", errno.desc())),
            None => Err("the instances of inotify that the gateway takes are in use".to_owned()),
        };
        let shortfall = made.as_ref().err().map(|reason| format!("{WALKS_ONLY}: {reason}"));
        let (inotify, share) = made.ok().unzip();
        Self { inotify, share, directories: HashMap::new(), files: HashMap::new(), shortfall }
    }

    /// Whether anything can be noticed.
    pub fn is_on(&self) -> bool {
        self.inotify.is_some()
    }

    /// How many directories are watched.
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Whether so much waits that it is for the thread to read.
    pub fn has_much(&self) -> bool {
        self.pending_bytes() > QUIET_BYTES_MAX
    }

    /// Whether anything waits.
    pub fn has_any(&self) -> bool {
        self.pending_bytes() > 0
    }

    /// Takes what waits now, each to `each`. What comes while this is read is for the next time: a flood keeps nobody here.
    pub fn read(&mut self, mut each: impl FnMut(Noticed)) {
        if self.inotify.is_none() {
            return;
        }
        for _ in 0..=self.pending_bytes() / READ_BYTES_MIN {
            match self.inotify.as_ref().map(Inotify::read_events) {
                Some(Ok(events)) => events.into_iter().for_each(|event| {
                    if let Some(noticed) = self.understand(event) {
                        each(noticed);
                    }
                }),
                Some(Err(Errno::EINTR)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn understand(&mut self, event: InotifyEvent) -> Option<Noticed> {
        if event.mask.contains(Flags::IN_Q_OVERFLOW) {
            return Some(Noticed::Overflow);
        }
        if event.mask.contains(Flags::IN_IGNORED) {
            let is_known =
                self.directories.remove(&event.wd).is_some() | self.files.remove(&event.wd).is_some();
            if let (true, Some(share)) = (is_known, &mut self.share) {
                share.give_watch_back();
            }
            return None;
        }
        if let Some(seen_by) = self.files.get(&event.wd) {
            return Some(Noticed::File(seen_by.clone()));
        }
        let (at, name) = (self.directories.get(&event.wd)?.clone(), event.name?);
        Some(Noticed::Name { at, name, is_directory: event.mask.contains(Flags::IN_ISDIR) })
    }

    /// Watches a directory that is open.
    pub fn watch_directory(&mut self, directory: &impl std::os::fd::AsRawFd, path: &Path) -> Watched {
        match self.watch(&Tree::by_descriptor(directory), ANY) {
            Some(descriptor) => match self.directories.insert(descriptor, path.to_owned()) {
                None => Watched::New,
                Some(_) => Watched::Already,
            },
            None => Watched::No,
        }
    }

    /// Watches a file that is open. `by`: the directory whose look sees it.
    pub fn watch_file(&mut self, file: &impl std::os::fd::AsRawFd, by: &Path) {
        if let Some(descriptor) = self.watch(&Tree::by_descriptor(file), FILE) {
            self.files.entry(descriptor).or_default().insert(by.to_owned());
        }
    }

    fn watch(&mut self, place: &Path, what: Flags) -> Option<WatchDescriptor> {
        match self.inotify.as_ref()?.add_watch(place, what) {
            Ok(descriptor) => {
                let is_new =
                    !self.directories.contains_key(&descriptor) && !self.files.contains_key(&descriptor);
                if is_new && !self.share.as_mut().is_some_and(Share::take_watch) {
                    self.go_deaf("the watches of inotify that the gateway takes are in use");
                    return None;
                }
                Some(descriptor)
            }
            // It has gone, or is closed: then its directory is watched, or it waits to be opened.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => None,
            Err(errno) => {
                self.go_deaf(&format!("inotify: {}", errno.desc()));
                None
            }
        }
    }

    fn go_deaf(&mut self, reason: &str) {
        (self.inotify, self.share) = (None, None);
        self.directories.clear();
        self.files.clear();
        self.shortfall = Some(format!("{WALKS_ONLY}: {reason}"));
    }

    fn pending_bytes(&self) -> usize {
        // It cannot fail for an inotify instance. If it did, nobody could say that nothing has changed.
        self.inotify.as_ref().map_or(0, |inotify| pending::bytes(inotify).unwrap_or(QUIET_BYTES_MAX + 1))
    }
}
