//! What is still to be scanned of a workspace, in the order in which it is done. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

use super::control_files::{Cause, Role};

/// The maximum number of tasks for events, and of names that may be links. With more of them all is scanned.
pub(super) const MAX_EVENT_TASKS: usize = 16_384;
/// The maximum number of names that may be links.
pub(super) const MAX_NAMES: usize = 65_536;

/// A directory to scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanTask {
    /// With all directories below it.
    Recursive(PathBuf),
    /// Alone.
    Directory(PathBuf),
}

/// A control file that is found and not read yet.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The directory whose scan has found it.
    pub by: PathBuf,
    /// Where it is.
    pub path: PathBuf,
    /// What it is for.
    pub role: Role,
    /// Why it is read.
    pub cause: Cause,
    /// It counts as a link only.
    pub is_link: bool,
}

/// The next thing to do.
#[derive(Debug)]
pub(super) enum Step {
    /// To read a file.
    Read(Candidate),
    /// To list a directory.
    Scan(ScanTask, Cause),
    /// To see whether a name is a link.
    Name(PathBuf, Cause),
}

/// What is still to be done.
#[derive(Debug)]
pub(super) struct ScanQueue {
    candidates: VecDeque<Candidate>,
    /// Directories that events were about: scanned before the rest.
    event_tasks: VecDeque<ScanTask>,
    /// Names that may be links.
    names: BTreeMap<PathBuf, Cause>,
    tasks: VecDeque<ScanTask>,
}

impl ScanQueue {
    /// All of a workspace.
    pub(super) fn with_root() -> Self {
        Self {
            candidates: VecDeque::new(),
            event_tasks: VecDeque::new(),
            names: BTreeMap::new(),
            tasks: VecDeque::from([ScanTask::Recursive(PathBuf::new())]),
        }
    }

    /// Whether all is done.
    pub(super) fn is_complete(&self) -> bool {
        self.tasks.is_empty() && self.events_are_processed()
    }

    /// Whether everything that events were about is done.
    pub(super) fn events_are_processed(&self) -> bool {
        self.candidates.is_empty() && self.event_tasks.is_empty() && self.names.is_empty()
    }

    /// Starts again with all of the workspace.
    pub(super) fn rescan(&mut self) {
        self.event_tasks.clear();
        self.names.clear();
        self.tasks = VecDeque::from([ScanTask::Recursive(PathBuf::new())]);
    }

    /// Adds a directory.
    pub(super) fn push(&mut self, task: ScanTask, cause: Cause) {
        match cause {
            Cause::Walk => self.tasks.push_back(task),
            Cause::Event => self.event_tasks.push_back(task),
        }
    }

    /// Adds a directory before the others of its cause: a command could change what is in it before its turn comes.
    pub(super) fn push_next(&mut self, task: ScanTask, cause: Cause) {
        match cause {
            Cause::Walk => self.tasks.push_front(task),
            Cause::Event => self.event_tasks.push_front(task),
        }
    }

    /// Adds a directory that an event was about. Returns false when there are too many.
    pub(super) fn push_event(&mut self, task: ScanTask) -> bool {
        // A burst is about few places, and only those at the end are compared.
        if !self.event_tasks.iter().rev().take(8).any(|waiting| *waiting == task) {
            self.event_tasks.push_back(task);
        }
        self.event_tasks.len() <= MAX_EVENT_TASKS
    }

    /// Adds a name that may be a link. Returns false when there are too many.
    pub(super) fn push_name(&mut self, path: PathBuf, cause: Cause) -> bool {
        let has_room = self.names.len() < MAX_NAMES;
        if has_room {
            let known = self.names.entry(path).or_insert(cause);
            *known = cause.max(*known);
        }
        has_room
    }

    /// Adds a file to read.
    pub(super) fn push_file(&mut self, candidate: Candidate) {
        self.candidates.push_back(candidate);
    }

    /// Whether a scan of this directory is one of the next.
    pub(super) fn is_next(&self, directory: &Path) -> bool {
        let mut next = self.tasks.iter().take(8);
        next.any(|task| matches!(task, ScanTask::Directory(path) if path == directory))
    }

    /// Whether a scan of this directory waits.
    pub(super) fn has_directory(&self, directory: &Path) -> bool {
        self.tasks.iter().any(|task| match task {
            ScanTask::Recursive(path) | ScanTask::Directory(path) => path == directory,
        })
    }

    /// The next thing to do: files that are found first, so that few of them wait, then what events were about.
    pub(super) fn take_next(&mut self) -> Option<Step> {
        if let Some(candidate) = self.candidates.pop_front() {
            return Some(Step::Read(candidate));
        }
        if let Some(task) = self.event_tasks.pop_front() {
            return Some(Step::Scan(task, Cause::Event));
        }
        if let Some((path, cause)) = self.names.pop_first() {
            return Some(Step::Name(path, cause));
        }
        Some(Step::Scan(self.tasks.pop_front()?, Cause::Walk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_found_come_first_and_what_events_were_about_before_the_rest() {
        let mut queue = ScanQueue::with_root();
        assert!(queue.push_name("a".into(), Cause::Walk) && queue.push_name("a".into(), Cause::Event));
        assert!(queue.push_event(ScanTask::Directory("b".into())));
        assert!(queue.push_event(ScanTask::Directory("b".into())));
        queue.push_file(Candidate {
            by: PathBuf::new(),
            path: "c".into(),
            role: Role::Tool,
            cause: Cause::Walk,
            is_link: false,
        });
        assert!(matches!(queue.take_next(), Some(Step::Read(file)) if file.path == Path::new("c")));
        let directory = ScanTask::Directory("b".into());
        assert!(matches!(queue.take_next(), Some(Step::Scan(task, Cause::Event)) if task == directory));
        assert!(!queue.events_are_processed());
        assert!(matches!(queue.take_next(), Some(Step::Name(_, Cause::Event))));
        assert!(queue.events_are_processed() && !queue.is_complete());
        let root = ScanTask::Recursive(PathBuf::new());
        assert!(matches!(queue.take_next(), Some(Step::Scan(task, Cause::Walk)) if task == root));
        assert!(queue.is_complete() && queue.take_next().is_none());
    }
}
