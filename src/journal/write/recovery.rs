//! Recovers the directory of a journal that an earlier writer left, in any state.
//!
//! A torn last line is moved to `quarantine`. Any other damage is left untouched as evidence, and a new file is begun that
//! records it. Every repair is recorded, and no damage makes opening fail.

use std::{fs::File, io, io::Seek as _, io::SeekFrom};

use crate::{
    SyncRule,
    format::{
        chain::{ChainHead, Hash},
        directory::{JournalFile, LockedDirectory},
        line::{JournalLine, LineEnd, LineReader},
        maintenance::{FileOpened, Finding},
        record::Record,
    },
};

/// Where writing continues.
#[derive(Debug)]
pub(super) struct RecoveredState {
    /// The last record.
    pub chain_head: ChainHead,
    /// The file to append to; absent: a new one is begun.
    pub current: Option<CurrentFile>,
    /// The file before a new one.
    pub previous: Option<String>,
    /// The journal's id, when a file contains it.
    pub journal: Option<String>,
    /// What was wrong.
    pub findings: Vec<Finding>,
}

/// A file that can be appended to.
#[derive(Debug)]
pub(super) struct CurrentFile {
    pub file: JournalFile,
    pub handle: File,
    pub len: u64,
    pub records: u64,
}

/// Reads what is there, quarantines a torn line, and returns where writing continues.
pub(super) fn recover_directory(held: &LockedDirectory, sync: SyncRule) -> io::Result<RecoveredState> {
    let mut findings = Vec::new();
    let head = match held.directory().head() {
        Ok(head) => head,
        Err(error) => {
            findings.push(Finding::HeadUnreadable { problem: error.to_string() });
            None
        }
    };
    let files = held.directory().files()?;
    if head.is_none() && findings.is_empty() {
        if files.is_empty() {
            held.write_head(ChainHead::START, sync)?;
        } else {
            findings.push(Finding::HeadUnreadable { problem: "the file head is missing".to_owned() });
        }
    }
    let mut recovered = RecoveredState {
        chain_head: ChainHead::START,
        current: None,
        previous: None,
        journal: None,
        findings,
    };
    for (at, file) in files.iter().enumerate().rev() {
        let scan = scan_file(held, file, head)?;
        let is_oldest = at == 0;
        let usable = recover_file(held, file, scan, is_oldest, &mut recovered)?;
        if usable {
            break;
        }
    }
    compare_with_head(head, &mut recovered);
    Ok(recovered)
}

/// Continues from one file. Returns false when it held no record and was removed: the file before it is tried next.
fn recover_file(
    held: &LockedDirectory,
    file: &JournalFile,
    scan: FileScan,
    is_oldest: bool,
    recovered: &mut RecoveredState,
) -> io::Result<bool> {
    recovered.journal = scan.journal;
    recovered.previous = Some(file.name.clone());
    if let Some(BadLine { line, problem, is_torn: false, .. }) = &scan.bad {
        let problem = problem.clone();
        recovered.findings.push(Finding::Damaged { file: file.name.clone(), line: *line, problem });
        recovered.chain_head = scan.furthest;
        return Ok(true);
    }
    let handle = held.open_to_append(file)?;
    if let Some(BadLine { offset, .. }) = scan.bad {
        let bytes = handle.metadata()?.len() - offset;
        let mut source = &handle;
        source.seek(SeekFrom::Start(offset))?;
        let quarantined_as = held.quarantine(file, offset, source)?;
        handle.set_len(offset)?;
        handle.sync_data()?;
        let file = file.name.clone();
        recovered.findings.push(Finding::TornTail { file, offset, bytes, quarantined_as });
    }
    let Some(last) = scan.last else {
        held.remove(file)?;
        recovered.previous = None;
        // The files before it are gone: its name is all that is left of their count, and their hash is the head's or lost.
        let before = file.first_sequence.saturating_sub(1);
        recovered.chain_head = ChainHead { sequence: before, hash: Hash::ZERO };
        return Ok(is_oldest);
    };
    recovered.chain_head = last.chain_head();
    if !matches!(last.record, Record::FileClosed(_)) {
        let (len, records) = (scan.good_bytes, scan.records);
        recovered.current = Some(CurrentFile { file: file.clone(), handle, len, records });
    }
    Ok(true)
}

/// What was once durable must be there.
fn compare_with_head(head: Option<ChainHead>, recovered: &mut RecoveredState) {
    let Some(head) = head else { return };
    if head.sequence > recovered.chain_head.sequence {
        recovered.findings.push(Finding::Lost {
            last_sequence: recovered.chain_head.sequence,
            head_sequence: head.sequence,
        });
        // Their numbers are not given out again: the gap stays to be seen.
        recovered.chain_head.sequence = head.sequence;
        recovered.current = None;
    } else if head.sequence == recovered.chain_head.sequence {
        // A record that took the place of the durable one is not continued: the break stays to be seen.
        recovered.chain_head.hash = head.hash;
    }
}

/// What the last file holds.
struct FileScan {
    /// The last record of the unbroken chain.
    last: Option<JournalLine>,
    /// The record with the highest number that can be read at all, or what the file's name says.
    furthest: ChainHead,
    good_bytes: u64,
    records: u64,
    journal: Option<String>,
    bad: Option<BadLine>,
}

/// The first line that is not as it should be.
struct BadLine {
    line: u64,
    offset: u64,
    problem: String,
    /// It can be what an interrupted write leaves.
    is_torn: bool,
}

fn scan_file(held: &LockedDirectory, file: &JournalFile, head: Option<ChainHead>) -> io::Result<FileScan> {
    let mut reader = LineReader::new(held.directory().open(file)?);
    let before = ChainHead { sequence: file.first_sequence.saturating_sub(1), hash: Hash::ZERO };
    let mut scan =
        FileScan { last: None, furthest: before, good_bytes: 0, records: 0, journal: None, bad: None };
    while let Some(raw) = reader.next()? {
        let parsed = match raw.ending {
            LineEnd::Newline => JournalLine::parse(raw.bytes).map_err(|error| error.to_string()),
            LineEnd::EndOfFile => Err("it was not written to its end".to_owned()),
            LineEnd::TooLong => Err("it is longer than a record can be".to_owned()),
        };
        if let Some(bad) = &mut scan.bad {
            // An interrupted write leaves nothing behind it.
            bad.is_torn = false;
        }
        let line = match parsed {
            Ok(line) => line,
            Err(problem) => {
                // What was durable once was whole once.
                let is_torn = head.is_none_or(|head| head.sequence <= scan.furthest.sequence);
                let bad = BadLine { line: raw.number, offset: raw.offset, problem, is_torn };
                scan.bad.get_or_insert(bad);
                continue;
            }
        };
        if line.sequence > scan.furthest.sequence {
            scan.furthest = line.chain_head();
        }
        if scan.bad.is_some() {
            continue;
        }
        if let Some(problem) = chain_violation(&line, scan.last.as_ref(), file, head) {
            scan.bad = Some(BadLine { line: raw.number, offset: raw.offset, problem, is_torn: false });
            continue;
        }
        if let Record::FileOpened(FileOpened { journal, .. }) = &line.record {
            scan.journal = Some(journal.clone());
        }
        scan.good_bytes = raw.offset + raw.bytes.len() as u64 + 1;
        scan.records += 1;
        scan.last = Some(line);
    }
    Ok(scan)
}

/// Why a whole line cannot stand where it stands.
fn chain_violation(
    line: &JournalLine,
    before: Option<&JournalLine>,
    file: &JournalFile,
    head: Option<ChainHead>,
) -> Option<String> {
    let expected = before.map_or(file.first_sequence, |before| before.sequence + 1);
    if line.sequence != expected {
        return Some(format!("it has number {}, where {expected} must stand", line.sequence));
    }
    if before.is_some_and(|before| before.hash != line.previous) {
        return Some("it does not continue the line before it".to_owned());
    }
    if head.is_some_and(|head| head.sequence == line.sequence && head.hash != line.hash) {
        return Some("it is not the record that was once written under its number".to_owned());
    }
    None
}
