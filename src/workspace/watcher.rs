//! One workspace, watched by a thread of its own: at the start and the end of each command, and from time to time while
//! one runs.
//!
//! The thread has the workspace owner's rights to files and nobody else waits on its files: a file system that hangs holds
//! up the commands of that workspace alone. Where nothing has changed, neither the start nor the end of a command comes
//! here: both ask the kernel's queue, which never blocks.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::unistd::{Gid, Uid};
use tokio::sync::oneshot;

use super::{
    baseline_store::BaselineStore,
    integrity_checker::{DangerousChange, IntegrityChecker, ScanMode},
    queue::{Completion, RequestQueue, Requests},
};
use crate::{policy::profile::OnChange, sys::credentials};

/// Between two looks at what the kernel has noticed, while a command runs.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks that compare the files themselves, too.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);
/// After so long without a command the thread sleeps until there is one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Looking while a command runs takes at most one part in so many of a processor.
const CPU_DIVISOR: u32 = 20;
/// How long one look goes on before others are let in.
const SCAN_SLICE: Duration = Duration::from_millis(50);
/// How long the first command waits for the first look; the rest of it is done while the command runs.
const INITIAL_SCAN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the end of a command waits for the look at what it changed.
const FINAL_SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the start of a command waits for the thread, on a file system that hangs.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How much the clock that stamps files may lag behind.
const FILE_CLOCK_LAG: Duration = Duration::from_millis(50);

/// Who is told of changes while a command runs.
pub trait Observer: Send + Sync {
    /// Something has changed, and something was done about it.
    fn changed(&self, change: &DangerousChange);
}

/// A workspace that is watched.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<WatcherShared>,
}

#[derive(Debug)]
struct WatcherShared {
    queue: RequestQueue,
    checker: Mutex<IntegrityChecker>,
    running: Mutex<Vec<RunningCommand>>,
    /// Of the last look that came to its end.
    shortfall: Mutex<Option<String>>,
    store: Option<BaselineStore>,
    /// The thread waits for a job, and for nothing else.
    is_parked: AtomicBool,
    /// The look at a command's end was cut short, and its rest is still to come.
    has_pending_scan: AtomicBool,
    /// Changes were found of which those who run have not been told. Changed by the thread, set with the lock on `eyes`.
    is_notifying: AtomicBool,
}

struct RunningCommand {
    id: String,
    /// As [`super::control::ControlFile::changed_at`].
    since: i64,
    observer: Weak<dyn Observer>,
    on_change: OnChange,
}

impl std::fmt::Debug for RunningCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Begins to watch, with the rights of the owner.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn start(
        eyes: IntegrityChecker,
        owner: (u32, u32),
        store: Option<BaselineStore>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(WatcherShared {
            queue: RequestQueue::default(),
            checker: Mutex::new(eyes),
            running: Mutex::default(),
            shortfall: Mutex::default(),
            store,
            is_parked: AtomicBool::new(false),
            has_pending_scan: AtomicBool::new(false),
            is_notifying: AtomicBool::new(false),
        });
        let looker = WatcherThread { shared: shared.clone(), owner, pending_scan: None };
        thread::Builder::new().name("workspace".into()).spawn(move || looker.run())?;
        Ok(Self { shared })
    }

    /// Knows all that is there before a command starts. `None`: it does already.
    pub fn ensure_baseline(&self, tools: &[PathBuf]) -> Option<ScanWaiter> {
        let is_first = self.shared.lock_running().is_empty();
        if let Ok(mut eyes) = self.shared.checker.try_lock() {
            eyes.add_tools(tools);
            // What is heard while another command runs is not taken for what was there before.
            if eyes.has_baseline && (!is_first || eyes.is_unchanged()) {
                return None;
            }
        }
        let (ready, is_ready) = oneshot::channel();
        self.shared.queue.submit(|asked| asked.starts.push(ready));
        Some(ScanWaiter(is_ready))
    }

    /// Whether it is known what was there before.
    pub fn has_baseline(&self) -> bool {
        // Whoever looks just now has it, or will say that it has not.
        self.shared.checker.try_lock().map_or(true, |eyes| eyes.has_baseline)
    }

    /// A command is about to start.
    pub fn command_starting(&self, id: String, observer: Weak<dyn Observer>, on_change: OnChange) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.saturating_sub(FILE_CLOCK_LAG).as_nanos()).unwrap_or(i64::MAX);
        self.shared.lock_running().push(RunningCommand { id, since, observer, on_change });
        if self.shared.is_parked.swap(false, Ordering::AcqRel) {
            self.shared.queue.wake();
        }
    }

    /// A command has ended, and nothing can have changed: it is not running any more. Does not block.
    pub fn end_if_unchanged(&self, id: &str) -> bool {
        let mut running = self.shared.lock_running();
        let is_alone = running.iter().all(|one| one.id == id || one.observer.strong_count() == 0);
        let is_quiet = self.shared.checker.try_lock().is_ok_and(|mut eyes| {
            // A known file that one of the others holds mapped changes without a word.
            let can_be_heard = is_alone || eyes.baseline_is_empty();
            can_be_heard
                && eyes.has_baseline
                && eyes.is_unchanged()
                && !self.shared.is_notifying.load(Ordering::Acquire)
        });
        if is_quiet {
            running.retain(|one| one.id != id && one.observer.strong_count() > 0);
        }
        is_quiet
    }

    /// A command has ended: `ending` comes after the look at what it changed.
    pub fn command_ended(&self, id: String, ending: Arc<Completion>) {
        self.shared.queue.submit(|asked| asked.ends.push((id, ending)));
    }

    /// A command that was about to start does not.
    pub fn command_cancelled(&self, id: &str) {
        self.shared.lock_running().retain(|one| one.id != id);
    }

    /// The rest of a look that was cut short, before nobody watches any more. `None`: there is none.
    pub fn finish_pending_scan(&self) -> Option<ScanWaiter> {
        if !self.shared.has_pending_scan.load(Ordering::Acquire) {
            return None;
        }
        let (ready, is_ready) = oneshot::channel();
        // Whoever waited may have gone.
        let ready = Mutex::new(Some(ready));
        let ending = Completion::new(move || {
            if let Some(ready) = ready.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = ready.send(());
            }
        });
        self.shared.queue.submit(|asked| asked.ends.push((String::new(), ending)));
        Some(ScanWaiter(is_ready))
    }

    /// The last session has ended: what is known is not kept.
    pub(super) fn remove_baseline(&self) {
        if let Some(store) = &self.shared.store {
            store.remove();
        }
    }

    /// Why some of the workspace is not looked at.
    pub fn shortfall(&self) -> Option<String> {
        self.shared.lock_shortfall().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// A look that a command waits for.
#[derive(Debug)]
pub struct ScanWaiter(oneshot::Receiver<()>);

impl ScanWaiter {
    /// Waits for it, but not for ever. Whether it came.
    pub async fn wait(self) -> bool {
        matches!(tokio::time::timeout(START_TIMEOUT, self.0).await, Ok(Ok(())))
    }
}

impl WatcherShared {
    fn lock_running(&self) -> MutexGuard<'_, Vec<RunningCommand>> {
        self.running.lock().expect("no code panics while it holds the commands of a workspace")
    }

    fn lock_shortfall(&self) -> MutexGuard<'_, Option<String>> {
        self.shortfall.lock().expect("no code panics while it holds a shortfall")
    }
}

struct WatcherThread {
    shared: Arc<WatcherShared>,
    owner: (u32, u32),
    /// What is left of a look at a command's end.
    pending_scan: Option<PendingScan>,
}

/// A look that was cut short: what it finds is judged as if those commands still ran.
struct PendingScan {
    on_change: OnChange,
    observers: Vec<Weak<dyn Observer>>,
}

/// How far a look goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanDepth {
    /// What the kernel has noticed.
    Events,
    /// The known files themselves, too.
    Files,
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        // However it ended: nobody waits for it any more.
        self.shared.queue.close();
    }
}

impl WatcherThread {
    fn run(mut self) {
        let (uid, gid) = self.owner;
        if let Err(errno) = credentials::restrict_file_access_to(Uid::from_raw(uid), Gid::from_raw(gid)) {
            let reason = format!("the rights of uid {uid} cannot be had: {}", errno.desc());
            *self.shared.lock_shortfall() = Some(reason);
            return;
        }
        let (mut pause, mut until_compared) = (EVENT_INTERVAL, COMPARE_INTERVAL);
        let mut compared_at = Instant::now();
        loop {
            let due = until_compared.saturating_sub(compared_at.elapsed());
            let Some(Requests { starts, ends, .. }) = self.next_requests(pause, due) else { return };
            if !ends.is_empty() {
                // One look is all of theirs.
                self.scan_at_end(&ends);
                self.shared.lock_running().retain(|one| ends.iter().all(|(id, _)| one.id != *id));
            } else if starts.is_empty() && self.has_changes_to_judge() {
                let begun = Instant::now();
                let is_due = compared_at.elapsed() >= until_compared;
                self.scan_while_running(if is_due { ScanDepth::Files } else { ScanDepth::Events });
                let rest = begun.elapsed() * CPU_DIVISOR;
                pause = EVENT_INTERVAL.max(rest);
                if is_due {
                    (compared_at, until_compared) = (Instant::now(), COMPARE_INTERVAL.max(rest));
                }
            }
            drop(ends);
            if !starts.is_empty() {
                self.build_baseline();
            }
            for ready in starts {
                // Whoever waited may have gone.
                let _ = ready.send(());
            }
            self.save_baseline();
        }
    }

    /// What is asked for next, or nothing when it is time for a look at what commands do: after a pause where the kernel
    /// has noticed something, and when the files are due to be compared.
    fn next_requests(&self, pause: Duration, due: Duration) -> Option<Requests> {
        if self.has_changes_to_judge() && (self.pending_scan.is_some() || !self.lock_checker().has_baseline) {
            return self.shared.queue.wait(Some(Duration::ZERO));
        }
        let begun = Instant::now();
        let mut wait = pause;
        while begun.elapsed() < IDLE_TIMEOUT || self.has_changes_to_judge() {
            let asked = self.shared.queue.wait(Some(wait))?;
            let passed = begun.elapsed();
            let is_time = passed >= pause && self.has_changes_to_judge();
            let is_time = is_time && (passed >= due || self.lock_checker().has_events());
            if !asked.starts.is_empty() || !asked.ends.is_empty() || is_time {
                return Some(asked);
            }
            wait = pause.saturating_sub(begun.elapsed()).max(EVENT_INTERVAL);
        }
        self.shared.is_parked.store(true, Ordering::Release);
        // Who has come in meanwhile did not wake anybody.
        let is_idle = self.shared.lock_running().is_empty();
        let asked = self.shared.queue.wait((!is_idle).then_some(Duration::ZERO));
        self.shared.is_parked.store(false, Ordering::Release);
        asked
    }

    /// Whether what changes is judged: a command runs, or what one has left is not looked at yet.
    fn has_changes_to_judge(&self) -> bool {
        self.pending_scan.is_some() || !self.shared.lock_running().is_empty()
    }

    /// Before a command starts. The first look is cut short and goes on beside it.
    fn build_baseline(&mut self) {
        self.lock_checker().read_events();
        let begun = Instant::now();
        while begun.elapsed() < INITIAL_SCAN_TIMEOUT {
            self.scan_slice(Instant::now() + SCAN_SLICE);
            if self.lock_checker().scan_is_complete() {
                return;
            }
        }
    }

    fn scan_while_running(&mut self, depth: ScanDepth) {
        {
            let mut eyes = self.lock_checker();
            eyes.read_events();
            if depth == ScanDepth::Files {
                eyes.compare_files(false);
            }
        }
        self.scan_slice(Instant::now() + SCAN_SLICE);
    }

    fn scan_at_end(&mut self, ends: &[(String, Arc<Completion>)]) {
        let is_last = self
            .shared
            .lock_running()
            .iter()
            .all(|one| one.observer.strong_count() == 0 || ends.iter().any(|(id, _)| one.id == *id));
        {
            let mut eyes = self.lock_checker();
            eyes.read_events();
            eyes.rescan_without_inotify();
            eyes.compare_files(is_last);
        }
        let begun = Instant::now();
        loop {
            self.scan_slice(Instant::now() + SCAN_SLICE);
            let mut eyes = self.lock_checker();
            let is_done =
                if eyes.has_baseline { eyes.scan_is_complete() } else { eyes.events_are_processed() };
            if is_done {
                return;
            }
            if begun.elapsed() > FINAL_SCAN_TIMEOUT {
                eyes.set_shortfall("the look at a command's end was cut short: the rest of it comes later");
                drop(eyes);
                return self.defer_scan();
            }
        }
    }

    /// The rest comes later, and is judged as if these commands still ran.
    fn defer_scan(&mut self) {
        let running = self.shared.lock_running();
        let Some(on_change) = running.iter().map(|one| one.on_change).max() else { return };
        let observers = running.iter().map(|one| one.observer.clone()).collect();
        drop(running);
        self.pending_scan = Some(PendingScan { on_change, observers });
        self.shared.has_pending_scan.store(true, Ordering::Release);
    }

    /// One look, and what comes of it told to every command that runs.
    fn scan_slice(&mut self, until: Instant) {
        let mode = self.scan_mode();
        let mut eyes = self.lock_checker();
        let changes = eyes.scan(mode, until);
        let shortfall = eyes.shortfall().map(str::to_owned);
        let is_done = eyes.scan_is_complete();
        self.shared.is_notifying.store(!changes.is_empty(), Ordering::Release);
        drop(eyes);
        *self.shared.lock_shortfall() = shortfall;
        if !changes.is_empty() {
            self.notify_observers(&changes);
            self.shared.is_notifying.store(false, Ordering::Release);
        }
        if is_done && self.pending_scan.take().is_some() {
            self.shared.has_pending_scan.store(false, Ordering::Release);
        }
    }

    /// Told without the lock: who is told may be the last who holds its terminal.
    fn notify_observers(&self, changes: &[DangerousChange]) {
        let mut observers: Vec<_> =
            self.shared.lock_running().iter().filter_map(|one| one.observer.upgrade()).collect();
        let late = self.pending_scan.iter().flat_map(|owed| &owed.observers).filter_map(Weak::upgrade);
        let late: Vec<_> =
            late.filter(|one| !observers.iter().any(|other| Arc::ptr_eq(one, other))).collect();
        observers.extend(late);
        for change in changes {
            observers.iter().for_each(|observer| observer.changed(change));
        }
    }

    fn scan_mode(&self) -> ScanMode {
        let running = self.shared.lock_running();
        let strictest = running.iter().map(|one| one.on_change).max();
        let since = running.iter().map(|one| one.since).min();
        drop(running);
        let strictest = strictest.max(self.pending_scan.as_ref().map(|owed| owed.on_change));
        match (strictest, since) {
            (None, _) => ScanMode::Accept,
            (Some(on_change), _) if self.lock_checker().has_baseline => ScanMode::Judge(on_change),
            (Some(on_change), Some(since)) => ScanMode::AcceptBefore(since, on_change),
            (Some(on_change), None) => ScanMode::Judge(on_change),
        }
    }

    fn save_baseline(&self) {
        let Some(store) = &self.shared.store else { return };
        let mut eyes = self.lock_checker();
        if !std::mem::replace(&mut eyes.is_dirty, false) {
            return;
        }
        let record = store.record(&eyes);
        drop(eyes);
        store.write(&record, self.owner);
    }

    fn lock_checker(&self) -> MutexGuard<'_, IntegrityChecker> {
        self.shared.checker.lock().expect("no code panics while it holds what is known of a workspace")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use nix::unistd::{getegid, geteuid};

    use super::*;
    use crate::workspace::{budget::InotifyBudget, tree::Tree};

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn checker(root: &Path) -> IntegrityChecker {
        let descriptor = fs::File::open(root).unwrap().into();
        let share = InotifyBudget::of_host().lease_instance(geteuid().as_raw());
        IntegrityChecker::new(Tree::new(root.to_owned(), descriptor), share, None)
    }

    fn owner() -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }

    /// A command that runs beside.
    #[derive(Debug)]
    struct OtherCommand;

    impl Observer for OtherCommand {
        fn changed(&self, _: &DangerousChange) {}
    }

    #[test]
    fn with_other_commands_running_an_end_skips_the_scan_only_when_the_baseline_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let beside: Arc<dyn Observer> = Arc::new(OtherCommand);
        let watch_two = || {
            let watch = Watcher::start(checker(root.path()), owner(), None).unwrap();
            if let Some(ScanWaiter(is_ready)) = watch.ensure_baseline(&[]) {
                is_ready.blocking_recv().unwrap();
            }
            for id in ["one", "other"] {
                watch.command_starting(id.to_owned(), Arc::downgrade(&beside), OnChange::default());
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
            // Its thread may look just now, and then nobody can say at once.
            assert!(begun.elapsed() < TEST_TIMEOUT, "nothing is known, and nothing has changed");
            thread::yield_now();
        }
        let left: Vec<String> =
            watch.shared.lock_running().iter().map(|running| running.id.clone()).collect();
        assert_eq!(left, ["other"], "the other one runs on");
        for directory in [".git/objects", ".git/refs"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        assert!(!watch_two().end_if_unchanged("one"), "a configuration is known");
    }
}
