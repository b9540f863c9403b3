//! What a workspace's watcher and its thread share: the requests to the thread, and the state.
//!
//! At most one start and one end of each command wait in the queue, so the limit on terminals bounds it. An end is never lost: a closed
//! queue drops it at once, which completes it without a scan.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    baseline_store::BaselineStore,
    integrity_checker::{DangerousChange, IntegrityChecker},
};
use crate::policy::profile::OnChange;

/// The requests since the thread last took some.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Commands about to start that wait for a complete baseline.
    pub starts: Vec<oneshot::Sender<bool>>,
    /// Commands that have ended, by id.
    pub ends: Vec<(String, Arc<Completion>)>,
    /// Sessions about to be closed that wait for the rest of a scan; each is notified whether it was done.
    pub finishes: Vec<oneshot::Sender<bool>>,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.ends.is_empty() && self.finishes.is_empty()
    }
}

/// Runs a closure when its last holder drops it: after the last of the scans at a command's end, or instead of a scan
/// that is impossible.
pub(crate) struct Completion(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Completion {
    /// Runs `done` when the last holder drops it.
    pub(crate) fn new(done: impl FnOnce() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Some(Box::new(done))))
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done();
        }
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Completion")
    }
}

/// The queue of one thread.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    requests: Requests,
    is_closed: bool,
    /// The thread sleeps until there is a request or a wake.
    is_parked: bool,
    /// A wake that the thread has not seen yet.
    is_woken: bool,
}

impl RequestQueue {
    /// Adds a request.
    pub(super) fn submit(&self, add: impl FnOnce(&mut Requests)) {
        let mut state = self.lock();
        add(&mut state.requests);
        let dropped = state.is_closed.then(|| std::mem::take(&mut state.requests));
        drop(state);
        drop(dropped);
        self.changed.notify_one();
    }

    /// Wakes the thread where it is parked, or is about to be: the wake is kept until the thread has seen it.
    pub(super) fn wake(&self) {
        let mut state = self.lock();
        state.is_woken = true;
        if state.is_parked {
            self.changed.notify_one();
        }
    }

    /// All requests, or none after a time; `None` when the queue is closed.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Requests> {
        let is_idle = |state: &mut QueueState| state.requests.is_empty() && !state.is_closed;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        Self::take(state)
    }

    /// All requests, or none after a wake; `None` when the queue is closed. Does not wait when there was a wake since the
    /// last wait.
    pub(super) fn park(&self) -> Option<Requests> {
        let mut state = self.lock();
        state.is_parked = true;
        let is_idle =
            |state: &mut QueueState| state.requests.is_empty() && !state.is_closed && !state.is_woken;
        let mut state = self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        state.is_parked = false;
        Self::take(state)
    }

    /// Drops all requests, and every later one.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.requests);
        drop(state);
        drop(dropped);
        self.changed.notify_one();
    }

    /// Takes the requests. The thread checks the running commands next, so that a wake has been seen.
    fn take(mut state: MutexGuard<'_, QueueState>) -> Option<Requests> {
        state.is_woken = false;
        (!state.is_closed).then(|| std::mem::take(&mut state.requests))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Is notified of dangerous changes while a command runs.
pub(crate) trait Observer: Send + Sync {
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
    pub(super) fn new(checker: IntegrityChecker, store: Option<BaselineStore>) -> Self {
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

    pub(super) fn lock_checker(&self) -> MutexGuard<'_, IntegrityChecker> {
        self.checker.lock().expect("no code panics while it holds the baseline of a workspace")
    }

    pub(super) fn lock_running(&self) -> MutexGuard<'_, Vec<RunningCommand>> {
        self.running.lock().expect("no code panics while it holds the commands of a workspace")
    }

    pub(super) fn lock_shortfall(&self) -> MutexGuard<'_, Option<String>> {
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
    pub(super) fn is_gone(&self) -> bool {
        self.observer.strong_count() == 0
    }
}

impl std::fmt::Debug for RunningCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCommand").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// Parks a thread on the queue, and waits until it is back.
    fn parks_and_returns(queue: &Arc<RequestQueue>, then: impl FnOnce(&RequestQueue)) -> Option<Requests> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let of_thread = queue.clone();
        thread::spawn(move || sender.send(of_thread.park()));
        then(queue);
        receiver.recv_timeout(TEST_TIMEOUT).expect("the thread was not woken")
    }

    #[test]
    fn a_wake_between_the_last_check_and_the_sleep_is_not_lost() {
        let queue = Arc::new(RequestQueue::default());
        // The thread has found nothing to do, and has not begun to sleep.
        queue.wake();
        assert!(parks_and_returns(&queue, |_| {}).is_some_and(|requests| requests.is_empty()));
        // Nor is one of a thread that sleeps.
        let asleep = |queue: &RequestQueue| {
            while !queue.lock().is_parked {
                thread::yield_now();
            }
            queue.wake();
        };
        assert!(parks_and_returns(&queue, asleep).is_some_and(|requests| requests.is_empty()));
    }

    #[test]
    fn a_wake_that_was_seen_does_not_wake_twice() {
        let queue = RequestQueue::default();
        queue.wake();
        assert!(queue.wait(Duration::ZERO).is_some());
        assert!(!queue.lock().is_woken);
    }

    #[test]
    fn a_closed_queue_completes_what_it_holds_and_what_comes_later() {
        let queue = Arc::new(RequestQueue::default());
        let (sender, receiver) = mpsc::sync_channel(2);
        let completion = |name: &'static str| {
            let sender = sender.clone();
            Completion::new(move || sender.send(name).unwrap())
        };
        queue.submit(|requests| requests.ends.push(("1".to_owned(), completion("held"))));
        queue.close();
        queue.submit(|requests| requests.ends.push(("2".to_owned(), completion("later"))));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["held", "later"]);
        assert!(queue.wait(Duration::ZERO).is_none());
        assert!(parks_and_returns(&queue, |_| {}).is_none());
    }
}
