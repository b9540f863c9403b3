//! Records on their way to a caller: where they come from, and whose turn at the files it is.
//!
//! A caller that reads slowly holds a place and no thread; one that wants little of much lets others have their turn.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::stream::unfold;
use tokio::sync::{Semaphore, watch};
use tokio_stream::Stream;
use tonic::Status;

use super::super::errors;
use crate::{
    journal::{Entries, Follower, JournalDirectory, JournalReadError, ReadStep, RecordFilter},
    proto::v1::AuditRecord,
    session::Principal,
};

/// Queries and follows under way, of all callers; each reads with a thread of the pool now and then.
const READERS_MAX: usize = 64;
/// Readers that one principal may have.
const READERS_PER_PRINCIPAL_MAX: usize = 8;
/// Records that are read at once.
const BATCH_RECORDS: usize = 256;
/// And their bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Records that are looked at, wanted or not, before another reader has its turn.
const SCANNED_RECORDS_MAX: usize = 2_048;
/// Readers that read files at the same moment. Those beyond wait: the threads that may wait for files also bring
/// sandboxes up.
pub(super) const CONCURRENT_READS: usize = 4;
/// The files that they are looked for in.
pub(super) const LAST_FILES: usize = 2;

pub(super) type RecordStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Where records come from.
pub(super) enum RecordSource {
    /// Those that are there.
    Existing(Entries),
    /// Those that are written from now on, and those after this number.
    Followed { follower: Follower, after: u64 },
}

/// Some records.
#[derive(Default)]
struct RecordBatch {
    records: Vec<AuditRecord>,
    /// Nothing more is there, or not yet.
    is_at_end: bool,
}

impl RecordSource {
    fn next(&mut self) -> Result<ReadStep, JournalReadError> {
        match self {
            Self::Existing(entries) => entries.look(),
            Self::Followed { follower, after } => match follower.look()? {
                ReadStep::Entry(entry) if entry.line.sequence <= *after => Ok(ReadStep::Skipped),
                found => Ok(found),
            },
        }
    }

    /// Some records, or none yet among those that were looked at. Bad lines are passed over here, and named by
    /// verifying.
    fn batch(&mut self) -> io::Result<RecordBatch> {
        let (mut batch, mut bytes) = (RecordBatch::default(), 0);
        for _ in 0..SCANNED_RECORDS_MAX {
            match self.next() {
                Ok(ReadStep::Entry(entry)) => {
                    bytes += entry.text.len();
                    let sequence = entry.line.sequence;
                    batch.records.push(AuditRecord { sequence, line: entry.text });
                    if batch.records.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                        break;
                    }
                }
                Ok(ReadStep::Skipped) | Err(JournalReadError::BadLine { .. }) => {}
                Ok(ReadStep::End) => {
                    batch.is_at_end = true;
                    break;
                }
                Err(JournalReadError::Io(error)) => return Err(error),
            }
        }
        Ok(batch)
    }
}

/// The number before the first of the last so many records that a filter wants; `None` when there are none.
pub(super) async fn before_last(
    reader: &RecordReader,
    directory: &JournalDirectory,
    filter: &RecordFilter,
    last: usize,
) -> Result<Option<u64>, Status> {
    let (directory, filter) = (directory.clone(), filter.clone());
    let follower = reader.read(move || Follower::new(&directory, filter, LAST_FILES)).await?;
    let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
    let mut source = RecordSource::Followed { follower, after: 0 };
    let mut found = VecDeque::new();
    loop {
        let batch;
        (batch, source) = reader.read(move || (source.batch(), source)).await?;
        let batch = batch.map_err(|error| errors::journal_unreadable(&error))?;
        for record in batch.records {
            found.push_back(record.sequence);
            if found.len() > last {
                found.pop_front();
            }
        }
        if batch.is_at_end {
            return Ok(found.front().map(|first| first.saturating_sub(1)));
        }
    }
}

pub(super) fn follow_after(
    directory: &JournalDirectory,
    filter: RecordFilter,
    after: u64,
) -> io::Result<Follower> {
    let files = directory.files()?;
    // Those that begin behind it, and the one that it is in.
    let newer = files.iter().filter(|file| file.first_sequence > after).count();
    Follower::new(directory, filter, (newer + 1).min(files.len()))
}

struct StreamState<T> {
    source: RecordSource,
    /// Absent: what is there is all.
    written: Option<watch::Receiver<u64>>,
    read: std::vec::IntoIter<AuditRecord>,
    is_at_end: bool,
    reader: RecordReader,
    response: fn(AuditRecord) -> T,
}

pub(super) fn records<T: 'static>(
    source: RecordSource,
    written: Option<watch::Receiver<u64>>,
    reader: RecordReader,
    response: fn(AuditRecord) -> T,
) -> RecordStream<T> {
    let read = Vec::new().into_iter();
    let reading = StreamState { source, written, read, is_at_end: false, reader, response };
    Box::pin(unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        loop {
            if let Some(record) = reading.read.next() {
                return Some((Ok((reading.response)(record)), Some(reading)));
            }
            if reading.is_at_end {
                // Records that came since the look are told of at once.
                if reading.written.as_mut()?.changed().await.is_err() {
                    // The journal is closed: the gateway is about to end.
                    pending::<()>().await;
                }
            }
            let mut source = reading.source;
            let batch = reading.reader.read(move || (source.batch(), source)).await;
            match batch {
                Ok((Ok(batch), source)) => {
                    reading.source = source;
                    reading.read = batch.records.into_iter();
                    reading.is_at_end = batch.is_at_end;
                }
                Ok((Err(error), _)) => return Some((Err(errors::journal_unreadable(&error)), None)),
                Err(status) => return Some((Err(status), None)),
            }
        }
    }))
}

/// A caller that reads: its place, and its turns at the files.
pub(super) struct RecordReader {
    _slot: ReaderSlot,
    permits: Arc<Semaphore>,
}

impl RecordReader {
    pub(super) fn new(place: ReaderSlot, permits: Arc<Semaphore>) -> Self {
        Self { _slot: place, permits }
    }

    /// Runs what waits for files on a thread that may wait, when it is this reader's turn.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // Never closed: at worst all read at once.
        let permit = self.permits.clone().acquire_owned().await;
        blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|_| errors::internal("reading the journal has failed"))
}

/// Who reads how much at once.
#[derive(Debug, Default)]
pub(super) struct ReaderLimits(Mutex<HashMap<Principal, usize>>);

impl ReaderLimits {
    pub(super) fn acquire(self: &Arc<Self>, principal: Principal) -> Result<ReaderSlot, Status> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.values().sum::<usize>() >= READERS_MAX {
            return Err(errors::too_many("audit_readers", READERS_MAX));
        }
        let own = readers.entry(principal).or_default();
        if *own >= READERS_PER_PRINCIPAL_MAX {
            return Err(errors::too_many("audit_readers_per_principal", READERS_PER_PRINCIPAL_MAX));
        }
        *own += 1;
        Ok(ReaderSlot { readers: self.clone(), principal })
    }
}

/// One reader's place.
pub(super) struct ReaderSlot {
    readers: Arc<ReaderLimits>,
    principal: Principal,
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        let mut readers = self.readers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = readers.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                readers.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::journal::{FORMAT_VERSION, GatewayStopped, Hash, JournalFile, Record};

    /// A line whose own hash is right; nothing here looks at the chain.
    fn line(sequence: u64, text_bytes: usize) -> String {
        let stopped = GatewayStopped { cause: "c".repeat(text_bytes), live_terminals: 0 };
        let record = serde_json::to_string(&Record::GatewayStopped(stopped)).unwrap();
        let hashed = format!(
            "{{\"v\":{FORMAT_VERSION},\"seq\":{sequence},\"time\":\"2025-11-21T10:26:27.123456789Z\",\"boot\":\"8c0e\",\
             \"mono_ns\":42,\"prev\":\"{}\",\"record\":{record}",
            Hash::ZERO
        );
        let hash = Hash(Sha256::digest(&hashed).into());
        format!("{hashed},\"hash\":\"{hash}\"}}\n")
    }

    /// Writes the file that begins with the first of these records.
    fn write(directory: &Path, sequences: std::ops::RangeInclusive<u64>, text_bytes: usize) {
        let name = JournalFile::starting_at(*sequences.start()).name;
        let text: String = sequences.map(|sequence| line(sequence, text_bytes)).collect();
        fs::write(directory.join(name), text).unwrap();
    }

    #[test]
    fn a_batch_has_so_many_records_or_bytes_and_the_last_one_says_that_it_is() {
        // 256 records, or those that reach a mebibyte.
        for (records, text_bytes, batches) in [(600, 1, &[256, 256, 88][..]), (5, 700_000, &[2, 2, 1])] {
            let directory = tempfile::tempdir().unwrap();
            write(directory.path(), 1..=records, text_bytes);
            let journal = JournalDirectory::new(directory.path());
            let mut source = RecordSource::Existing(Entries::new(&journal, RecordFilter::default()).unwrap());
            let mut next = 1;
            for (index, count) in batches.iter().enumerate() {
                let batch = source.batch().unwrap();
                assert_eq!(batch.records.len(), *count, "batch {index}");
                assert_eq!(batch.is_at_end, index + 1 == batches.len(), "batch {index}");
                for record in batch.records {
                    assert_eq!(record.sequence, next);
                    next += 1;
                }
            }
        }
    }

    #[test]
    fn a_follower_begins_in_the_file_of_the_record_that_was_seen_last() {
        let directory = tempfile::tempdir().unwrap();
        for sequences in [1..=2, 3..=4, 5..=6] {
            write(directory.path(), sequences, 1);
        }
        let journal = JournalDirectory::new(directory.path());
        for (after, first) in [(0, 1), (1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)] {
            let mut follower = follow_after(&journal, RecordFilter::default(), after).unwrap();
            let found = loop {
                match follower.look().unwrap() {
                    ReadStep::Entry(entry) => break entry.line.sequence,
                    ReadStep::Skipped => {}
                    ReadStep::End => panic!("nothing is found after {after}"),
                }
            };
            assert_eq!(found, first, "after {after}");
        }
    }

    #[test]
    fn readers_have_so_many_places_each_and_in_all_and_give_each_one_back() {
        let limits = Arc::<ReaderLimits>::default();
        let acquire = |uid| limits.acquire(Principal { uid });
        let mut held: Vec<ReaderSlot> = (0..8).map(|_| acquire(1).unwrap()).collect();
        for _ in 0..2 {
            assert!(acquire(1).is_err(), "its eight places are taken");
            // One that is given back is one that is free.
            held.pop();
            held.push(acquire(1).unwrap());
        }
        for uid in 2..=8 {
            held.extend((0..8).map(|_| acquire(uid).unwrap()));
        }
        assert!(acquire(9).is_err(), "all places are taken");
        held.pop();
        held.push(acquire(9).unwrap());
        drop(held);
        assert!(limits.0.lock().unwrap().is_empty(), "nobody is remembered who reads nothing");
    }
}
