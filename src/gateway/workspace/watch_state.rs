//! The state that a workspace's watcher and its thread share.

use std::sync::{Mutex, MutexGuard, Weak, atomic::AtomicBool};

use super::{
    baseline_store::BaselineStore, change::DangerousChange, integrity_checker::IntegrityChecker,
    queue::RequestQueue,
};
use crate::policy::profile::OnChange;

/// Is notified of dangerous changes while a command runs.
pub trait Observer: Send + Sync {
    /// A dangerous change was found and acted on.
    fn changed(&self, change: &DangerousChange);
}

/// What the watcher and its thread share.
#[derive(Debug)]
pub(super) struct WatchState {
    pub queue: RequestQueue,
    pub checker: Mutex<IntegrityChecker>,
    pub running: Mutex<Vec<RunningCommand>>,
    /// Why some of the workspace is not scanned, or not yet.
    pub shortfall: Mutex<Option<String>>,
    pub store: Option<BaselineStore>,
    /// A scan at a command's end was cut short, and its rest is still to be done.
    pub has_pending_scan: AtomicBool,
    /// Observers are being notified of changes. Cleared by the thread; set while it holds the lock on `checker`.
    pub is_notifying: AtomicBool,
}

impl WatchState {
    pub fn new(checker: IntegrityChecker, store: Option<BaselineStore>) -> Self {
        Self {
            queue: RequestQueue::default(),
            checker: Mutex::new(checker),
            running: Mutex::default(),
            shortfall: Mutex::default(),
            store,
            has_pending_scan: AtomicBool::new(false),
            is_notifying: AtomicBool::new(false),
        }
    }

    pub fn lock_checker(&self) -> MutexGuard<'_, IntegrityChecker> {
        self.checker.lock().expect("no code panics while it holds the baseline of a workspace")
    }

    pub fn lock_running(&self) -> MutexGuard<'_, Vec<RunningCommand>> {
        self.running.lock().expect("no code panics while it holds the commands of a workspace")
    }

    pub fn lock_shortfall(&self) -> MutexGuard<'_, Option<String>> {
        self.shortfall.lock().expect("no code panics while it holds a shortfall")
    }
}

/// A command that runs in the workspace.
pub(super) struct RunningCommand {
    pub id: String,
    /// When it was started, on the clock of [`ControlFile::changed_at`](super::control_files::ControlFile::changed_at).
    pub since: i64,
    pub observer: Weak<dyn Observer>,
    pub on_change: OnChange,
}

impl RunningCommand {
    /// Whether its terminal is gone.
    pub fn is_gone(&self) -> bool {
        self.observer.strong_count() == 0
    }
}

impl std::fmt::Debug for RunningCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCommand").field("id", &self.id).finish_non_exhaustive()
    }
}
