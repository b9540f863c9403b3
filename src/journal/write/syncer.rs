//! The thread that syncs written records and then updates `head`, so that the writer does not wait for the disk.
//!
//! `head` is never ahead of what has been synced. A failure is handed to the writer, which begins a new file: after
//! a failed fdatasync(2) the kernel may have dropped the pages and would call the next one a success.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::mutex::lock;
use crate::{
    SyncRule,
    format::{chain::ChainHead, directory::write_head},
};

/// How far `head` may be behind where nothing is synced by this thread.
const HEAD_DELAY: Duration = Duration::from_millis(50);

/// The thread, ended when this is dropped.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<SyncerShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SyncerShared {
    state: Mutex<SyncerState>,
    changed: Condvar,
    directory: PathBuf,
    rule: SyncRule,
}

#[derive(Debug)]
struct SyncerState {
    written: Option<(ChainHead, Arc<File>)>,
    durable: ChainHead,
    failed: Option<io::Error>,
    is_stopping: bool,
}

impl Syncer {
    pub fn start(directory: PathBuf, rule: SyncRule, durable: ChainHead) -> io::Result<Self> {
        let state = SyncerState { written: None, durable, failed: None, is_stopping: false };
        let shared =
            Arc::new(SyncerShared { state: Mutex::new(state), changed: Condvar::new(), directory, rule });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("journal-sync".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Everything up to `chain_head` is written to `file`.
    pub fn written(&self, chain_head: ChainHead, file: &Arc<File>) {
        let mut state = lock(&self.shared.state);
        let was_idle = state.written.is_none();
        state.written = Some((chain_head, Arc::clone(file)));
        drop(state);
        if was_idle {
            self.shared.changed.notify_one();
        }
    }

    /// The last record known to be durable by this thread's doing.
    pub fn durable(&self) -> ChainHead {
        lock(&self.shared.state).durable
    }

    /// Whether there is one to take.
    pub fn has_failed(&self) -> bool {
        lock(&self.shared.state).failed.is_some()
    }

    /// A failure since the last call, with the last record known to be durable.
    pub fn take_failure(&self) -> Option<(ChainHead, io::Error)> {
        let mut state = lock(&self.shared.state);
        let error = state.failed.take()?;
        Some((state.durable, error))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        lock(&self.shared.state).is_stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is not passed on: closing the journal syncs once more.
            let _ = thread.join();
        }
    }
}

impl SyncerShared {
    fn run(&self) {
        while let Some((chain_head, file)) = self.next() {
            let synced = match self.rule {
                SyncRule::Batch { .. } => file.sync_data(),
                SyncRule::Always | SyncRule::Off => Ok(()),
            };
            match synced {
                Ok(()) => {
                    lock(&self.state).durable = chain_head;
                    // An old head proves less, but nothing wrong, and the next one replaces it.
                    let _ = write_head(&self.directory, chain_head, self.rule);
                }
                Err(error) => lock(&self.state).failed = Some(error),
            }
        }
    }

    /// Waits until something is written, and then for more, as long as the rule allows.
    fn next(&self) -> Option<(ChainHead, Arc<File>)> {
        let within = match self.rule {
            SyncRule::Batch { within } => within,
            SyncRule::Always | SyncRule::Off => HEAD_DELAY,
        };
        let mut state = lock(&self.state);
        while state.written.is_none() && !state.is_stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let deadline = Instant::now() + within;
        while !state.is_stopping {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        // When stopping, the rest is synced by the thread that closes the file.
        if state.is_stopping { None } else { state.written.take() }
    }
}
