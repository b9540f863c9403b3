//! The current file, as the writer sees it: a group of records is in it whole, or not at all.
//!
//! Also ends files and begins new ones, and signs. Answers nobody; keeps no
//! thread but the one that syncs.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    sync::Arc,
};

use super::{
    JournalOptions, Signing, SyncRule, WriteFailure, WriteStep,
    clock::{Clock, random_uuid},
    counters::Counters,
    directory::{JournalFile, LockedDirectory},
    line::ChainHead,
    maintenance::{FileClosed, FileOpened, Finding, Unwritten},
    record::Record,
    recovery::{CurrentFile, recover_directory},
    syncer::Syncer,
    usage_restore,
    write_quota::WriteQuota,
};

/// How many numbers are passed over at most to find a file name that is free.
const MAX_SKIPPED_SEQUENCES: u64 = 1000;

/// The journal, ready to be written.
pub(super) struct LogStore {
    pub locked: Arc<LockedDirectory>,
    pub options: JournalOptions,
    pub boot_id: String,
    /// The journal's own name.
    journal: String,
    syncer: Syncer,
    pub file: JournalFile,
    handle: Arc<File>,
    /// Length of what is whole in the file.
    len: u64,
    records: u64,
    opened_boot_ns: u64,
    pub chain_head: ChainHead,
    /// Records about the journal itself, to be written before anything else.
    pub pending: Vec<Record>,
    /// Files to delete once the record of it is written.
    pub files_to_remove: Vec<JournalFile>,
    unsigned_records: u64,
    has_partial_write: bool,
    /// The disk has failed to make the file durable: it is not gone on with.
    sync_failed: Option<Finding>,
    /// It has, and has not shown since that it can: what is appended is made durable before it is answered, whatever
    /// the rule.
    force_sync: bool,
    lines: Vec<u8>,
    counters: Arc<Counters>,
    pub write_quota: Arc<WriteQuota>,
}

impl LogStore {
    /// Takes up what there is.
    pub fn open(
        held: &Arc<LockedDirectory>,
        options: &JournalOptions,
        boot_id: &str,
        clock: &mut dyn Clock,
        counters: &Arc<Counters>,
        shares: &Arc<WriteQuota>,
    ) -> Result<Self, WriteFailure> {
        let recover = WriteStep::Recover;
        let resumption = recover_directory(held, options.sync).map_err(recover.failed())?;
        if !shares.is_unbounded() {
            usage_restore::restore_usage(held.directory(), boot_id, clock.now(), shares)
                .map_err(recover.failed())?;
        }
        let journal = match resumption.journal {
            Some(journal) => journal,
            None => random_uuid().map_err(recover.failed())?,
        };
        let mut link = resumption.chain_head;
        let mut owed: Vec<Record> = Vec::new();
        let current = match resumption.current {
            Some(current) => current,
            None => {
                owed.push(file_opened(&journal, resumption.previous));
                create_next_file(held, &mut link).map_err(WriteStep::CreateFile.failed())?
            }
        };
        owed.extend(resumption.findings.into_iter().map(Record::Recovery));
        let CurrentFile { file, handle, len, records } = current;
        let flusher = Syncer::start(held.directory().path().to_owned(), options.sync, link)
            .map_err(recover.failed())?;
        let mut store = Self {
            locked: Arc::clone(held),
            options: options.clone(),
            boot_id: boot_id.to_owned(),
            journal,
            syncer: flusher,
            file,
            handle: Arc::new(handle),
            len,
            records,
            opened_boot_ns: clock.now().boot_ns,
            chain_head: link,
            pending: owed,
            files_to_remove: Vec::new(),
            unsigned_records: u64::MAX,
            has_partial_write: false,
            sync_failed: None,
            force_sync: false,
            lines: Vec::new(),
            counters: Arc::clone(counters),
            write_quota: Arc::clone(shares),
        };
        store.write(&[], None, clock)?;
        Ok(store)
    }

    /// Appends a group and answers with the number of its first record.
    ///
    /// After an error in appending none of it is in the file. After one in syncing all of it is in the file and none
    /// of it is to be relied on; the next group begins a new file that says so.
    pub fn write(
        &mut self,
        bodies: &[&[u8]],
        unwritten: Option<&Unwritten>,
        clock: &mut dyn Clock,
    ) -> Result<u64, WriteFailure> {
        self.prepare_append(clock)?;
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let mut link = self.chain_head;
        let own = self.pending.iter().cloned().chain(unwritten.cloned().map(Record::Unwritten));
        for record in own {
            self.push_own_record(&mut lines, &mut link, &record, clock)?;
        }
        let first = link.sequence + 1;
        for body in bodies {
            link.extend(&mut lines, &clock.now(), &self.boot_id, body);
        }
        let count = link.sequence - self.chain_head.sequence;
        let is_signed = match &self.options.signing {
            Some(signing) if count > 0 => {
                self.unsigned_records.saturating_add(count) >= signing.every_records.get()
            }
            Some(_) | None => false,
        };
        if is_signed {
            self.sign(&mut lines, &mut link, clock)?;
        }
        let appended = self.append(&lines, link);
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

    /// Whether the next group is appended, and nothing else is done that may wait for the disk.
    pub fn can_append_without_blocking(&self, clock: &mut dyn Clock) -> bool {
        self.options.sync != SyncRule::Always
            && !self.force_sync
            && !self.has_partial_write
            && self.sync_failed.is_none()
            && self.pending.is_empty()
            && self.files_to_remove.is_empty()
            && !self.syncer.has_failed()
            && !self.rotation_is_due(clock)
    }

    /// The number of the last record in it.
    pub fn last_sequence(&self) -> u64 {
        self.chain_head.sequence
    }

    /// Signs and makes durable what is left, and says so in `head`.
    pub fn finish(mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        // What is still owed, and what settling adds to it.
        self.write(&[], None, clock)?;
        if self.options.signing.is_some() && self.unsigned_records > 0 {
            let mut lines = Vec::new();
            let mut link = self.chain_head;
            self.sign(&mut lines, &mut link, clock)?;
            self.append(&lines, link)?;
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        // Its head must not come after ours.
        drop(self.syncer);
        self.locked.write_head(self.chain_head, self.options.sync).map_err(WriteStep::Sync.failed())
    }

    /// Makes the file such that a group can be appended to it.
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

    /// Ends the file and begins the next one.
    fn rotate(&mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut lines = Vec::new();
        let mut link = self.chain_head;
        let own_records = if self.options.signing.is_some() { 2 } else { 1 };
        let next = JournalFile::starting_at(link.sequence + own_records + 1);
        self.sign(&mut lines, &mut link, clock)?;
        let closed = FileClosed {
            records: self.records + own_records,
            next: next.name.clone(),
            written: self.write_quota.current_file_usage(),
        };
        self.push_own_record(&mut lines, &mut link, &Record::FileClosed(closed), clock)?;
        // Made before the old one is ended: a file that ends has another one to go on in.
        let handle = create_or_reuse(&self.locked, &next).map_err(WriteStep::CreateFile.failed())?;
        if let Err(failure) = self.append(&lines, link) {
            // The old one goes on. One that stays all the same is empty, and taken by the next attempt.
            let _ = self.locked.remove(&next);
            return Err(failure);
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        self.switch_to_file(next, handle, clock);
        self.plan_removals(clock).map_err(WriteStep::Inspect.failed())
    }

    /// Leaves the file as it is and begins a new one, because of `finding`.
    fn abandon_file(&mut self, finding: Finding, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut link = self.chain_head;
        let CurrentFile { file, handle, .. } =
            create_next_file(&self.locked, &mut link).map_err(WriteStep::CreateFile.failed())?;
        // What can be made durable of it is, but it is left in any case.
        let _ = self.handle.sync_data();
        self.chain_head = link;
        self.switch_to_file(file, handle, clock);
        self.pending.push(Record::Recovery(finding));
        Ok(())
    }

    fn switch_to_file(&mut self, file: JournalFile, handle: File, clock: &mut dyn Clock) {
        self.counters.rotations.inc();
        self.write_quota.begin_file();
        // What was owed to the file before is owed to this one, behind its first record.
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
        link: &mut ChainHead,
        clock: &mut dyn Clock,
    ) -> Result<(), WriteFailure> {
        match &self.options.signing {
            Some(Signing { key, .. }) => {
                let checkpoint = Record::Checkpoint(key.sign(*link));
                self.push_own_record(lines, link, &checkpoint, clock)
            }
            None => Ok(()),
        }
    }

    fn push_own_record(
        &self,
        lines: &mut Vec<u8>,
        link: &mut ChainHead,
        record: &Record,
        clock: &mut dyn Clock,
    ) -> Result<(), WriteFailure> {
        let encoded = serde_json::to_vec(record).map_err(io::Error::from);
        let body = crate::printable::json_bytes(encoded.map_err(WriteStep::Append.failed())?);
        link.extend(lines, &clock.now(), &self.boot_id, &body);
        Ok(())
    }

    /// Writes whole lines up to `link`, or takes back what it wrote of them.
    fn append(&mut self, lines: &[u8], link: ChainHead) -> Result<(), WriteFailure> {
        if let Err(error) = (&*self.handle).write_all(lines) {
            self.has_partial_write = self.handle.set_len(self.len).is_err();
            return Err(WriteStep::Append.failed()(error));
        }
        let records = link.sequence - self.chain_head.sequence;
        self.counters.records.add(records);
        self.counters.bytes.add(lines.len() as u64);
        self.len += lines.len() as u64;
        self.records += records;
        self.chain_head = link;
        Ok(())
    }

    /// Makes the file durable now. When the disk fails in it, the next group begins a new file.
    pub fn sync(&mut self) -> Result<(), WriteFailure> {
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

/// Begins the file of the record after `link`. Where a damaged file has that name, numbers are passed over.
fn create_next_file(held: &LockedDirectory, link: &mut ChainHead) -> io::Result<CurrentFile> {
    let last = link.sequence + MAX_SKIPPED_SEQUENCES;
    loop {
        let file = JournalFile::starting_at(link.sequence + 1);
        match create_or_reuse(held, &file) {
            Ok(handle) => return Ok(CurrentFile { file, handle, len: 0, records: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && link.sequence < last => {
                link.sequence += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes a file, or takes one that an interrupted attempt left empty.
fn create_or_reuse(held: &LockedDirectory, file: &JournalFile) -> io::Result<File> {
    match held.create(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let left = held.open_to_append(file)?;
            if left.metadata()?.len() == 0 { Ok(left) } else { Err(error) }
        }
        made => made,
    }
}
