//! The thread that watches one workspace: it scans at the start and the end of each command, and from time to time
//! while one runs.
//!
//! It has the file permissions of the workspace's owner, and nothing else waits for its file operations: a file system
//! that hangs delays the commands of that workspace alone.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use nix::unistd::{Gid, Uid};

use super::{
    integrity_checker::{CommandState, DangerousChange, ScanMode},
    queue::{Completion, Requests},
    watch_state::{Observer, WatchState},
};
use crate::{policy::profile::OnChange, sys::credentials};

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

/// The thread of one workspace.
pub(super) struct WatcherThread {
    state: Arc<WatchState>,
    owner: (u32, u32),
    /// The rest of a scan at a command's end.
    pending_scan: Option<PendingScan>,
}

/// A scan that was cut short. What it finds later is judged as if its commands still ran.
struct PendingScan {
    on_change: OnChange,
    observers: Vec<Weak<dyn Observer>>,
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        // However the thread ended: nothing waits for it any more.
        self.state.queue.close();
    }
}

impl WatcherThread {
    /// `owner`: the user and group whose file permissions the thread has.
    pub fn new(state: Arc<WatchState>, owner: (u32, u32)) -> Self {
        Self { state, owner, pending_scan: None }
    }

    /// Serves requests and scans until the queue is closed.
    pub fn run(mut self) {
        let (uid, gid) = self.owner;
        if let Err(errno) = credentials::restrict_file_access_to(Uid::from_raw(uid), Gid::from_raw(gid)) {
            let reason = format!("the permissions of uid {uid} cannot be taken on: {}", errno.desc());
            *self.state.lock_shortfall() = Some(reason);
            return;
        }
        let (mut pause, mut until_compared) = (EVENT_INTERVAL, COMPARE_INTERVAL);
        let mut compared_at = Instant::now();
        loop {
            let due = until_compared.saturating_sub(compared_at.elapsed());
            let Some(Requests { starts, ends }) = self.next_requests(pause, due) else { return };
            if !ends.is_empty() {
                // One scan serves all of them.
                self.scan_at_end(&ends);
                self.state.lock_running().retain(|one| ends.iter().all(|(id, _)| one.id != *id));
            } else if starts.is_empty() && self.has_changes_to_judge() {
                let begun = Instant::now();
                let is_due = compared_at.elapsed() >= until_compared;
                let mut checker = self.state.lock_checker();
                checker.read_events();
                if is_due {
                    checker.compare_files();
                }
                drop(checker);
                self.scan_slice(&[], Instant::now() + SCAN_SLICE);
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
                // The caller may have stopped waiting.
                let _ = ready.send(());
            }
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
            let mut checker = self.state.lock_checker();
            let is_done = if checker.has_baseline {
                checker.scan_is_complete()
            } else {
                checker.events_are_processed()
            };
            if is_done {
                return;
            }
            if begun.elapsed() > FINAL_SCAN_TIMEOUT {
                checker.set_shortfall("the scan at a command's end was cut short: its rest is done later");
                drop(checker);
                return self.defer_scan();
            }
        }
    }

    /// Leaves the rest of the scan for later. What it finds is judged as if the running commands still ran.
    fn defer_scan(&mut self) {
        let running = self.state.lock_running();
        let Some(on_change) = running.iter().map(|one| one.on_change).max() else { return };
        let observers = running.iter().map(|one| one.observer.clone()).collect();
        drop(running);
        self.pending_scan = Some(PendingScan { on_change, observers });
        self.state.has_pending_scan.store(true, Ordering::Release);
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
        let shortfall = checker.shortfall().map(str::to_owned);
        let is_done = checker.scan_is_complete();
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
        let late = self.pending_scan.iter().flat_map(|pending| &pending.observers).filter_map(Weak::upgrade);
        let late: Vec<_> =
            late.filter(|one| !observers.iter().any(|other| Arc::ptr_eq(one, other))).collect();
        observers.extend(late);
        for change in changes {
            observers.iter().for_each(|observer| observer.changed(change));
        }
    }

    fn scan_mode(&self) -> ScanMode {
        let running = self.state.lock_running();
        let strictest = running.iter().map(|one| one.on_change).max();
        let since = running.iter().map(|one| one.since).min();
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
        store.write(&record, self.owner);
    }
}
