//! Checks a journal: that nothing was changed, removed, reordered, inserted or cut off, and where if it was.
//!
//! Reads every file once, in constant memory, and writes nothing. May be run while the journal is being written: the
//! file `head` is read first, so that it is never ahead of what is read after it.

use std::io;

use super::{
    folder::{Folder, JournalFile},
    line::{Hash, Line, LineError, Link, stated_hash},
    reading::{Ending, LineReader, RawLine},
    record::Record,
    report::{FAULTS_KEPT, Fault, FaultKind, NOTICES_KEPT, Notice, Report, Tear},
    signing::JournalPublicKey,
};

/// Checks the journal of a folder; with a key, its signatures too.
///
/// An error means that a file could not be read, not that it is wrong.
pub fn verify(folder: &Folder, key: Option<&JournalPublicKey>) -> io::Result<Report> {
    let head = folder.head();
    let mut check = Check { key, head: head.as_ref().ok().copied().flatten(), ..Check::default() };
    let files = folder.files()?;
    for (at, file) in files.iter().enumerate() {
        let source = match folder.open(file) {
            Ok(source) => source,
            // The retention rule of a running gateway.
            Err(error) if error.kind() == io::ErrorKind::NotFound && check.report.files == 0 => continue,
            Err(error) => return Err(error),
        };
        let is_last = at + 1 == files.len();
        check.file(file, is_last, &mut LineReader::new(source))?;
    }
    let head_problem = match head {
        Err(error) => Some(error.to_string()),
        Ok(None) if check.report.files > 0 => Some("the file head is missing".to_owned()),
        Ok(_) => None,
    };
    Ok(check.finish(head_problem))
}

#[derive(Default)]
struct Check<'a> {
    key: Option<&'a JournalPublicKey>,
    head: Option<Link>,
    report: Report,
    /// The last record's number, and its hash where that is known.
    at: Option<(u64, Option<Hash>)>,
    /// Where the last record stands.
    before: Place,
    /// The hash that the last record continues.
    before_previous: Option<Hash>,
    /// What the first file continues, until a record tells of its deletion.
    unexplained: Option<(Link, Place)>,
    /// A link that does not hold: which of its two records is bad, the next one tells.
    doubt: Option<Doubt>,
    /// The first records found missing: they may come later.
    gap: Option<Gap>,
}

#[derive(Clone, Default)]
struct Place {
    file: String,
    line: u64,
}

struct Doubt {
    fault: usize,
    before: Place,
    this: Link,
}

struct Gap {
    fault: usize,
    missing: std::ops::Range<u64>,
}

impl Check<'_> {
    fn file(
        &mut self,
        file: &JournalFile,
        is_last: bool,
        reader: &mut LineReader<impl io::Read>,
    ) -> io::Result<()> {
        self.report.files += 1;
        let mut lines = 0;
        while let Some(raw) = reader.next()? {
            lines = raw.number;
            let place = Place { file: file.name.clone(), line: raw.number };
            match parse(&raw) {
                Ok(line) => self.record(line, place, file),
                Err(_) if is_last && raw.ending == Ending::EndOfFile => self.torn(&raw, place, file),
                Err(error) => self.unreadable(&raw, &error.to_string(), place, file),
            }
        }
        if lines == 0 && !is_last {
            let sequence = file.first_sequence;
            self.fault(
                Place { file: file.name.clone(), line: 1 },
                sequence,
                FaultKind::Removed,
                "the file is empty",
            );
        }
        Ok(())
    }

    fn expected(&self, file: &JournalFile) -> u64 {
        self.at.map_or(file.first_sequence, |(sequence, _)| sequence + 1)
    }

    fn torn(&mut self, raw: &RawLine<'_>, place: Place, file: &JournalFile) {
        let expected = self.expected(file);
        if self.head.is_some_and(|head| head.sequence >= expected) {
            self.fault(
                place,
                expected,
                FaultKind::Truncated,
                "the line is cut off, and was once on disk whole",
            );
        } else {
            let Place { file, line } = place;
            self.report.tear = Some(Tear { file, line, offset: raw.offset });
        }
    }

    fn unreadable(&mut self, raw: &RawLine<'_>, problem: &str, place: Place, file: &JournalFile) {
        self.report.records += 1;
        let sequence = self.expected(file);
        self.report.first_sequence.get_or_insert(sequence);
        self.fault(place.clone(), sequence, FaultKind::Changed, problem);
        self.at = Some((sequence, stated_hash(raw.bytes)));
        self.before = place;
        self.before_previous = None;
    }

    fn record(&mut self, line: Line, place: Place, file: &JournalFile) {
        self.report.records += 1;
        self.settle_doubt(&line);
        let Some((last, hash)) = self.at else {
            self.first(&line, &place, file);
            return self.accept(line, place);
        };
        let expected = last + 1;
        let continues = hash.is_none_or(|hash| hash == line.previous);
        if line.sequence == expected && continues {
            return self.accept(line, place);
        }
        if line.sequence == expected {
            let problem = "it and the record before it do not belong together";
            let fault = self.fault(place.clone(), line.sequence, FaultKind::Changed, problem);
            if let Some(fault) = fault {
                self.doubt = Some(Doubt { fault, before: self.before.clone(), this: line.link() });
            }
            return self.accept(line, place);
        }
        if line.sequence > expected {
            self.missing(expected, &line, &place, file);
            return self.accept(line, place);
        }
        self.too_early(&line, place, last);
    }

    /// The first line of all.
    fn first(&mut self, line: &Line, place: &Place, file: &JournalFile) {
        self.report.first_sequence = Some(line.sequence);
        if line.sequence != file.first_sequence {
            let problem = format!("the first record has number {}", line.sequence);
            self.fault(place.clone(), file.first_sequence, FaultKind::Removed, &problem);
        }
        let before = Link { sequence: line.sequence.saturating_sub(1), hash: line.previous };
        if before != Link::START {
            self.unexplained = Some((before, place.clone()));
        }
    }

    /// Numbers are passed over.
    fn missing(&mut self, expected: u64, line: &Line, place: &Place, file: &JournalFile) {
        let (kind, whose) = match &line.record {
            Record::FileOpened(opened) if place.line == 1 => {
                match opened.previous.as_deref() {
                    // The file before is here, but not all of it.
                    Some(previous) if previous == self.before.file => (FaultKind::Truncated, &self.before),
                    Some(_) | None => (FaultKind::MissingFile, place),
                }
            }
            _ if place.line == 1 && line.sequence == file.first_sequence => (FaultKind::MissingFile, place),
            _ => (FaultKind::Removed, place),
        };
        let whose = match kind {
            FaultKind::Truncated => Place { line: whose.line + 1, ..whose.clone() },
            _ => whose.clone(),
        };
        let problem = format!("records {expected} to {} are missing", line.sequence - 1);
        let fault = self.fault(whose, expected, kind, &problem);
        if let (Some(fault), None) = (fault, &self.gap) {
            self.gap = Some(Gap { fault, missing: expected..line.sequence });
        }
    }

    /// A number that was there already, or was missing before.
    fn too_early(&mut self, line: &Line, place: Place, last: u64) {
        if let Some(Gap { fault, missing }) = &self.gap
            && missing.contains(&line.sequence)
        {
            let gap = &mut self.report.faults[*fault];
            gap.kind = FaultKind::Reordered;
            gap.problem = format!("record {} stands behind record {last}", line.sequence);
            return;
        }
        let is_original = line.sequence == last && self.before_previous == Some(line.previous);
        let is_copy = self.at == Some((line.sequence, Some(line.hash)));
        let problem = format!("there are two records with number {}", line.sequence);
        if is_original && !is_copy {
            // Both continue the record before; only what comes next can tell which of them was written first.
            let before = self.before.clone();
            self.fault(before, line.sequence, FaultKind::Inserted, &problem);
            self.at = Some((line.sequence, Some(line.hash)));
            self.before = place;
        } else {
            self.fault(place, line.sequence, FaultKind::Inserted, &problem);
        }
    }

    fn accept(&mut self, line: Line, place: Place) {
        if self.head.is_some_and(|head| head.sequence == line.sequence && head.hash != line.hash) {
            let problem = "it is not the record that was once written under its number";
            self.fault(place.clone(), line.sequence, FaultKind::Changed, problem);
        }
        self.special(&line, &place);
        self.at = Some((line.sequence, Some(line.hash)));
        self.before_previous = Some(line.previous);
        self.before = place;
        self.report.last = Some(line.link());
        self.report.last_time = Some(line.time);
    }

    /// What the journal says about itself.
    fn special(&mut self, line: &Line, place: &Place) {
        match &line.record {
            Record::Checkpoint(checkpoint) => {
                let Some(key) = self.key else { return };
                let signed = Link { sequence: line.sequence.saturating_sub(1), hash: line.previous };
                if key.has_signed(signed, checkpoint) {
                    self.report.signed_through = Some(signed.sequence);
                } else {
                    let problem = "the key has not signed what stands before it";
                    self.fault(place.clone(), line.sequence, FaultKind::BadSignature, problem);
                }
            }
            Record::FilesRemoved(removed) => {
                let end = Link { sequence: removed.last_sequence, hash: removed.last_hash };
                // All of them, or those before the first one that is still there: deleting may be interrupted.
                let tells_of = |(link, first): &(Link, Place)| {
                    *link == end || (link.sequence < end.sequence && removed.files.contains(&first.file))
                };
                if self.unexplained.as_ref().is_some_and(tells_of) {
                    self.unexplained = None;
                }
                self.notice(line);
            }
            Record::Recovery(_) | Record::Unwritten(_) => self.notice(line),
            _ => {}
        }
    }

    fn settle_doubt(&mut self, next: &Line) {
        if let Some(Doubt { fault, before, this }) = self.doubt.take()
            && next.previous == this.hash
        {
            self.blame_before(fault, before, this);
        }
    }

    /// The later of two records is held by what follows it: the earlier one was changed, and its hash made anew.
    fn blame_before(&mut self, fault: usize, before: Place, this: Link) {
        let fault = &mut self.report.faults[fault];
        fault.file = before.file;
        fault.line = before.line;
        fault.sequence = this.sequence.saturating_sub(1);
        fault.problem = "it is not the record that the one after it continues".to_owned();
    }

    fn finish(mut self, head_problem: Option<String>) -> Report {
        if let Some(doubt) = self.doubt.take()
            && self.head == Some(doubt.this)
        {
            self.blame_before(doubt.fault, doubt.before, doubt.this);
        }
        let last = self.at.map_or(0, |(sequence, _)| sequence);
        let end = Place { line: self.before.line + 1, ..self.before.clone() };
        if let Some(head) = self.head
            && head.sequence > last
            && self.report.faults.iter().all(|fault| fault.kind != FaultKind::Truncated)
        {
            let problem =
                format!("records {} to {} were once on disk, and are missing", last + 1, head.sequence);
            self.fault(end.clone(), last + 1, FaultKind::Truncated, &problem);
        }
        if let Some(problem) = head_problem {
            self.fault(Place { file: "head".to_owned(), line: 1 }, last, FaultKind::Head, &problem);
        }
        if self.key.is_some() && self.report.signed_through.is_none() && self.report.records > 0 {
            self.fault(end, last, FaultKind::Unsigned, "nothing is signed by the key");
        }
        if let Some((link, Place { file, line })) = self.unexplained {
            let problem = format!("the records up to {} are missing, and no record says why", link.sequence);
            let sequence = link.sequence;
            let fault = Fault { file, line, sequence, kind: FaultKind::MissingFile, problem };
            self.report.faults.insert(0, fault);
            self.report.faults.truncate(FAULTS_KEPT);
        }
        self.report
    }

    /// Notes a fault and says where it is kept.
    fn fault(&mut self, place: Place, sequence: u64, kind: FaultKind, problem: &str) -> Option<usize> {
        if self.report.faults.len() >= FAULTS_KEPT {
            self.report.more_faults += 1;
            return None;
        }
        let Place { file, line } = place;
        self.report.faults.push(Fault { file, line, sequence, kind, problem: problem.to_owned() });
        Some(self.report.faults.len() - 1)
    }

    fn notice(&mut self, line: &Line) {
        if self.report.notices.len() < NOTICES_KEPT {
            let notice = Notice { sequence: line.sequence, record: line.record.clone() };
            self.report.notices.push(notice);
        } else {
            self.report.more_notices += 1;
        }
    }
}

fn parse(raw: &RawLine<'_>) -> Result<Line, LineError> {
    match raw.ending {
        Ending::Newline => Line::parse(raw.bytes),
        Ending::EndOfFile | Ending::TooLong => Err(LineError::NotARecord),
    }
}
