//! The thread that watches one workspace: it scans at the start and the end of each command, and from time to time
//! while one runs.
//!
//! It has the file permissions of the workspace's owner, and nothing else waits for its file operations: a file system
//! that hangs delays the commands of that workspace alone.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    integrity_checker::{CommandState, DangerousChange, ScanMode},
    queue::{Completion, Observer, Requests, RunningCommand, WatchState},
};
use crate::{
    policy::profile::OnChange,
    sys::{credentials, own_process::thread_cpu_time, rights::Rights},
};

/// How often inotify events are read while a command runs.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// How often the files of the baseline are compared while a command runs.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);
/// The thread parks after this time without a command.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Scans while a command runs take at most one part in this many of a processor.
const CPU_DIVISOR: u32 = 20;
/// How long a scan holds the lock on the checker.
const SCAN_SLICE: Duration = Duration::from_millis(50);
/// How long the first command waits for the first scan. The rest of the scan is done while the command runs.
const INITIAL_SCAN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the end of a command waits for the scan of what it changed.
const FINAL_SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a session waits for the rest of that scan, which is done without pauses.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(60);

/// What is said of such a scan until its rest is done.
const CUT_SHORT: &str = "the scan at a command's end was cut short: its rest is done later, where the session ends for at most 60 s";

/// The thread of one workspace.
pub(super) struct WatcherThread {
    state: Arc<WatchState>,
    owner: Rights,
    /// The rest of a scan at a command's end.
    pending_scan: Option<PendingScan>,
    /// Sessions that wait for it, and until when.
    finishing: Vec<(Instant, oneshot::Sender<bool>)>,
}

/// A scan that was cut short. What it finds later is judged as if its commands still ran.
struct PendingScan {
    on_change: OnChange,
    /// When the first of its commands started.
    since: i64,
    /// Those of its commands that have ended: their terminals may be gone by then, and the journal has what is found.
    observers: Vec<Arc<dyn Observer>>,
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        // However the thread ended: nothing waits for it any more.
        self.state.queue.close();
    }
}

impl WatcherThread {
    /// `owner`: whose file permissions the thread has.
    pub(super) fn new(state: Arc<WatchState>, owner: Rights) -> Self {
        Self { state, owner, pending_scan: None, finishing: Vec::new() }
    }

    /// Serves requests and scans until the queue is closed.
    pub(super) fn run(mut self) {
        if let Err(errno) = credentials::restrict_file_access_to(&self.owner) {
            let uid = self.owner.uid;
            let reason = format!("the permissions of uid {uid} cannot be taken on: {}", errno.desc());
            *self.state.lock_shortfall() = Some(reason);
            return;
        }
        let (mut pause, mut until_compared) = (EVENT_INTERVAL, COMPARE_INTERVAL);
        let mut compared_at = Instant::now();
        loop {
            let due = until_compared.saturating_sub(compared_at.elapsed());
            let Some(Requests { starts, ends, finishes }) = self.next_requests(pause, due) else { return };
            let until = Instant::now() + FINISH_TIMEOUT;
            self.finishing.extend(finishes.into_iter().map(|done| (until, done)));
            if !ends.is_empty() {
                // One scan serves all of them.
                self.scan_at_end(&ends);
                self.state.lock_running().retain(|one| ends.iter().all(|(id, _)| one.id != *id));
            } else if starts.is_empty() && self.has_changes_to_judge() {
                // On a busy machine a scan lasts long, and the next one is due no later for that.
                let before = thread_cpu_time();
                let is_due = compared_at.elapsed() >= until_compared;
                let mut checker = self.state.lock_checker();
                checker.read_events();
                if is_due {
                    checker.compare_files();
                }
                drop(checker);
                self.scan_slice(&[], Instant::now() + SCAN_SLICE);
                let rest = thread_cpu_time().saturating_sub(before) * CPU_DIVISOR;
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
                // The caller may have stopped waiting.
                let _ = ready.send(true);
            }
            self.answer_finishing();
            self.save_baseline();
        }
    }

    /// The next requests, or none when it is time for a scan while commands run: after `pause` when inotify reported
    /// something, and after `due` in any case.
    fn next_requests(&self, pause: Duration, due: Duration) -> Option<Requests> {
        if self.has_changes_to_judge()
            && (self.pending_scan.is_some() || !self.state.lock_checker().has_baseline)
        {
            return self.state.queue.wait(Duration::ZERO);
        }
        let begun = Instant::now();
        let mut wait = pause;
        while begun.elapsed() < IDLE_TIMEOUT || self.has_changes_to_judge() {
            let requests = self.state.queue.wait(wait)?;
            let passed = begun.elapsed();
            let is_time = passed >= pause && self.has_changes_to_judge();
            let is_time = is_time && (passed >= due || self.state.lock_checker().has_events());
            if !requests.is_empty() || is_time {
                return Some(requests);
            }
            wait = pause.saturating_sub(begun.elapsed()).max(EVENT_INTERVAL);
        }
        // A command that has started since the check has left a wake, so that this returns.
        self.state.queue.park()
    }

    /// Whether changes are judged: a command runs, or what one has changed is not scanned yet.
    fn has_changes_to_judge(&self) -> bool {
        self.pending_scan.is_some() || !self.state.lock_running().is_empty()
    }

    /// Scans before a command starts. The first scan is cut short and continues while the command runs.
    fn build_baseline(&mut self) {
        self.state.lock_checker().read_events();
        let begun = Instant::now();
        while begun.elapsed() < INITIAL_SCAN_TIMEOUT {
            self.scan_slice(&[], Instant::now() + SCAN_SLICE);
            if self.state.lock_checker().scan_is_complete() {
                return;
            }
        }
    }

    /// Answers the sessions that wait for the rest of a scan, where that is done or their time is over.
    fn answer_finishing(&mut self) {
        let is_done = self.pending_scan.is_none();
        let now = Instant::now();
        let is_answered = |(until, _): &mut (Instant, _)| is_done || now >= *until;
        let answered: Vec<_> = self.finishing.extract_if(.., is_answered).collect();
        if let (false, false, Some(pending)) = (answered.is_empty(), is_done, &mut self.pending_scan) {
            // An observer holds the watcher: nobody else may, and then the thread ends.
            pending.observers.clear();
        }
        for (_, done) in answered {
            // The caller may have stopped waiting.
            let _ = done.send(is_done);
        }
    }

    /// Scans what the ended commands have changed, completely or for as long as an end may wait.
    fn scan_at_end(&mut self, ends: &[(String, Arc<Completion>)]) {
        {
            let mut checker = self.state.lock_checker();
            checker.read_events();
            checker.rescan_without_inotify();
            checker.compare_files();
        }
        let begun = Instant::now();
        loop {
            self.scan_slice(ends, Instant::now() + SCAN_SLICE);
            if self.state.lock_checker().scan_is_complete() {
                return;
            }
            if begun.elapsed() > FINAL_SCAN_TIMEOUT {
                return self.defer_scan(ends);
            }
        }
    }

    /// Leaves the rest of the scan for later. What it finds is judged as if the ended commands still ran.
    fn defer_scan(&mut self, ends: &[(String, Arc<Completion>)]) {
        let running = self.state.lock_running();
        let strictest = running.iter().map(|one| (one.on_change, one.since));
        let strictest = strictest.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
        let has_ended = |one: &&RunningCommand| ends.iter().any(|(id, _)| one.id == *id);
        let ended: Vec<_> =
            running.iter().filter(has_ended).filter_map(|one| one.observer.upgrade()).collect();
        drop(running);
        match (&mut self.pending_scan, strictest) {
            (Some(pending), Some((on_change, since))) => {
                pending.on_change = pending.on_change.max(on_change);
                pending.since = pending.since.min(since);
                pending.observers.extend(ended);
            }
            (None, Some((on_change, since))) => {
                self.pending_scan = Some(PendingScan { on_change, since, observers: ended });
                self.state.has_pending_scan.store(true, Ordering::Release);
            }
            // All of them were cancelled.
            (_, None) => {}
        }
        // Before the ends are reported, which say it.
        self.state.lock_shortfall().get_or_insert_with(|| CUT_SHORT.to_owned());
    }

    /// Scans until a deadline, and notifies the running commands of what was found. `ends`: commands that have ended and
    /// wait for the scan.
    fn scan_slice(&mut self, ends: &[(String, Arc<Completion>)], deadline: Instant) {
        let mode = self.scan_mode();
        let commands = || {
            let running = self.state.lock_running();
            match running.iter().all(|one| one.is_gone() || ends.iter().any(|(id, _)| one.id == *id)) {
                true => CommandState::Ended,
                false => CommandState::Running,
            }
        };
        let mut checker = self.state.lock_checker();
        let changes = checker.scan(mode, &commands, deadline);
        let is_done = checker.scan_is_complete();
        // Not said any more when the rest is done.
        let rest = (self.pending_scan.is_some() && !is_done).then_some(CUT_SHORT);
        let shortfall = checker.shortfall().or(rest).map(str::to_owned);
        self.state.is_notifying.store(!changes.is_empty(), Ordering::Release);
        drop(checker);
        *self.state.lock_shortfall() = shortfall;
        if !changes.is_empty() {
            self.notify_observers(&changes);
            self.state.is_notifying.store(false, Ordering::Release);
        }
        if is_done && self.pending_scan.take().is_some() {
            self.state.has_pending_scan.store(false, Ordering::Release);
        }
    }

    /// Called without a lock: an observer may be the last holder of its terminal.
    fn notify_observers(&self, changes: &[DangerousChange]) {
        let mut observers: Vec<_> =
            self.state.lock_running().iter().filter_map(|one| one.observer.upgrade()).collect();
        for late in self.pending_scan.iter().flat_map(|pending| &pending.observers) {
            if !observers.iter().any(|other| Arc::ptr_eq(late, other)) {
                observers.push(late.clone());
            }
        }
        for change in changes {
            observers.iter().for_each(|observer| observer.changed(change));
        }
    }

    fn scan_mode(&self) -> ScanMode {
        let running = self.state.lock_running();
        let strictest = running.iter().map(|one| one.on_change).max();
        let since = running.iter().map(|one| one.since);
        let since = since.chain(self.pending_scan.as_ref().map(|pending| pending.since)).min();
        drop(running);
        let strictest = strictest.max(self.pending_scan.as_ref().map(|pending| pending.on_change));
        match (strictest, since) {
            (None, _) => ScanMode::Accept,
            (Some(on_change), _) if self.state.lock_checker().has_baseline => ScanMode::Judge(on_change),
            (Some(on_change), Some(since)) => ScanMode::AcceptBefore(since, on_change),
            (Some(on_change), None) => ScanMode::Judge(on_change),
        }
    }

    fn save_baseline(&self) {
        let Some(store) = &self.state.store else { return };
        let mut checker = self.state.lock_checker();
        if !std::mem::replace(&mut checker.is_dirty, false) {
            return;
        }
        let record = store.record(&checker);
        drop(checker);
        store.write(&record, &self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use nix::unistd::geteuid;

    use super::*;
    use crate::workspace::{inotify_events::InotifyBudget, integrity_checker::IntegrityChecker, tree::Tree};

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Observer for Counter {
        fn changed(&self, _: &DangerousChange) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn thread(root: &Path) -> WatcherThread {
        let tree = Tree::new(root.to_owned(), fs::File::open(root).unwrap().into());
        let lease = InotifyBudget::of_host().lease_instance(geteuid().as_raw());
        let state = WatchState::new(IntegrityChecker::new(tree, lease, None), None);
        WatcherThread::new(Arc::new(state), Rights::own())
    }

    #[test]
    fn a_scan_that_was_cut_short_is_said_until_its_rest_is_done_and_its_command_is_notified() {
        const REPOSITORIES: usize = 5;
        let root = tempfile::tempdir().unwrap();
        let mut thread = thread(root.path());
        let state = thread.state.clone();
        thread.build_baseline();
        let counter = Arc::new(Counter::default());
        let observer: Arc<dyn Observer> = counter.clone();
        state.lock_running().push(RunningCommand {
            id: "1".to_owned(),
            since: 0,
            observer: Arc::downgrade(&observer),
            on_change: OnChange::Undo,
        });
        for index in 0..REPOSITORIES {
            let git = root.path().join(format!("{index}/.git"));
            fs::create_dir_all(&git).unwrap();
            fs::write(git.join("config"), "[core]\n\tfsmonitor = ./x\n").unwrap();
        }
        state.lock_checker().read_events();
        state.lock_checker().rescan_without_inotify();
        thread.defer_scan(&[("1".to_owned(), Completion::new(|| {}))]);
        state.lock_running().clear();
        drop(observer);
        let has_shortfall = || state.lock_shortfall().is_some();
        assert!(has_shortfall());
        thread.scan_slice(&[], Instant::now());
        assert!(has_shortfall(), "there is a rest");
        let (done, mut is_done) = oneshot::channel();
        thread.finishing.push((Instant::now() + FINISH_TIMEOUT, done));
        thread.answer_finishing();
        assert!(is_done.try_recv().is_err());
        let begun = Instant::now();
        while thread.pending_scan.is_some() && begun.elapsed() < FINISH_TIMEOUT {
            thread.scan_slice(&[], Instant::now());
        }
        thread.answer_finishing();
        assert_eq!(is_done.try_recv(), Ok(true));
        assert_ne!(state.lock_shortfall().as_deref(), Some(CUT_SHORT));
        assert_eq!(counter.0.load(Relaxed), REPOSITORIES);
    }

    #[test]
    fn a_session_does_not_wait_longer_than_it_may_and_then_nothing_holds_the_observers() {
        let root = tempfile::tempdir().unwrap();
        let mut thread = thread(root.path());
        let observers: Vec<Arc<dyn Observer>> = vec![Arc::new(Counter::default())];
        thread.pending_scan = Some(PendingScan { on_change: OnChange::Undo, since: 0, observers });
        let (done, mut is_done) = oneshot::channel();
        thread.finishing.push((Instant::now(), done));
        thread.answer_finishing();
        assert_eq!(is_done.try_recv(), Ok(false));
        assert!(thread.pending_scan.as_ref().is_some_and(|pending| pending.observers.is_empty()));
    }
}
