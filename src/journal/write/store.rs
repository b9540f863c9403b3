//! The log files that are being written: a batch is in the current file whole or not at all. Knows nothing of callers.
//!
//! Also rotates and signs files, and applies the retention rule: old files are chosen when a file is closed, and deleted once the record of
//! their deletion is written. Never the current file.
//!
//! A thread syncs written records and then updates `head`, so that the writer does not wait for the disk. `head` is never ahead of what has
//! been synced. A failure is handed to the writer, which begins a new file: after a failed fdatasync(2) the kernel may have dropped the
//! pages and would call the next one a success.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant, UNIX_EPOCH},
};

use super::{
    Counters, lock,
    recovery::{CurrentFile, recover_directory},
    write_quota::{self, WriteQuota},
};
use crate::{
    JournalOptions, Signing, SyncRule, WriteFailure, WriteStep,
    format::{
        chain::ChainHead,
        clock::{Clock, random_uuid},
        directory::{JournalFile, LockedDirectory, write_head},
        line::{JournalLine, LineReader},
        maintenance::{FileClosed, FileOpened, FilesRemoved, Finding, Unwritten},
        record::Record,
    },
};

/// How many sequence numbers are skipped at most to find a free file name.
const MAX_SKIPPED_SEQUENCES: u64 = 1000;

/// The current file and the state of the chain at its end.
pub(super) struct LogStore {
    pub locked: Arc<LockedDirectory>,
    pub options: JournalOptions,
    pub boot_id: String,
    /// The journal's id, the same in all of its files.
    journal: String,
    syncer: Syncer,
    pub file: JournalFile,
    handle: Arc<File>,
    /// The length of the whole lines in the file.
    len: u64,
    records: u64,
    opened_boot_ns: u64,
    pub chain_head: ChainHead,
    /// Records about the journal itself, to be written before the next batch.
    pub pending: Vec<Record>,
    /// Files to delete once the record of their deletion is written.
    pub files_to_remove: Vec<JournalFile>,
    unsigned_records: u64,
    has_partial_write: bool,
    /// The current file could not be synced: the next batch begins a new file with this record.
    sync_failed: Option<Finding>,
    /// Set after a failed sync until the next successful one: each batch is synced before it is acknowledged, whatever
    /// the sync rule.
    force_sync: bool,
    lines: Vec<u8>,
    counters: Arc<Counters>,
    pub write_quota: Arc<WriteQuota>,
}

impl LogStore {
    /// Recovers what is in the directory and opens the file to append to.
    pub(super) fn open(
        locked: &Arc<LockedDirectory>,
        options: &JournalOptions,
        boot_id: &str,
        clock: &mut dyn Clock,
        counters: &Arc<Counters>,
        quota: &Arc<WriteQuota>,
    ) -> Result<Self, WriteFailure> {
        let recover = WriteStep::Recover;
        let recovered = recover_directory(locked, options.sync).map_err(recover.failed())?;
        if !quota.is_unbounded() {
            write_quota::restore_usage(locked.directory(), boot_id, clock.now(), quota)
                .map_err(recover.failed())?;
        }
        let journal = match recovered.journal {
            Some(journal) => journal,
            None => random_uuid().map_err(recover.failed())?,
        };
        let mut chain_head = recovered.chain_head;
        let mut pending: Vec<Record> = Vec::new();
        let current = match recovered.current {
            Some(current) => current,
            None => {
                pending.push(file_opened(&journal, recovered.previous));
                create_next_file(locked, &mut chain_head).map_err(WriteStep::CreateFile.failed())?
            }
        };
        pending.extend(recovered.findings.into_iter().map(Record::Recovery));
        let CurrentFile { file, handle, len, records } = current;
        let syncer = Syncer::start(locked.directory().path().to_owned(), options.sync, chain_head)
            .map_err(recover.failed())?;
        let mut store = Self {
            locked: Arc::clone(locked),
            options: options.clone(),
            boot_id: boot_id.to_owned(),
            journal,
            syncer,
            file,
            handle: Arc::new(handle),
            len,
            records,
            opened_boot_ns: clock.now().boot_ns,
            chain_head,
            pending,
            files_to_remove: Vec::new(),
            unsigned_records: u64::MAX,
            has_partial_write: false,
            sync_failed: None,
            force_sync: false,
            lines: Vec::new(),
            counters: Arc::clone(counters),
            write_quota: Arc::clone(quota),
        };
        store.write(&[], None, clock)?;
        Ok(store)
    }

    /// Appends a batch and returns the sequence number of its first record.
    ///
    /// After a failed append nothing of the batch is in the file. After a failed sync all of it is in the file, but may not
    /// be durable; the next batch begins a new file that says so.
    pub(super) fn write(
        &mut self,
        bodies: &[&[u8]],
        unwritten: Option<&Unwritten>,
        clock: &mut dyn Clock,
    ) -> Result<u64, WriteFailure> {
        self.prepare_append(clock)?;
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let mut chain_head = self.chain_head;
        let own = self.pending.iter().cloned().chain(unwritten.cloned().map(Record::Unwritten));
        for record in own {
            self.push_own_record(&mut lines, &mut chain_head, &record, clock)?;
        }
        let first = chain_head.sequence + 1;
        for body in bodies {
            chain_head.extend(&mut lines, &clock.now(), &self.boot_id, body);
        }
        let count = chain_head.sequence - self.chain_head.sequence;
        let is_signed = match &self.options.signing {
            Some(signing) if count > 0 => {
                self.unsigned_records.saturating_add(count) >= signing.every_records.get()
            }
            Some(_) | None => false,
        };
        if is_signed {
            self.sign(&mut lines, &mut chain_head, clock)?;
        }
        let appended = self.append(&lines, chain_head);
        self.lines = lines;
        appended?;
        self.unsigned_records = if is_signed { 0 } else { self.unsigned_records.saturating_add(count) };
        self.pending.clear();
        if self.options.sync == SyncRule::Always || self.force_sync {
            self.sync()?;
            self.force_sync = false;
        }
        self.remove_old_files()?;
        self.syncer.written(self.chain_head, &self.handle);
        Ok(first)
    }

    /// Whether writing the next batch is a plain append, without a sync, a rotation or another wait for the disk.
    pub(super) fn can_append_without_blocking(&self, clock: &mut dyn Clock) -> bool {
        self.options.sync != SyncRule::Always
            && !self.force_sync
            && !self.has_partial_write
            && self.sync_failed.is_none()
            && self.pending.is_empty()
            && self.files_to_remove.is_empty()
            && !self.syncer.has_failed()
            && !self.rotation_is_due(clock)
    }

    /// The sequence number of the last record.
    pub(super) fn last_sequence(&self) -> u64 {
        self.chain_head.sequence
    }

    /// Signs and syncs what is left, and updates `head`.
    pub(super) fn finish(mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        // Pending records, and those that preparing the append adds to them.
        self.write(&[], None, clock)?;
        if self.options.signing.is_some() && self.unsigned_records > 0 {
            let mut lines = Vec::new();
            let mut chain_head = self.chain_head;
            self.sign(&mut lines, &mut chain_head, clock)?;
            self.append(&lines, chain_head)?;
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        // The syncer must not overwrite `head` afterwards.
        drop(self.syncer);
        self.locked.write_head(self.chain_head, self.options.sync).map_err(WriteStep::Sync.failed())
    }

    /// Makes sure that a batch can be appended to the current file; begins a new file where it cannot.
    fn prepare_append(&mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        if self.has_partial_write {
            self.handle.set_len(self.len).map_err(WriteStep::Truncate.failed())?;
            self.has_partial_write = false;
        }
        if let Some((durable, error)) = self.syncer.take_failure() {
            self.counters.sync_failures.inc();
            self.sync_failed = Some(self.sync_failure(durable, &error));
        }
        if let Some(finding) = &self.sync_failed {
            let finding = finding.clone();
            self.abandon_file(finding, clock)?;
            self.sync_failed = None;
            self.force_sync = true;
        }
        let found = self.handle.metadata().map_err(WriteStep::Inspect.failed())?;
        if found.nlink() == 0 || found.len() != self.len {
            let problem = if found.nlink() == 0 {
                "it was deleted".to_owned()
            } else {
                format!("it is {} bytes long, and {} were written", found.len(), self.len)
            };
            self.abandon_file(Finding::Disturbed { file: self.file.name.clone(), problem }, clock)?;
        }
        if self.rotation_is_due(clock) { self.rotate(clock) } else { Ok(()) }
    }

    fn rotation_is_due(&self, clock: &mut dyn Clock) -> bool {
        let mut age_ns = || u128::from(clock.now().boot_ns.saturating_sub(self.opened_boot_ns));
        self.records > 0
            && (self.len >= self.options.rotate_bytes
                || self.options.rotate_after.is_some_and(|bound| age_ns() >= bound.as_nanos()))
    }

    /// Closes the current file and begins the next one.
    fn rotate(&mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut lines = Vec::new();
        let mut chain_head = self.chain_head;
        let own_records = if self.options.signing.is_some() { 2 } else { 1 };
        let next = JournalFile::starting_at(chain_head.sequence + own_records + 1);
        self.sign(&mut lines, &mut chain_head, clock)?;
        let closed = FileClosed {
            records: self.records + own_records,
            next: next.name.clone(),
            written: self.write_quota.current_file_usage(),
        };
        self.push_own_record(&mut lines, &mut chain_head, &Record::FileClosed(closed), clock)?;
        // Created before the old file is closed, so that a closed file always has a successor.
        let handle = create_or_reuse(&self.locked, &next).map_err(WriteStep::CreateFile.failed())?;
        if let Err(failure) = self.append(&lines, chain_head) {
            // The old file stays the current one. A new file that cannot be removed is empty, and used by the next attempt.
            let _ = self.locked.remove(&next);
            return Err(failure);
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        self.switch_to_file(next, handle, clock);
        self.plan_removals(clock).map_err(WriteStep::Inspect.failed())
    }

    /// Leaves the current file as it is and begins a new one, which records `finding`.
    fn abandon_file(&mut self, finding: Finding, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut chain_head = self.chain_head;
        let CurrentFile { file, handle, .. } =
            create_next_file(&self.locked, &mut chain_head).map_err(WriteStep::CreateFile.failed())?;
        // Best effort: the file is left in any case.
        let _ = self.handle.sync_data();
        self.chain_head = chain_head;
        self.switch_to_file(file, handle, clock);
        self.pending.push(Record::Recovery(finding));
        Ok(())
    }

    fn switch_to_file(&mut self, file: JournalFile, handle: File, clock: &mut dyn Clock) {
        self.counters.rotations.inc();
        self.write_quota.begin_file();
        // Records that were pending for the old file follow the first record of this one.
        self.pending.retain(|record| !matches!(record, Record::FileOpened(_)));
        self.pending.insert(0, file_opened(&self.journal, Some(self.file.name.clone())));
        self.file = file;
        self.handle = Arc::new(handle);
        self.len = 0;
        self.records = 0;
        self.opened_boot_ns = clock.now().boot_ns;
    }

    fn sign(
        &self,
        lines: &mut Vec<u8>,
        chain_head: &mut ChainHead,
        clock: &mut dyn Clock,
    ) -> Result<(), WriteFailure> {
        match &self.options.signing {
            Some(Signing { key, .. }) => {
                let checkpoint = Record::Checkpoint(key.sign(*chain_head));
                self.push_own_record(lines, chain_head, &checkpoint, clock)
            }
            None => Ok(()),
        }
    }

    fn push_own_record(
        &self,
        lines: &mut Vec<u8>,
        chain_head: &mut ChainHead,
        record: &Record,
        clock: &mut dyn Clock,
    ) -> Result<(), WriteFailure> {
        let encoded = serde_json::to_vec(record).map_err(io::Error::from);
        let body = crate::printable::json_bytes(encoded.map_err(WriteStep::Append.failed())?);
        chain_head.extend(lines, &clock.now(), &self.boot_id, &body);
        Ok(())
    }

    /// Appends whole lines up to `chain_head`. After an error it truncates what was written of them.
    fn append(&mut self, lines: &[u8], chain_head: ChainHead) -> Result<(), WriteFailure> {
        if let Err(error) = (&*self.handle).write_all(lines) {
            self.has_partial_write = self.handle.set_len(self.len).is_err();
            return Err(WriteStep::Append.failed()(error));
        }
        let records = chain_head.sequence - self.chain_head.sequence;
        self.counters.records.add(records);
        self.counters.bytes.add(lines.len() as u64);
        self.len += lines.len() as u64;
        self.records += records;
        self.chain_head = chain_head;
        Ok(())
    }

    /// Syncs the current file. After an error the next batch begins a new file.
    pub(super) fn sync(&mut self) -> Result<(), WriteFailure> {
        self.handle.sync_data().map_err(|error| {
            self.counters.sync_failures.inc();
            self.sync_failed = Some(self.sync_failure(self.syncer.durable(), &error));
            WriteStep::Sync.failed()(error)
        })
    }

    fn sync_failure(&self, durable: ChainHead, error: &io::Error) -> Finding {
        Finding::SyncFailed {
            file: self.file.name.clone(),
            durable_sequence: durable.sequence,
            error: error.to_string(),
        }
    }
}

fn file_opened(journal: &str, previous: Option<String>) -> Record {
    Record::FileOpened(FileOpened { journal: journal.to_owned(), previous })
}

/// Creates the file whose first record follows `chain_head`. Skips sequence numbers when a damaged file has the name.
fn create_next_file(locked: &LockedDirectory, chain_head: &mut ChainHead) -> io::Result<CurrentFile> {
    let last = chain_head.sequence + MAX_SKIPPED_SEQUENCES;
    loop {
        let file = JournalFile::starting_at(chain_head.sequence + 1);
        match create_or_reuse(locked, &file) {
            Ok(handle) => return Ok(CurrentFile { file, handle, len: 0, records: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && chain_head.sequence < last => {
                chain_head.sequence += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Creates a file, or opens the empty file of an interrupted attempt.
fn create_or_reuse(locked: &LockedDirectory, file: &JournalFile) -> io::Result<File> {
    match locked.create(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let existing = locked.open_to_append(file)?;
            if existing.metadata()?.len() == 0 { Ok(existing) } else { Err(error) }
        }
        created => created,
    }
}

impl LogStore {
    /// Chooses the files that the retention rule deletes, and queues the record of their deletion.
    pub(super) fn plan_removals(&mut self, clock: &mut dyn Clock) -> io::Result<()> {
        let files = self.locked.directory().files()?;
        let rule = self.options.retention;
        let beyond_count = rule.files.map_or(0, |bound| files.len().saturating_sub(bound.get() as usize));
        let beyond_age = match rule.age {
            None => 0,
            Some(age) => {
                let at_most = files.len().saturating_sub(rule.files_at_least.get() as usize);
                let oldest_ns = u128::from(clock.now().wall_ns).saturating_sub(age.as_nanos());
                let is_old = |file: &&JournalFile| last_written_ns(&self.locked, file) < oldest_ns;
                files.iter().take(at_most).take_while(is_old).count()
            }
        };
        // Not the current file, which is the last one, and no file with a record that is too young.
        let now = clock.now();
        let is_young = |file: &JournalFile| {
            let ended = write_quota::time_since_last_write(self.locked.directory(), file, &self.boot_id, now);
            !self.options.keep_at_least.is_zero() && ended < self.options.keep_at_least
        };
        let count = beyond_count.max(beyond_age).min(files.len().saturating_sub(1));
        let count = files.iter().take(count).take_while(|file| !is_young(file)).count();
        if count == 0 {
            return Ok(());
        }
        let Some(before) = self.chain_head_before(&files[count])? else { return Ok(()) };
        self.files_to_remove = files[..count].to_vec();
        self.pending.push(Record::FilesRemoved(FilesRemoved {
            files: self.files_to_remove.iter().map(|file| file.name.clone()).collect(),
            last_sequence: before.sequence,
            last_hash: before.hash,
        }));
        Ok(())
    }

    /// The record before the first one of `file`, where that one can be read.
    fn chain_head_before(&self, file: &JournalFile) -> io::Result<Option<ChainHead>> {
        if *file == self.file {
            return Ok(Some(self.chain_head));
        }
        let mut reader = LineReader::new(self.locked.directory().open(file)?);
        let first = reader.next()?.and_then(|raw| JournalLine::parse(raw.bytes).ok());
        Ok(first.map(|line| ChainHead { sequence: line.sequence.saturating_sub(1), hash: line.previous }))
    }

    pub(super) fn remove_old_files(&mut self) -> Result<(), WriteFailure> {
        if self.files_to_remove.is_empty() {
            return Ok(());
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        for file in std::mem::take(&mut self.files_to_remove) {
            // A file that cannot be deleted now is tried again at the next rotation.
            let _ = self.locked.remove(&file);
        }
        Ok(())
    }
}

/// Nanoseconds since 1970; for a file that cannot be looked at, the far future, so that it stays.
fn last_written_ns(held: &LockedDirectory, file: &JournalFile) -> u128 {
    let found = held.directory().path().join(&file.name).metadata().and_then(|found| found.modified());
    let since = found.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(u128::MAX, |since| since.as_nanos())
}

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
    pub(super) fn start(directory: PathBuf, rule: SyncRule, durable: ChainHead) -> io::Result<Self> {
        let state = SyncerState { written: None, durable, failed: None, is_stopping: false };
        let shared =
            Arc::new(SyncerShared { state: Mutex::new(state), changed: Condvar::new(), directory, rule });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("journal-sync".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Everything up to `chain_head` is written to `file`.
    pub(super) fn written(&self, chain_head: ChainHead, file: &Arc<File>) {
        let mut state = lock(&self.shared.state);
        let was_idle = state.written.is_none();
        state.written = Some((chain_head, Arc::clone(file)));
        drop(state);
        if was_idle {
            self.shared.changed.notify_one();
        }
    }

    /// The last record known to be durable by this thread's doing.
    pub(super) fn durable(&self) -> ChainHead {
        lock(&self.shared.state).durable
    }

    /// Whether there is one to take.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.shared.state).failed.is_some()
    }

    /// A failure since the last call, with the last record known to be durable.
    pub(super) fn take_failure(&self) -> Option<(ChainHead, io::Error)> {
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
