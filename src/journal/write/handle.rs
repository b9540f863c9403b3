//! The handle of a journal that is open for writing.
//!
//! Opening recovers what an earlier writer left and starts the journal's thread; dropping the last clone closes it.

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::SystemTime,
};

use tokio::sync::watch;

use super::{
    Counters, Health, lock,
    queue::AppendResult,
    store::LogStore,
    write_quota::WriteQuota,
    writer::{Appender, BatchWriter},
};
use crate::{
    AppendError, JournalOptions, OpenError,
    format::{
        clock::{Clock, SystemClock, boot_id},
        directory::{JournalDirectory, LockedDirectory},
        line::MAX_RECORD_BYTES,
        record::Record,
    },
    read::recorded::{last_reports, terminals_with_exit},
};

/// A journal, open for writing. Clones write to the same one; the last one dropped closes it.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    appender: Arc<Appender>,
    health: watch::Receiver<Health>,
    last_sequence: watch::Receiver<u64>,
    counters: Arc<Counters>,
    write_quota: Arc<WriteQuota>,
    directory: JournalDirectory,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the journal of a directory and recovers what is there. [`OpenError`] says what is no error.
    pub fn open(options: JournalOptions) -> Result<Self, OpenError> {
        Self::open_with_clock(options, Box::new(SystemClock))
    }

    /// As [`Journal::open`], with another clock.
    pub fn open_with_clock(options: JournalOptions, mut clock: Box<dyn Clock>) -> Result<Self, OpenError> {
        let locked = Arc::new(LockedDirectory::lock(&options.directory)?);
        let directory = locked.directory().clone();
        let boot_id = boot_id().map_err(OpenError::BootId)?;
        let counters = Arc::<Counters>::default();
        let write_quota = Arc::new(WriteQuota::new(options.kept_bytes(), options.keep_at_least));
        let opened = LogStore::open(&locked, &options, &boot_id, &mut *clock, &counters, &write_quota);
        let (store, health) = match opened {
            Ok(store) => (Some(store), Health::Writable),
            Err(failure) => (None, Health::Unwritable(failure)),
        };
        let last_sequence = store.as_ref().map_or(0, LogStore::last_sequence);
        let (health, health_receiver) = watch::channel(health);
        let (last_sequence, last_sequence_receiver) = watch::channel(last_sequence);
        let writer = BatchWriter {
            health,
            last_sequence,
            counters: Arc::clone(&counters),
            write_quota: Arc::clone(&write_quota),
            locked,
            options,
            boot_id,
            clock,
            store,
            unwritten: None,
            backoff: None,
        };
        let appender = Arc::new(Appender::new(writer));
        let of_thread = Arc::clone(&appender);
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || of_thread.run())
            .map_err(OpenError::Thread)?;
        Ok(Self {
            shared: Arc::new(Shared {
                appender,
                health: health_receiver,
                last_sequence: last_sequence_receiver,
                counters,
                write_quota,
                directory,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Appends a record; blocks the thread until it is written, and durable if the sync rule says so.
    ///
    /// # Panics
    /// In an asynchronous task: use [`Journal::append_async`] there.
    pub fn append(&self, record: &Record) -> AppendResult {
        self.shared.appender.append(self.encode(record)?)
    }

    /// As [`Journal::append`], for tasks. Nothing happens before the future is polled.
    pub fn append_async(&self, record: &Record) -> impl Future<Output = AppendResult> + Send + use<> {
        self.shared.appender.append_async(self.encode(record).map(|body| vec![body]))
    }

    /// Appends records that belong together: in this order, with no other record between them, all or none.
    pub fn append_all_async<'a, R: IntoIterator<Item = &'a Record>>(
        &self,
        records: R,
    ) -> impl Future<Output = AppendResult> + Send + use<R> {
        self.shared.appender.append_async(records.into_iter().map(|record| self.encode(record)).collect())
    }

    /// Appends a record of an event that cannot be refused: it neither waits nor fails. It is written after what was
    /// appended before it. Records that cannot be written are counted, and the count is written as soon as possible.
    pub fn append_best_effort(&self, record: &Record) {
        match self.encode(record) {
            Ok(body) => drop(self.shared.appender.queue.push_best_effort(body)),
            Err(_) => self.shared.appender.queue.count_dropped(),
        }
    }

    /// Encodes a record and counts it against its principal's quota.
    fn encode(&self, record: &Record) -> Result<Vec<u8>, AppendError> {
        let body = encode(record)?;
        self.shared.write_quota.count(record.subject().principal, body.len());
        Ok(body)
    }

    /// The quota that bounds what each principal may write.
    pub fn write_quota(&self) -> &WriteQuota {
        &self.shared.write_quota
    }

    /// Waits until everything that was appended before is written or has failed.
    pub async fn flush(&self) {
        // A failure is reported to the appends that it concerns.
        let _ = self.shared.appender.append_async(Ok(Vec::new())).await;
    }

    /// Whether the journal takes records, and so whether commands may be started.
    pub fn health(&self) -> Health {
        self.shared.health.borrow().clone()
    }

    /// What the journal has done since it was opened.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The sequence number of the last written record, and a way to wait for the next one. Closed with the journal.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        subscribed(&self.shared.last_sequence)
    }

    /// Changes of the health from now on. Closed with the journal.
    pub fn health_changes(&self) -> watch::Receiver<Health> {
        subscribed(&self.shared.health)
    }

    /// The terminals whose exit was written since a time or a little before, at most
    /// [`MAX_RECORDED_EXITS`](crate::read::recorded::MAX_RECORDED_EXITS), the newest first. Reads files: for a thread that may block.
    pub fn terminals_with_exit(&self, since: SystemTime) -> io::Result<HashSet<String>> {
        terminals_with_exit(self.directory(), since)
    }

    /// The last report of each sandbox's gate that was written since a time or a little before, at most
    /// [`MAX_REPORTING_SANDBOXES`](crate::read::recorded::MAX_REPORTING_SANDBOXES). Reads files: for a thread that may block.
    pub fn last_reports(&self, since: SystemTime) -> io::Result<HashMap<String, u64>> {
        last_reports(self.directory(), since)
    }

    /// The directory, for reading.
    pub fn directory(&self) -> &JournalDirectory {
        &self.shared.directory
    }

    /// Writes what is queued, signs and syncs it, and closes the journal. Later appends fail, those of clones too. The
    /// health afterwards says whether everything reached the disk.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Shared {
    fn close(&self) {
        self.appender.queue.close();
        if let Some(thread) = lock(&self.thread).take() {
            // After a panic of the thread every append has already failed with `Stopped`.
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

/// A receiver that waits for changes from now on.
fn subscribed<T>(receiver: &watch::Receiver<T>) -> watch::Receiver<T> {
    let mut receiver = receiver.clone();
    receiver.mark_unchanged();
    receiver
}

fn encode(record: &Record) -> Result<Vec<u8>, AppendError> {
    if record.is_reserved() {
        return Err(AppendError::Reserved);
    }
    let body = serde_json::to_vec(record).map_err(|error| AppendError::Unencodable(Arc::new(error)))?;
    let body = crate::printable::json_bytes(body);
    if body.len() > MAX_RECORD_BYTES {
        return Err(AppendError::TooLong { bytes: body.len(), limit: MAX_RECORD_BYTES });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GatewayStopped;

    #[test]
    fn a_subscriber_learns_of_records_that_are_written_after_it_subscribed() {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::open(JournalOptions::new(root.path().join("journal"))).unwrap();
        let stopped = GatewayStopped { cause: "drained".to_owned(), live_terminals: 0 };
        let record = Record::GatewayStopped(stopped);
        journal.append(&record).unwrap();
        let (mut written, mut health) = (journal.subscribe(), journal.health_changes());
        let last = journal.append(&record).unwrap();
        while *written.borrow_and_update() < last {
            thread::yield_now();
        }
        assert!(!written.has_changed().unwrap() && !health.has_changed().unwrap());
        journal.close();
        drop(journal);
        assert!(written.has_changed().is_err(), "it is closed with the journal");
        assert!(matches!(&*health.borrow_and_update(), Health::Writable));
    }
}
