//! Writes batches of records to the log files and sends each append its result.
//!
//! A failing disk stops nothing here. Every batch is tried and fails at once with the disk's error; the first batch that
//! succeeds again is preceded by a record of how many records were not written. `appender` decides on which thread this
//! happens, and retries when nobody appends, so that the health recovers with the disk.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    counters::Counters,
    health::Health,
    queue::{Append, Batch, Queue},
    store::LogStore,
    write_quota::WriteQuota,
};
use crate::{
    AppendError, JournalOptions, WriteFailure, WriteStep,
    format::{clock::Clock, directory::LockedDirectory, maintenance::Unwritten},
};

/// The first time between two attempts on a disk that fails to sync.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// The longest time between two attempts: each attempt creates a file.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How the disk failed to sync, and when it is tried again.
pub(super) struct Backoff {
    until: Instant,
    length: Duration,
    failure: WriteFailure,
}

/// Writes batches to the store.
pub(super) struct BatchWriter {
    pub health: watch::Sender<Health>,
    /// The sequence number of the last written record.
    pub last_sequence: watch::Sender<u64>,
    pub counters: Arc<Counters>,
    pub write_quota: Arc<WriteQuota>,
    pub locked: Arc<LockedDirectory>,
    pub options: JournalOptions,
    pub boot_id: String,
    pub clock: Box<dyn Clock>,
    /// Absent until the directory could be recovered.
    pub store: Option<LogStore>,
    /// The records that were not written since the last successful batch.
    pub unwritten: Option<Unwritten>,
    pub backoff: Option<Backoff>,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").field("directory", self.locked.directory()).finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// Writes the next batch of the queue. With an empty queue, tries a failing disk again.
    pub fn write_next_batch(&mut self, queue: &Queue) {
        let Batch { appends, dropped } = queue.next_batch();
        self.count_unwritten(dropped, "the queue was full");
        if appends.is_empty() && !self.is_failing() {
            return;
        }
        let outcome = self.write(&appends);
        self.set_health(match &outcome {
            Ok(_) => Health::Writable,
            Err(failure) => Health::Unwritable(failure.clone()),
        });
        self.complete(appends, outcome);
        if let Some(store) = &self.store {
            let last = store.last_sequence();
            self.last_sequence.send_if_modified(|known| std::mem::replace(known, last) != last);
        }
    }

    /// Whether writing a batch is a plain append to the current file, without a sync or another wait for the disk.
    pub fn can_append_without_blocking(&mut self) -> bool {
        let Self { store, unwritten, backoff, clock, .. } = self;
        let is_ready = store.as_ref().is_some_and(|store| store.can_append_without_blocking(&mut **clock));
        is_ready && unwritten.is_none() && backoff.is_none()
    }

    /// Finishes the current file after the last batch.
    pub fn finish(mut self) {
        if let Some(store) = self.store.take()
            && let Err(failure) = store.finish(&mut *self.clock)
        {
            self.set_health(Health::Unwritable(failure));
        }
    }

    /// Whether the last batch failed, so that the disk is to be tried again.
    pub fn is_failing(&self) -> bool {
        self.store.is_none() || self.unwritten.is_some()
    }

    fn set_health(&self, health: Health) {
        self.health.send_if_modified(|known| known.replace(health));
    }

    fn write(&mut self, appends: &[Append]) -> Result<u64, WriteFailure> {
        if let Some(backoff) = &self.backoff
            && Instant::now() < backoff.until
        {
            return Err(backoff.failure.clone());
        }
        let outcome = self.try_write(appends);
        self.backoff = match &outcome {
            Err(failure) if failure.step == WriteStep::Sync => {
                let last = self.backoff.take();
                let length = last.map_or(MIN_BACKOFF, |last| (last.length * 2).min(MAX_BACKOFF));
                Some(Backoff { until: Instant::now() + length, length, failure: failure.clone() })
            }
            Ok(_) | Err(_) => None,
        };
        outcome
    }

    fn try_write(&mut self, appends: &[Append]) -> Result<u64, WriteFailure> {
        let bodies: Vec<&[u8]> =
            appends.iter().flat_map(|append| &append.bodies).map(Vec::as_slice).collect();
        let store = match &mut self.store {
            Some(store) => store,
            empty => {
                let Self { locked, options, boot_id, clock, counters, write_quota, .. } = self;
                let store = LogStore::open(locked, options, boot_id, &mut **clock, counters, write_quota)?;
                empty.insert(store)
            }
        };
        store.write(&bodies, self.unwritten.as_ref(), &mut *self.clock)
    }

    fn complete(&mut self, appends: Vec<Append>, outcome: Result<u64, WriteFailure>) {
        match outcome {
            Ok(mut first) => {
                self.unwritten = None;
                for append in appends {
                    let records = append.bodies.len() as u64;
                    append.complete(Ok(first));
                    first += records;
                }
            }
            Err(failure) => {
                if !appends.is_empty() {
                    self.counters.write_failures.inc();
                }
                let records = appends.iter().map(|append| append.bodies.len() as u64).sum();
                self.count_unwritten(records, &format!("{failure}: {}", failure.source));
                for append in appends {
                    append.complete(Err(AppendError::Unwritable(failure.clone())));
                }
            }
        }
    }

    /// Counts records that are not written. The next successful batch begins with the count.
    fn count_unwritten(&mut self, records: u64, error: &str) {
        if records > 0 {
            self.counters.unwritten.add(records);
            let unwritten =
                self.unwritten.get_or_insert_with(|| Unwritten { records: 0, error: error.to_owned() });
            unwritten.records += records;
        }
    }
}
