//! The handle of a watched workspace: commands report their start and their end to it.
//!
//! When nothing has changed, neither the start nor the end of a command waits for the watcher's thread: both ask
//! inotify's queue, which never blocks.

use std::{
    path::PathBuf,
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::oneshot;

use super::{
    baseline_store::BaselineStore,
    integrity_checker::IntegrityChecker,
    queue::{Completion, Observer, RunningCommand, WatchState},
    watcher_thread::{FINISH_TIMEOUT, WatcherThread},
};
use crate::{policy::profile::OnChange, sys::rights::Rights};

/// How long the start of a command waits for the thread, on a file system that hangs.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer the end of a session waits for the thread than the thread takes.
const FINISH_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How far the clock that stamps files may lag behind.
const FILE_CLOCK_LAG: Duration = Duration::from_millis(50);

/// A workspace that is watched.
#[derive(Debug)]
pub(crate) struct Watcher {
    state: Arc<WatchState>,
}

impl Watcher {
    /// Starts the thread, with the file permissions of `owner`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        checker: IntegrityChecker,
        owner: Rights,
        store: Option<BaselineStore>,
    ) -> std::io::Result<Self> {
        let state = Arc::new(WatchState::new(checker, store));
        let watcher_thread = WatcherThread::new(state.clone(), owner);
        thread::Builder::new().name("workspace".into()).spawn(move || watcher_thread.run())?;
        Ok(Self { state })
    }

    /// Completes the baseline before a command starts. `None`: it is complete.
    pub(crate) fn ensure_baseline(&self, tools: &[PathBuf]) -> Option<ScanWaiter> {
        let is_first = self.state.lock_running().is_empty();
        if let Ok(mut checker) = self.state.checker.try_lock() {
            checker.add_tools(tools);
            // Events while another command runs are changes to judge, not part of the baseline.
            if checker.has_baseline && (!is_first || checker.is_unchanged()) {
                return None;
            }
        }
        let (ready, is_ready) = oneshot::channel();
        self.state.queue.submit(|requests| requests.starts.push(ready));
        Some(ScanWaiter { is_ready, timeout: START_TIMEOUT })
    }

    /// Whether the baseline is complete.
    pub(crate) fn has_baseline(&self) -> bool {
        // A scan that is under way will have it, or will report a shortfall.
        self.state.checker.try_lock().map_or(true, |checker| checker.has_baseline)
    }

    /// A command is about to start.
    pub(crate) fn command_starting(&self, id: String, observer: Weak<dyn Observer>, on_change: OnChange) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.saturating_sub(FILE_CLOCK_LAG).as_nanos()).unwrap_or(i64::MAX);
        self.state.lock_running().push(RunningCommand { id, since, observer, on_change });
        self.state.queue.wake();
    }

    /// Ends a command when nothing can have changed, and returns whether it did. Does not block.
    pub(crate) fn end_if_unchanged(&self, id: &str) -> bool {
        let mut running = self.state.lock_running();
        let is_alone = running.iter().all(|one| one.id == id || one.is_gone());
        let is_unchanged = self.state.checker.try_lock().is_ok_and(|mut checker| {
            // A file of the baseline that another command has mapped changes without an event.
            let has_events = is_alone || checker.baseline_is_empty();
            has_events
                && checker.has_baseline
                && checker.is_unchanged()
                && !self.state.is_notifying.load(Ordering::Acquire)
        });
        if is_unchanged {
            running.retain(|one| one.id != id && !one.is_gone());
        }
        is_unchanged
    }

    /// A command has ended: `completion` is dropped after the scan of what it changed.
    pub(crate) fn command_ended(&self, id: String, completion: Arc<Completion>) {
        self.state.queue.submit(|requests| requests.ends.push((id, completion)));
    }

    /// A command that was about to start was cancelled.
    pub(crate) fn command_cancelled(&self, id: &str) {
        self.state.lock_running().retain(|one| one.id != id);
    }

    /// Does the rest of a scan that was cut short, before the watcher is dropped. `None`: there is none.
    pub(crate) fn finish_pending_scan(&self) -> Option<ScanWaiter> {
        if !self.state.has_pending_scan.load(Ordering::Acquire) {
            return None;
        }
        let (done, is_ready) = oneshot::channel();
        self.state.queue.submit(|requests| requests.finishes.push(done));
        // The thread answers by itself, but on a file system that hangs.
        Some(ScanWaiter { is_ready, timeout: FINISH_TIMEOUT + FINISH_ANSWER_TIMEOUT })
    }

    /// Removes the stored baseline: the last session of the workspace is closed.
    pub(super) fn remove_baseline(&self) {
        if let Some(store) = &self.state.store {
            store.remove();
        }
    }

    /// Why some of the workspace is not scanned.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.state.lock_shortfall().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.state.queue.close();
    }
}

/// A scan that a command's start or a session's end waits for.
#[derive(Debug)]
pub(crate) struct ScanWaiter {
    is_ready: oneshot::Receiver<bool>,
    timeout: Duration,
}

impl ScanWaiter {
    /// Waits for the scan for a bounded time, and returns whether it was done.
    pub(crate) async fn wait(self) -> bool {
        matches!(tokio::time::timeout(self.timeout, self.is_ready).await, Ok(Ok(true)))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Instant};

    use nix::unistd::geteuid;

    use super::*;
    use crate::workspace::{
        DangerousChange,
        inotify_events::InotifyBudget,
        integrity_checker::{CommandState, ScanMode},
        tree::Tree,
    };

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn checker(root: &Path) -> IntegrityChecker {
        let descriptor = fs::File::open(root).unwrap().into();
        let lease = InotifyBudget::of_host().lease_instance(geteuid().as_raw());
        IntegrityChecker::new(Tree::new(root.to_owned(), descriptor), lease, None)
    }

    /// Another command in the same workspace.
    #[derive(Debug)]
    struct OtherCommand;

    impl Observer for OtherCommand {
        fn changed(&self, _: &DangerousChange) {}
    }

    #[test]
    fn with_other_commands_running_an_end_skips_the_scan_only_when_the_baseline_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let observer: Arc<dyn Observer> = Arc::new(OtherCommand);
        let watch_two = || {
            let watch = Watcher::start(checker(root.path()), Rights::own(), None).unwrap();
            if let Some(scan) = watch.ensure_baseline(&[]) {
                assert!(scan.is_ready.blocking_recv().unwrap());
            }
            for id in ["one", "other"] {
                watch.command_starting(id.to_owned(), Arc::downgrade(&observer), OnChange::default());
            }
            watch
        };
        let watch = watch_two();
        if watch.shortfall().is_some() {
            eprintln!("SKIPPED: this host gives no inotify");
            return;
        }
        let begun = Instant::now();
        while !watch.end_if_unchanged("one") {
            // The thread may scan just now, and then the call cannot know.
            assert!(begun.elapsed() < TEST_TIMEOUT, "the baseline is empty, and nothing has changed");
            thread::yield_now();
        }
        let left: Vec<String> = watch.state.lock_running().iter().map(|running| running.id.clone()).collect();
        assert_eq!(left, ["other"], "the other one still runs");
        for directory in [".git/objects", ".git/refs"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        assert!(!watch_two().end_if_unchanged("one"), "a configuration is in the baseline");
    }
    #[test]
    fn what_a_slice_has_no_time_for_is_left_to_the_next_one() {
        const REPOSITORIES: usize = 20;
        let root = tempfile::tempdir().unwrap();
        let mut checker = checker(root.path());
        let commands = || CommandState::Ended;
        checker.scan(ScanMode::Accept, &commands, Instant::now() + TEST_TIMEOUT);
        assert!(checker.has_baseline && checker.scan_is_complete());
        for index in 0..REPOSITORIES {
            let git = root.path().join(format!("{index}/.git"));
            fs::create_dir_all(&git).unwrap();
            fs::write(git.join("config"), "[core]\n\tfsmonitor = ./x\n").unwrap();
        }
        checker.read_events();
        checker.rescan_without_inotify();
        let (mut found, mut slices) = (0, 0);
        while !checker.scan_is_complete() && slices < 100 * REPOSITORIES {
            // No time at all: one step of each kind.
            found += checker.scan(ScanMode::Judge(OnChange::Undo), &commands, Instant::now()).len();
            slices += 1;
        }
        assert_eq!(found, REPOSITORIES);
        assert!(slices >= REPOSITORIES, "{slices}");
    }
}
