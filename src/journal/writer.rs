//! The journal's handle, and how a group of records is written and answered.
//!
//! A broken disk stops nothing here: every append is tried, fails at once with what the disk said, and the first one
//! that the disk takes again is preceded by a record of how many were refused. Without appends the journal's thread tries
//! by itself, so that the health comes back when the disk does. Whose thread writes is decided in [`super::desk`].

use std::{
    collections::HashSet,
    fmt, io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use super::{
    AppendError, JournalOptions, OpenError, WriteFailure, WriteStep,
    appender::{AppendFuture, Appender},
    clock::{Clock, SystemClock, boot_id},
    counters::Counters,
    directory::{JournalDirectory, LockedDirectory},
    health::{Health, HealthChanges, HealthState},
    line::MAX_RECORD_BYTES,
    maintenance::Unwritten,
    progress::{Progress, ProgressReceiver},
    queue::{Append, AppendResult, Batch, Queue, lock},
    record::Record,
    recorded_exits::terminals_with_exit,
    store::LogStore,
    write_quota::WriteQuota,
};

/// The first time between two attempts on a disk that does not make records durable.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// The longest one: each attempt begins a file.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A journal, open for writing. Clones write to the same one; the last one dropped closes it.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    appender: Arc<Appender>,
    health: Arc<HealthState>,
    progress: Arc<Progress>,
    counters: Arc<Counters>,
    write_quota: Arc<WriteQuota>,
    directory: JournalDirectory,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the journal of a directory and takes up what is there. See [`OpenError`] for what is no error.
    pub fn open(options: JournalOptions) -> Result<Self, OpenError> {
        Self::open_with_clock(options, Box::new(SystemClock))
    }

    /// As [`Journal::open`], by another clock.
    pub fn open_with_clock(options: JournalOptions, mut clock: Box<dyn Clock>) -> Result<Self, OpenError> {
        let held = Arc::new(LockedDirectory::lock(&options.directory)?);
        let directory = held.directory().clone();
        let boot_id = boot_id().map_err(OpenError::BootId)?;
        let counters = Arc::<Counters>::default();
        let shares = Arc::new(WriteQuota::new(options.kept_bytes(), options.keep_at_least));
        let (store, health) = match LogStore::open(&held, &options, &boot_id, &mut *clock, &counters, &shares)
        {
            Ok(store) => (Some(store), Health::Writable),
            Err(failure) => (None, Health::Unwritable(failure)),
        };
        let health = Arc::new(HealthState::new(health));
        let progress = Arc::<Progress>::default();
        progress.advance_to(store.as_ref().map_or(0, LogStore::last_sequence));
        let writer = BatchWriter {
            health: Arc::clone(&health),
            progress: Arc::clone(&progress),
            counters: Arc::clone(&counters),
            write_quota: Arc::clone(&shares),
            locked: held,
            options,
            boot_id,
            clock,
            store,
            unwritten: None,
            backoff: None,
        };
        let desk = Arc::new(Appender::new(writer));
        let keeper = Arc::clone(&desk);
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || keeper.run())
            .map_err(OpenError::Thread)?;
        Ok(Self {
            shared: Arc::new(Shared {
                appender: desk,
                health,
                progress,
                counters,
                write_quota: shares,
                directory,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Writes a record and waits until it is written, and durable where the rule says so. For threads that may wait.
    pub fn append(&self, record: &Record) -> AppendResult {
        self.shared.appender.append(self.encode(record)?)
    }

    /// The same, for tasks. Nothing happens before it is polled.
    pub fn append_async(&self, record: &Record) -> AppendFuture {
        self.shared.appender.append_async(self.encode(record).map(|body| vec![body]))
    }

    /// Appends records that belong together: in this order, with nothing between them, all or none.
    pub fn append_all_async<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> AppendFuture {
        self.shared.appender.append_async(records.into_iter().map(|record| self.encode(record)).collect())
    }

    /// Appends a record of what happens in any case: neither waits nor fails. It is written after what was appended
    /// before it. What cannot be written is counted, and the count is written as soon as that can be.
    pub fn append_best_effort(&self, record: &Record) {
        match self.encode(record) {
            Ok(body) => drop(self.shared.appender.queue.push_best_effort(body)),
            Err(_) => self.shared.appender.queue.count_dropped(),
        }
    }

    /// In JSON, and counted as its principal's.
    fn encode(&self, record: &Record) -> Result<Vec<u8>, AppendError> {
        let body = encode(record)?;
        self.shared.write_quota.count(record.subject().principal, body.len());
        Ok(body)
    }

    /// How much of it each principal may write.
    pub fn write_quota(&self) -> &WriteQuota {
        &self.shared.write_quota
    }

    /// Waits until all that was appended or noted before is written, or could not be.
    pub async fn flush(&self) {
        // What the disk says is told to whoever appends something.
        let _ = self.shared.appender.append_async(Ok(Vec::new())).await;
    }

    /// Whether commands may be started.
    pub fn health(&self) -> Health {
        self.shared.health.get()
    }

    /// What it has done since it was opened.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// To wait for records that are written from now on.
    pub fn subscribe(&self) -> ProgressReceiver {
        ProgressReceiver::of(&self.shared.progress)
    }

    /// To wait for a change of the health, from now on.
    pub fn health_changes(&self) -> HealthChanges {
        HealthChanges::of(&self.shared.health)
    }

    /// The terminals whose exit was written since then, or a little before; of very many, the newest. For a thread
    /// that may wait: reads the files that may have them.
    pub fn terminals_with_exit(&self, since: SystemTime) -> io::Result<HashSet<String>> {
        terminals_with_exit(self.directory(), since)
    }

    /// The directory, for reading.
    pub fn directory(&self) -> &JournalDirectory {
        &self.shared.directory
    }

    /// Writes what is queued, signs and syncs it, and ends. Later appends are refused, also those of clones.
    ///
    /// The health afterwards tells whether all of it reached the disk.
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
            // A panic of the writer has already answered every append with `Stopped`.
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
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

/// Writes groups of records to the store, and answers for them.
pub(super) struct BatchWriter {
    health: Arc<HealthState>,
    progress: Arc<Progress>,
    counters: Arc<Counters>,
    write_quota: Arc<WriteQuota>,
    locked: Arc<LockedDirectory>,
    options: JournalOptions,
    boot_id: String,
    clock: Box<dyn Clock>,
    /// Absent until what was left could be taken up.
    store: Option<LogStore>,
    unwritten: Option<Unwritten>,
    /// Until when the disk is left alone after it failed to sync, for how long that is, and how it failed.
    backoff: Option<(Instant, Duration, WriteFailure)>,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("directory", self.locked.directory()).finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// Takes what is queued next and writes it; or tries what the disk has refused.
    pub fn write_next_batch(&mut self, queue: &Queue) {
        let Batch { appends: jobs, dropped } = queue.next_batch();
        self.count_unwritten(dropped, "the queue was full");
        if jobs.is_empty() && !self.is_failing() {
            return;
        }
        let outcome = self.write(&jobs);
        self.health.set(match &outcome {
            Ok(_) => Health::Writable,
            Err(failure) => Health::Unwritable(failure.clone()),
        });
        self.complete(jobs, outcome);
        if let Some(store) = &self.store {
            self.progress.advance_to(store.last_sequence());
        }
    }

    /// Whether writing is nothing but one append to the current file, which waits for no disk.
    pub fn can_append_without_blocking(&mut self) -> bool {
        let Self { store, unwritten: refused, backoff: resting, clock, .. } = self;
        let is_settled = store.as_ref().is_some_and(|store| store.can_append_without_blocking(&mut **clock));
        is_settled && refused.is_none() && resting.is_none()
    }

    /// Nothing more comes.
    pub fn finish(mut self) {
        if let Some(store) = self.store.take()
            && let Err(failure) = store.finish(&mut *self.clock)
        {
            self.health.set(Health::Unwritable(failure));
        }
    }

    /// Whether something is owed that the disk did not take.
    pub fn is_failing(&self) -> bool {
        self.store.is_none() || self.unwritten.is_some()
    }

    fn write(&mut self, group: &[Append]) -> Result<u64, WriteFailure> {
        if let Some((until, _, failure)) = &self.backoff
            && Instant::now() < *until
        {
            return Err(failure.clone());
        }
        let outcome = self.try_write(group);
        self.backoff = match &outcome {
            Err(failure) if failure.step == WriteStep::Sync => {
                let rest =
                    self.backoff.take().map_or(MIN_BACKOFF, |(_, rest, _)| (rest * 2).min(MAX_BACKOFF));
                Some((Instant::now() + rest, rest, failure.clone()))
            }
            Ok(_) | Err(_) => None,
        };
        outcome
    }

    fn try_write(&mut self, group: &[Append]) -> Result<u64, WriteFailure> {
        let bodies: Vec<&[u8]> = group.iter().flat_map(|job| &job.bodies).map(Vec::as_slice).collect();
        let store = match &mut self.store {
            Some(store) => store,
            empty => {
                let (held, options) = (&self.locked, &self.options);
                let (clock, counters, shares) = (&mut *self.clock, &self.counters, &self.write_quota);
                let store = LogStore::open(held, options, &self.boot_id, clock, counters, shares)?;
                empty.insert(store)
            }
        };
        store.write(&bodies, self.unwritten.as_ref(), &mut *self.clock)
    }

    fn complete(&mut self, group: Vec<Append>, outcome: Result<u64, WriteFailure>) {
        match outcome {
            Ok(mut first) => {
                self.unwritten = None;
                for job in group {
                    let records = job.bodies.len() as u64;
                    job.complete(Ok(first));
                    first += records;
                }
            }
            Err(failure) => {
                if !group.is_empty() {
                    self.counters.write_failures.inc();
                }
                let records = group.iter().map(|job| job.bodies.len() as u64).sum();
                self.count_unwritten(records, &format!("{failure}: {}", failure.source));
                for job in group {
                    job.complete(Err(AppendError::Unwritable(failure.clone())));
                }
            }
        }
    }

    /// Counts records that are not written, to say so when that can be said.
    fn count_unwritten(&mut self, records: u64, error: &str) {
        if records > 0 {
            self.counters.unwritten.add(records);
            let refused =
                self.unwritten.get_or_insert_with(|| Unwritten { records: 0, error: error.to_owned() });
            refused.records += records;
        }
    }
}
