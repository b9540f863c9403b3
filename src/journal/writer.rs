//! The journal's handle and the one thread that writes.
//!
//! A broken disk stops nothing here: every append is tried, fails at once with what the disk said, and the first one
//! that the disk takes again is preceded by a record of how many were refused.

use std::{
    fmt,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use super::{
    AppendError, JournalOptions, OpenError, WriteFailure,
    clock::{Clock, SystemClock, boot_id},
    folder::{Folder, HeldFolder},
    line::RECORD_BYTES,
    maintenance::Unwritten,
    queue::{Answer, Append, Job, Queue, lock},
    record::Record,
    store::Store,
};

/// Whether the journal takes records.
#[derive(Debug, Clone)]
pub enum Health {
    /// The last append went well.
    Writable,
    /// The last append failed: nothing may be started.
    Unwritable(WriteFailure),
}

/// A journal, open for writing. Clones write to the same one; the last one dropped closes it.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<Queue>,
    health: Arc<Mutex<Health>>,
    folder: Folder,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the journal of a folder and takes up what is there. See [`OpenError`] for what is no error.
    pub fn open(options: JournalOptions) -> Result<Self, OpenError> {
        Self::open_with_clock(options, Box::new(SystemClock))
    }

    /// As [`Journal::open`], by another clock.
    pub fn open_with_clock(options: JournalOptions, mut clock: Box<dyn Clock>) -> Result<Self, OpenError> {
        let held = Arc::new(HeldFolder::take(&options.folder)?);
        let folder = held.folder().clone();
        let boot_id = boot_id().map_err(OpenError::BootId)?;
        let (store, health) = match Store::open(&held, &options, &boot_id, &mut *clock) {
            Ok(store) => (Some(store), Health::Writable),
            Err(failure) => (None, Health::Unwritable(failure)),
        };
        let queue = Arc::new(Queue::default());
        let health = Arc::new(Mutex::new(health));
        let writer = Writer {
            queue: Arc::clone(&queue),
            health: Arc::clone(&health),
            held,
            options,
            boot_id,
            clock,
            store,
            refused: None,
        };
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::Thread)?;
        Ok(Self { shared: Arc::new(Shared { queue, health, folder, thread: Mutex::new(Some(thread)) }) })
    }

    /// Writes a record and waits until it is written, and durable where the rule says so. For threads that may wait.
    pub fn append(&self, record: &Record) -> Answer {
        self.shared.queue.append(encode(record)?)
    }

    /// The same, for tasks. Nothing happens before it is polled.
    pub fn append_async(&self, record: &Record) -> Append {
        self.shared.queue.append_async(encode(record))
    }

    /// Whether commands may be started.
    pub fn health(&self) -> Health {
        lock(&self.shared.health).clone()
    }

    /// The folder, for reading.
    pub fn folder(&self) -> &Folder {
        &self.shared.folder
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
        f.debug_struct("Journal").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
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
    if body.len() > RECORD_BYTES {
        return Err(AppendError::TooLong { bytes: body.len(), limit: RECORD_BYTES });
    }
    Ok(body)
}

struct Writer {
    queue: Arc<Queue>,
    health: Arc<Mutex<Health>>,
    held: Arc<HeldFolder>,
    options: JournalOptions,
    boot_id: String,
    clock: Box<dyn Clock>,
    /// Absent until what was left could be taken up.
    store: Option<Store>,
    refused: Option<Unwritten>,
}

impl Writer {
    fn run(mut self) {
        let _end = AnswersAtEnd(Arc::clone(&self.queue));
        while let Some(group) = self.queue.take() {
            let outcome = self.write(&group);
            *lock(&self.health) = match &outcome {
                Ok(_) => Health::Writable,
                Err(failure) => Health::Unwritable(failure.clone()),
            };
            self.answer(group, outcome);
        }
        if let Some(store) = self.store.take()
            && let Err(failure) = store.finish(&mut *self.clock)
        {
            *lock(&self.health) = Health::Unwritable(failure);
        }
    }

    fn write(&mut self, group: &[Job]) -> Result<u64, WriteFailure> {
        let bodies: Vec<&[u8]> = group.iter().map(|job| job.body.as_slice()).collect();
        let store = match &mut self.store {
            Some(store) => store,
            empty => empty.insert(Store::open(&self.held, &self.options, &self.boot_id, &mut *self.clock)?),
        };
        store.write(&bodies, self.refused.as_ref(), &mut *self.clock)
    }

    fn answer(&mut self, group: Vec<Job>, outcome: Result<u64, WriteFailure>) {
        match outcome {
            Ok(first) => {
                self.refused = None;
                for (job, sequence) in group.into_iter().zip(first..) {
                    job.answer(Ok(sequence));
                }
            }
            Err(failure) => {
                let error = format!("{failure}: {}", failure.source);
                let refused = self.refused.get_or_insert(Unwritten { records: 0, error });
                refused.records += group.len() as u64;
                for job in group {
                    job.answer(Err(AppendError::Unwritable(failure.clone())));
                }
            }
        }
    }
}

/// However the thread ends, nobody waits for it.
struct AnswersAtEnd(Arc<Queue>);

impl Drop for AnswersAtEnd {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
