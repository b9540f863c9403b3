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
    flusher::Flusher,
    folder::{HeldFolder, JournalFile},
    line::Link,
    maintenance::{FileClosed, FileOpened, Finding, Unwritten},
    record::Record,
    recovery::{Current, resume},
    shares::Shares,
    written_before,
};

/// How many numbers are passed over at most to find a file name that is free.
const PASSED_OVER: u64 = 1000;

/// The journal, ready to be written.
pub(super) struct Store {
    pub held: Arc<HeldFolder>,
    pub options: JournalOptions,
    pub boot_id: String,
    /// The journal's own name.
    journal: String,
    flusher: Flusher,
    pub file: JournalFile,
    handle: Arc<File>,
    /// Length of what is whole in the file.
    len: u64,
    records: u64,
    begun_boot_ns: u64,
    pub link: Link,
    /// Records about the journal itself, to be written before anything else.
    pub owed: Vec<Record>,
    /// Files to delete once the record of it is written.
    pub removals: Vec<JournalFile>,
    unsigned_records: u64,
    has_torn_end: bool,
    /// The disk has failed to make the file durable: it is not gone on with.
    in_doubt: Option<Finding>,
    /// It has, and has not shown since that it can: what is appended is made durable before it is answered, whatever
    /// the rule.
    on_probation: bool,
    lines: Vec<u8>,
    counters: Arc<Counters>,
    pub shares: Arc<Shares>,
}

impl Store {
    /// Takes up what there is.
    pub fn open(
        held: &Arc<HeldFolder>,
        options: &JournalOptions,
        boot_id: &str,
        clock: &mut dyn Clock,
        counters: &Arc<Counters>,
        shares: &Arc<Shares>,
    ) -> Result<Self, WriteFailure> {
        let recover = WriteStep::Recover;
        let resumption = resume(held, options.sync).map_err(recover.failed())?;
        if !shares.is_unbounded() {
            written_before::count(held.folder(), boot_id, clock.now(), shares).map_err(recover.failed())?;
        }
        let journal = match resumption.journal {
            Some(journal) => journal,
            None => random_uuid().map_err(recover.failed())?,
        };
        let mut link = resumption.link;
        let mut owed: Vec<Record> = Vec::new();
        let current = match resumption.current {
            Some(current) => current,
            None => {
                owed.push(file_opened(&journal, resumption.previous));
                begin(held, &mut link).map_err(WriteStep::Begin.failed())?
            }
        };
        owed.extend(resumption.findings.into_iter().map(Record::Recovery));
        let Current { file, handle, len, records } = current;
        let flusher =
            Flusher::start(held.folder().path().to_owned(), options.sync, link).map_err(recover.failed())?;
        let mut store = Self {
            held: Arc::clone(held),
            options: options.clone(),
            boot_id: boot_id.to_owned(),
            journal,
            flusher,
            file,
            handle: Arc::new(handle),
            len,
            records,
            begun_boot_ns: clock.now().boot_ns,
            link,
            owed,
            removals: Vec::new(),
            unsigned_records: u64::MAX,
            has_torn_end: false,
            in_doubt: None,
            on_probation: false,
            lines: Vec::new(),
            counters: Arc::clone(counters),
            shares: Arc::clone(shares),
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
        self.settle(clock)?;
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let mut link = self.link;
        let own = self.owed.iter().cloned().chain(unwritten.cloned().map(Record::Unwritten));
        for record in own {
            self.extend_own(&mut lines, &mut link, &record, clock)?;
        }
        let first = link.sequence + 1;
        for body in bodies {
            link.extend(&mut lines, &clock.now(), &self.boot_id, body);
        }
        let count = link.sequence - self.link.sequence;
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
        self.owed.clear();
        if self.options.sync == SyncRule::Always || self.on_probation {
            self.sync()?;
            self.on_probation = false;
        }
        self.remove_old_files()?;
        self.flusher.written(self.link, &self.handle);
        Ok(first)
    }

    /// Whether the next group is appended, and nothing else is done that may wait for the disk.
    pub fn has_only_to_append(&self, clock: &mut dyn Clock) -> bool {
        self.options.sync != SyncRule::Always
            && !self.on_probation
            && !self.has_torn_end
            && self.in_doubt.is_none()
            && self.owed.is_empty()
            && self.removals.is_empty()
            && !self.flusher.has_failed()
            && !self.is_due(clock)
    }

    /// The number of the last record in it.
    pub fn last(&self) -> u64 {
        self.link.sequence
    }

    /// Signs and makes durable what is left, and says so in `head`.
    pub fn finish(mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        // What is still owed, and what settling adds to it.
        self.write(&[], None, clock)?;
        if self.options.signing.is_some() && self.unsigned_records > 0 {
            let mut lines = Vec::new();
            let mut link = self.link;
            self.sign(&mut lines, &mut link, clock)?;
            self.append(&lines, link)?;
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        // Its head must not come after ours.
        drop(self.flusher);
        self.held.write_head(self.link, self.options.sync).map_err(WriteStep::Sync.failed())
    }

    /// Makes the file such that a group can be appended to it.
    fn settle(&mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        if self.has_torn_end {
            self.handle.set_len(self.len).map_err(WriteStep::TakeBack.failed())?;
            self.has_torn_end = false;
        }
        if let Some((durable, error)) = self.flusher.take_failure() {
            self.counters.sync_failures.one();
            self.in_doubt = Some(self.sync_failed(durable, &error));
        }
        if let Some(finding) = &self.in_doubt {
            let finding = finding.clone();
            self.leave_file(finding, clock)?;
            self.in_doubt = None;
            self.on_probation = true;
        }
        let found = self.handle.metadata().map_err(WriteStep::Inspect.failed())?;
        if found.nlink() == 0 || found.len() != self.len {
            let problem = if found.nlink() == 0 {
                "it was deleted".to_owned()
            } else {
                format!("it is {} bytes long, and {} were written", found.len(), self.len)
            };
            self.leave_file(Finding::Disturbed { file: self.file.name.clone(), problem }, clock)?;
        }
        if self.is_due(clock) { self.rotate(clock) } else { Ok(()) }
    }

    fn is_due(&self, clock: &mut dyn Clock) -> bool {
        let mut age_ns = || u128::from(clock.now().boot_ns.saturating_sub(self.begun_boot_ns));
        self.records > 0
            && (self.len >= self.options.rotate_bytes
                || self.options.rotate_after.is_some_and(|bound| age_ns() >= bound.as_nanos()))
    }

    /// Ends the file and begins the next one.
    fn rotate(&mut self, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut lines = Vec::new();
        let mut link = self.link;
        let own_records = if self.options.signing.is_some() { 2 } else { 1 };
        let next = JournalFile::starting_at(link.sequence + own_records + 1);
        self.sign(&mut lines, &mut link, clock)?;
        let closed = FileClosed {
            records: self.records + own_records,
            next: next.name.clone(),
            written: self.shares.of_file(),
        };
        self.extend_own(&mut lines, &mut link, &Record::FileClosed(closed), clock)?;
        // Made before the old one is ended: a file that ends has another one to go on in.
        let handle = create_or_reuse(&self.held, &next).map_err(WriteStep::Begin.failed())?;
        if let Err(failure) = self.append(&lines, link) {
            // The old one goes on. One that stays all the same is empty, and taken by the next attempt.
            let _ = self.held.remove(&next);
            return Err(failure);
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        self.take_file(next, handle, clock);
        self.plan_removals(clock).map_err(WriteStep::Inspect.failed())
    }

    /// Leaves the file as it is and begins a new one, because of `finding`.
    fn leave_file(&mut self, finding: Finding, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        let mut link = self.link;
        let Current { file, handle, .. } = begin(&self.held, &mut link).map_err(WriteStep::Begin.failed())?;
        // What can be made durable of it is, but it is left in any case.
        let _ = self.handle.sync_data();
        self.link = link;
        self.take_file(file, handle, clock);
        self.owed.push(Record::Recovery(finding));
        Ok(())
    }

    fn take_file(&mut self, file: JournalFile, handle: File, clock: &mut dyn Clock) {
        self.counters.rotations.one();
        self.shares.begin_file();
        // What was owed to the file before is owed to this one, behind its first record.
        self.owed.retain(|record| !matches!(record, Record::FileOpened(_)));
        self.owed.insert(0, file_opened(&self.journal, Some(self.file.name.clone())));
        self.file = file;
        self.handle = Arc::new(handle);
        self.len = 0;
        self.records = 0;
        self.begun_boot_ns = clock.now().boot_ns;
    }

    fn sign(&self, lines: &mut Vec<u8>, link: &mut Link, clock: &mut dyn Clock) -> Result<(), WriteFailure> {
        match &self.options.signing {
            Some(Signing { key, .. }) => {
                let checkpoint = Record::Checkpoint(key.sign(*link));
                self.extend_own(lines, link, &checkpoint, clock)
            }
            None => Ok(()),
        }
    }

    fn extend_own(
        &self,
        lines: &mut Vec<u8>,
        link: &mut Link,
        record: &Record,
        clock: &mut dyn Clock,
    ) -> Result<(), WriteFailure> {
        let encoded = serde_json::to_vec(record).map_err(io::Error::from);
        let body = crate::printable::json_bytes(encoded.map_err(WriteStep::Append.failed())?);
        link.extend(lines, &clock.now(), &self.boot_id, &body);
        Ok(())
    }

    /// Writes whole lines up to `link`, or takes back what it wrote of them.
    fn append(&mut self, lines: &[u8], link: Link) -> Result<(), WriteFailure> {
        if let Err(error) = (&*self.handle).write_all(lines) {
            self.has_torn_end = self.handle.set_len(self.len).is_err();
            return Err(WriteStep::Append.failed()(error));
        }
        let records = link.sequence - self.link.sequence;
        self.counters.records.many(records);
        self.counters.bytes.many(lines.len() as u64);
        self.len += lines.len() as u64;
        self.records += records;
        self.link = link;
        Ok(())
    }

    /// Makes the file durable now. When the disk fails in it, the next group begins a new file.
    pub fn sync(&mut self) -> Result<(), WriteFailure> {
        self.handle.sync_data().map_err(|error| {
            self.counters.sync_failures.one();
            self.in_doubt = Some(self.sync_failed(self.flusher.durable(), &error));
            WriteStep::Sync.failed()(error)
        })
    }

    fn sync_failed(&self, durable: Link, error: &io::Error) -> Finding {
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
fn begin(held: &HeldFolder, link: &mut Link) -> io::Result<Current> {
    let last = link.sequence + PASSED_OVER;
    loop {
        let file = JournalFile::starting_at(link.sequence + 1);
        match create_or_reuse(held, &file) {
            Ok(handle) => return Ok(Current { file, handle, len: 0, records: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && link.sequence < last => {
                link.sequence += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes a file, or takes one that an interrupted attempt left empty.
fn create_or_reuse(held: &HeldFolder, file: &JournalFile) -> io::Result<File> {
    match held.create(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let left = held.open_to_append(file)?;
            if left.metadata()?.len() == 0 { Ok(left) } else { Err(error) }
        }
        made => made,
    }
}
