//! Checks a journal: that nothing was changed, removed, reordered, inserted or cut off, and where if it was.
//!
//! Reads every file once, in constant memory, and writes nothing. May be run while the journal is being written: the file `head` is read
//! first, so that it is never ahead of what is read after it. The report is bounded, however much is wrong.

use std::{cmp::Ordering, io};

use serde::Serialize;

use crate::format::{
    chain::{ChainHead, Hash, stated_hash},
    directory::{JournalDirectory, JournalFile},
    line::{JournalLine, LineEnd, LineError, LineReader, RawLine},
    record::Record,
    signing::JournalPublicKey,
};

/// Checks the journal of a directory; with a key, its signatures too.
///
/// An error means that a file could not be read, not that it is wrong.
pub fn verify(directory: &JournalDirectory, key: Option<&JournalPublicKey>) -> io::Result<VerifyReport> {
    let head = directory.head();
    let mut check = Verifier { key, head: head.as_ref().ok().copied().flatten(), ..Verifier::default() };
    let files = directory.files()?;
    for (at, file) in files.iter().enumerate() {
        let source = match directory.open(file) {
            Ok(source) => source,
            // The retention rule of a running gateway.
            Err(error) if error.kind() == io::ErrorKind::NotFound && check.report.files == 0 => continue,
            Err(error) => return Err(error),
        };
        let is_last = at + 1 == files.len();
        check.check_file(file, is_last, &mut LineReader::new(source))?;
    }
    let head_problem = match head {
        Err(error) => Some(error.to_string()),
        Ok(None) if check.report.files > 0 => Some("the file head is missing".to_owned()),
        Ok(_) => None,
    };
    Ok(check.finish(head_problem))
}

#[derive(Default)]
struct Verifier<'a> {
    key: Option<&'a JournalPublicKey>,
    head: Option<ChainHead>,
    report: VerifyReport,
    /// The last record's number, and its hash where that is known.
    last_record: Option<(u64, Option<Hash>)>,
    /// Where the last record stands.
    last_position: LinePosition,
    /// The hash that the last record continues.
    last_previous_hash: Option<Hash>,
    /// The record before the first file, until a record explains its deletion.
    unexplained_start: Option<(ChainHead, LinePosition)>,
    /// A break in the chain. The next record shows which of its two records is bad.
    chain_break: Option<ChainBreak>,
    /// The first records found missing: they may come later.
    gap: Option<Gap>,
}

#[derive(Clone, Default)]
struct LinePosition {
    file: String,
    line: u64,
}

struct ChainBreak {
    fault: usize,
    before: LinePosition,
    this: ChainHead,
}

struct Gap {
    fault: usize,
    missing: std::ops::Range<u64>,
}

impl Verifier<'_> {
    fn check_file(
        &mut self,
        file: &JournalFile,
        is_last: bool,
        reader: &mut LineReader<impl io::Read>,
    ) -> io::Result<()> {
        self.report.files += 1;
        let mut lines = 0;
        while let Some(raw) = reader.next()? {
            lines = raw.number;
            let place = LinePosition { file: file.name.clone(), line: raw.number };
            match parse(&raw) {
                Ok(line) => self.check_record(line, place, file),
                Err(_) if is_last && raw.ending == LineEnd::EndOfFile => {
                    self.report_torn_line(&raw, place, file)
                }
                Err(error) => self.report_unreadable(&raw, &error.to_string(), place, file),
            }
        }
        if lines == 0 && !is_last {
            let sequence = file.first_sequence;
            self.fault(
                LinePosition { file: file.name.clone(), line: 1 },
                sequence,
                FaultKind::Removed,
                "the file is empty",
            );
        }
        Ok(())
    }

    fn expected(&self, file: &JournalFile) -> u64 {
        self.last_record.map_or(file.first_sequence, |(sequence, _)| sequence + 1)
    }

    fn report_torn_line(&mut self, raw: &RawLine<'_>, place: LinePosition, file: &JournalFile) {
        let expected = self.expected(file);
        if self.head.is_some_and(|head| head.sequence >= expected) {
            self.fault(
                place,
                expected,
                FaultKind::Truncated,
                "the line is cut off, and was once on disk whole",
            );
        } else {
            let LinePosition { file, line } = place;
            self.report.torn_line = Some(TornLine { file, line, offset: raw.offset });
        }
    }

    fn report_unreadable(
        &mut self,
        raw: &RawLine<'_>,
        problem: &str,
        place: LinePosition,
        file: &JournalFile,
    ) {
        self.report.records += 1;
        let sequence = self.expected(file);
        self.report.first_sequence.get_or_insert(sequence);
        self.fault(place.clone(), sequence, FaultKind::Changed, problem);
        self.last_record = Some((sequence, stated_hash(raw.bytes)));
        self.last_position = place;
        self.last_previous_hash = None;
    }

    fn check_record(&mut self, line: JournalLine, place: LinePosition, file: &JournalFile) {
        self.report.records += 1;
        self.resolve_chain_break(&line);
        let Some((last, hash)) = self.last_record else {
            self.check_first_record(&line, &place, file);
            return self.accept(line, place);
        };
        let expected = last + 1;
        match line.sequence.cmp(&expected) {
            Ordering::Less => return self.check_out_of_order(&line, place, last),
            Ordering::Greater => self.report_missing(expected, &line, &place),
            Ordering::Equal if hash.is_none_or(|hash| hash == line.previous) => {}
            Ordering::Equal => {
                let problem = "it and the record before it do not belong together";
                let fault = self.fault(place.clone(), line.sequence, FaultKind::Changed, problem);
                if let Some(fault) = fault {
                    self.chain_break = Some(ChainBreak {
                        fault,
                        before: self.last_position.clone(),
                        this: line.chain_head(),
                    });
                }
            }
        }
        self.accept(line, place);
    }

    /// The first line of all.
    fn check_first_record(&mut self, line: &JournalLine, place: &LinePosition, file: &JournalFile) {
        self.report.first_sequence = Some(line.sequence);
        if line.sequence != file.first_sequence {
            let problem = format!("the first record has number {}", line.sequence);
            self.fault(place.clone(), file.first_sequence, FaultKind::Removed, &problem);
        }
        let before = ChainHead { sequence: line.sequence.saturating_sub(1), hash: line.previous };
        if before != ChainHead::START {
            self.unexplained_start = Some((before, place.clone()));
        }
    }

    /// Numbers are passed over.
    fn report_missing(&mut self, expected: u64, line: &JournalLine, place: &LinePosition) {
        let (kind, whose) = match &line.record {
            Record::FileOpened(opened) => match opened.previous.as_deref() {
                // The file before is here, but not all of it.
                Some(previous) if previous == self.last_position.file => {
                    (FaultKind::Truncated, &self.last_position)
                }
                Some(_) | None => (FaultKind::MissingFile, place),
            },
            _ => (FaultKind::Removed, place),
        };
        let whose = match kind {
            FaultKind::Truncated => LinePosition { line: whose.line + 1, ..whose.clone() },
            _ => whose.clone(),
        };
        let problem = format!("records {expected} to {} are missing", line.sequence - 1);
        let fault = self.fault(whose, expected, kind, &problem);
        if let (Some(fault), None) = (fault, &self.gap) {
            self.gap = Some(Gap { fault, missing: expected..line.sequence });
        }
    }

    /// A number that was there already, or was missing before.
    fn check_out_of_order(&mut self, line: &JournalLine, place: LinePosition, last: u64) {
        if let Some(Gap { fault, missing }) = &self.gap
            && missing.contains(&line.sequence)
        {
            let gap = &mut self.report.faults[*fault];
            gap.kind = FaultKind::Reordered;
            gap.problem = format!("record {} stands behind record {last}", line.sequence);
            return;
        }
        let is_original = line.sequence == last && self.last_previous_hash == Some(line.previous);
        let is_copy = self.last_record == Some((line.sequence, Some(line.hash)));
        let problem = format!("there are two records with number {}", line.sequence);
        if is_original && !is_copy {
            // Both continue the record before; only the next record shows which of them was written first.
            let before = self.last_position.clone();
            self.fault(before, line.sequence, FaultKind::Inserted, &problem);
            self.last_record = Some((line.sequence, Some(line.hash)));
            self.last_position = place;
        } else {
            self.fault(place, line.sequence, FaultKind::Inserted, &problem);
        }
    }

    fn accept(&mut self, line: JournalLine, place: LinePosition) {
        if self.head.is_some_and(|head| head.sequence == line.sequence && head.hash != line.hash) {
            let problem = "it is not the record that was once written under its number";
            self.fault(place.clone(), line.sequence, FaultKind::Changed, problem);
        }
        self.check_maintenance_record(&line, &place);
        self.last_record = Some((line.sequence, Some(line.hash)));
        self.last_previous_hash = Some(line.previous);
        self.last_position = place;
        self.report.last = Some(line.chain_head());
        self.report.last_time = Some(line.time);
    }

    /// What the journal says about itself.
    fn check_maintenance_record(&mut self, line: &JournalLine, place: &LinePosition) {
        match &line.record {
            Record::Checkpoint(checkpoint) => {
                let Some(key) = self.key else { return };
                let signed = ChainHead { sequence: line.sequence.saturating_sub(1), hash: line.previous };
                if key.verifies(signed, checkpoint) {
                    self.report.signed_through = Some(signed.sequence);
                } else {
                    let problem = "the key has not signed what stands before it";
                    self.fault(place.clone(), line.sequence, FaultKind::BadSignature, problem);
                }
            }
            Record::FilesRemoved(removed) => {
                let end = ChainHead { sequence: removed.last_sequence, hash: removed.last_hash };
                // All of them, or those before the first one that is still there: deleting may be interrupted.
                let explains = |(chain_head, first): &(ChainHead, LinePosition)| {
                    *chain_head == end || removed.files.contains(&first.file)
                };
                if self.unexplained_start.as_ref().is_some_and(explains) {
                    self.unexplained_start = None;
                }
                self.notice(line);
            }
            Record::Recovery(_) | Record::Unwritten(_) => self.notice(line),
            _ => {}
        }
    }

    fn resolve_chain_break(&mut self, next: &JournalLine) {
        if let Some(ChainBreak { fault, before, this }) = self.chain_break.take()
            && next.previous == this.hash
        {
            self.blame_previous_record(fault, before, this);
        }
    }

    /// The later of two records is held by what follows it: the earlier one was changed, and its hash computed again.
    fn blame_previous_record(&mut self, fault: usize, before: LinePosition, this: ChainHead) {
        let fault = &mut self.report.faults[fault];
        fault.file = before.file;
        fault.line = before.line;
        fault.sequence = this.sequence.saturating_sub(1);
        fault.problem = "it is not the record that the one after it continues".to_owned();
    }

    fn finish(mut self, head_problem: Option<String>) -> VerifyReport {
        if let Some(doubt) = self.chain_break.take()
            && self.head == Some(doubt.this)
        {
            self.blame_previous_record(doubt.fault, doubt.before, doubt.this);
        }
        let last = self.last_record.map_or(0, |(sequence, _)| sequence);
        let end = LinePosition { line: self.last_position.line + 1, ..self.last_position.clone() };
        if let Some(head) = self.head
            && head.sequence > last
            && self.report.faults.iter().all(|fault| fault.kind != FaultKind::Truncated)
        {
            let problem =
                format!("records {} to {} were once on disk, and are missing", last + 1, head.sequence);
            self.fault(end.clone(), last + 1, FaultKind::Truncated, &problem);
        }
        if let Some(problem) = head_problem {
            self.fault(LinePosition { file: "head".to_owned(), line: 1 }, last, FaultKind::Head, &problem);
        }
        if self.key.is_some() && self.report.signed_through.is_none() && self.report.records > 0 {
            self.fault(end, last, FaultKind::Unsigned, "nothing is signed by the key");
        }
        if let Some((chain_head, LinePosition { file, line })) = self.unexplained_start {
            let problem =
                format!("the records up to {} are missing, and no record says why", chain_head.sequence);
            let sequence = chain_head.sequence;
            let fault = JournalFault { file, line, sequence, kind: FaultKind::MissingFile, problem };
            self.report.faults.insert(0, fault);
            if self.report.faults.len() > MAX_FAULTS {
                self.report.faults.truncate(MAX_FAULTS);
                self.report.more_faults += 1;
            }
        }
        self.report
    }

    /// Records a fault and returns its index.
    fn fault(&mut self, place: LinePosition, sequence: u64, kind: FaultKind, problem: &str) -> Option<usize> {
        if self.report.faults.len() >= MAX_FAULTS {
            self.report.more_faults += 1;
            return None;
        }
        let LinePosition { file, line } = place;
        self.report.faults.push(JournalFault { file, line, sequence, kind, problem: problem.to_owned() });
        Some(self.report.faults.len() - 1)
    }

    fn notice(&mut self, line: &JournalLine) {
        if self.report.notices.len() < MAX_NOTICES {
            let notice = JournalNotice { sequence: line.sequence, record: line.record.clone() };
            self.report.notices.push(notice);
        } else {
            self.report.more_notices += 1;
        }
    }
}

fn parse(raw: &RawLine<'_>) -> Result<JournalLine, LineError> {
    match raw.ending {
        LineEnd::Newline => JournalLine::parse(raw.bytes),
        LineEnd::EndOfFile | LineEnd::TooLong => Err(LineError::NotARecord),
    }
}

/// The maximum number of faults in a report; further ones are counted.
pub(crate) const MAX_FAULTS: usize = 100;
/// The maximum number of notices in a report; further ones are counted.
pub(crate) const MAX_NOTICES: usize = 100;

/// What verifying found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Records read.
    pub records: u64,
    /// The number of the first record there is.
    pub first_sequence: Option<u64>,
    /// The last record.
    pub last: Option<ChainHead>,
    /// Its wall time.
    pub last_time: Option<String>,
    /// The last record that the key given has signed, with all before it.
    pub signed_through: Option<u64>,
    /// A last line that was not written to its end.
    pub torn_line: Option<TornLine>,
    /// What is wrong, the first bad record first.
    pub faults: Vec<JournalFault>,
    /// Faults beyond [`MAX_FAULTS`].
    pub more_faults: u64,
    /// What the journal says about itself that a reader should know.
    pub notices: Vec<JournalNotice>,
    /// Notices beyond [`MAX_NOTICES`].
    pub more_notices: u64,
}

/// Whether the journal is as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// All is as it was written.
    Intact,
    /// All is as it was written but for a last line that was not finished, as after a crash.
    Torn,
    /// It is not as it was written.
    Broken,
}

impl VerifyReport {
    /// Whether the journal is as it was written.
    pub fn integrity(&self) -> Integrity {
        match (&self.faults[..], &self.torn_line) {
            ([], None) => Integrity::Intact,
            ([], Some(_)) => Integrity::Torn,
            ([_, ..], _) => Integrity::Broken,
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalFault {
    /// In which file.
    pub file: String,
    /// In which line, 1-based; one past the last where something is missing at the end.
    pub line: u64,
    /// The number of the record that is bad or missing.
    pub sequence: u64,
    /// Its kind.
    pub kind: FaultKind,
    /// In a sentence.
    pub problem: String,
}

/// What was done to a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A record is not the one that was written.
    Changed,
    /// Records are missing.
    Removed,
    /// A record stands in another place.
    Reordered,
    /// A record stands where none was written.
    Inserted,
    /// Records are missing at the end.
    Truncated,
    /// A whole file is missing.
    MissingFile,
    /// The file `head` is missing or cannot be read.
    Head,
    /// A checkpoint was not signed by the key.
    BadSignature,
    /// A key was given, and nothing is signed.
    Unsigned,
}

impl FaultKind {
    /// As `-o json` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Reordered => "reordered",
            Self::Inserted => "inserted",
            Self::Truncated => "truncated",
            Self::MissingFile => "missing_file",
            Self::Head => "head",
            Self::BadSignature => "bad_signature",
            Self::Unsigned => "unsigned",
        }
    }
}

/// A last line without its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TornLine {
    /// In which file.
    pub file: String,
    /// In which line.
    pub line: u64,
    /// Where it begins.
    pub offset: u64,
}

/// A record of the journal about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalNotice {
    /// Its number.
    pub sequence: u64,
    /// What it says.
    pub record: Record,
}

#[cfg(test)]
mod tests;
