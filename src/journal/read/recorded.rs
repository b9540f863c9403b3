//! What an earlier gateway has recorded, for one that adopts its commands and takes over its gates: the terminals whose exit is in the
//! journal, and which reports of gates are.
//!
//! Only the journal knows this for certain: a file next to it could say less or more than was written. Searches for strings and parses
//! nothing else: in a line, a quotation mark within a text has a backslash before it, so no text of a caller or a command can contain them.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Read as _},
    time::SystemTime,
};

use aho_corasick::AhoCorasick;

use crate::JournalDirectory;

/// What stands before the terminal's id in a record of an exit, and nowhere else.
const EXIT_RECORD_PREFIX: &str = r#""record":{"kind":"exit","terminal":""#;
/// The longest id that is looked for.
const MAX_TERMINAL_ID_BYTES: usize = 64;
/// How much of a file is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The maximum number of terminals that are returned.
pub(crate) const MAX_RECORDED_EXITS: usize = 256 * 1024;

/// The terminals whose exit is written, at most [`MAX_RECORDED_EXITS`], of the newest files. Files that were
/// last written before `since` are not looked into.
pub(crate) fn terminals_with_exit(
    directory: &JournalDirectory,
    since: SystemTime,
) -> io::Result<HashSet<String>> {
    let search = AhoCorasick::new([EXIT_RECORD_PREFIX]).map_err(io::Error::other)?;
    let mut ended = HashSet::new();
    for file in directory.files()?.iter().rev() {
        if ended.len() >= MAX_RECORDED_EXITS {
            break;
        }
        let source = directory.open(file)?;
        if source.metadata()?.modified()? < since {
            break;
        }
        scan_file(source, &search, EXIT_RECORD_PREFIX.len() + MAX_TERMINAL_ID_BYTES, |rest| {
            if let Some(id) = parse_exit(rest).filter(|_| ended.len() < MAX_RECORDED_EXITS) {
                ended.insert(id.to_owned());
            }
        })?;
    }
    Ok(ended)
}

/// The terminal's id after the beginning of a record of an exit.
fn parse_exit(rest: &[u8]) -> Option<&str> {
    let end = rest.iter().take(MAX_TERMINAL_ID_BYTES).position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// What stands before the sandbox's id in a record of a report, and nowhere else.
const PREFIXES: [&str; 5] = [
    r#""record":{"kind":"exec_denied","sandbox":""#,
    r#""record":{"kind":"exec_denied_again","sandbox":""#,
    r#""record":{"kind":"exec_asked","sandbox":""#,
    r#""record":{"kind":"exec_ask_ended","sandbox":""#,
    r#""record":{"kind":"execs_allowed","sandbox":""#,
];
/// What stands between the sandbox's id and the number.
const INFIX: &str = r#"","report":"#;
/// The longest that such a place can be, after its beginning.
const MAX_PLACE_BYTES: usize = 160;

/// The maximum number of sandboxes that are returned.
pub(crate) const MAX_REPORTING_SANDBOXES: usize = 64 * 1024;

/// The last report of each sandbox that is written, at most [`MAX_REPORTING_SANDBOXES`], of the newest files. Files that
/// were last written before `since` are not looked into.
pub(crate) fn last_reports(
    directory: &JournalDirectory,
    since: SystemTime,
) -> io::Result<HashMap<String, u64>> {
    let search = AhoCorasick::new(PREFIXES).map_err(io::Error::other)?;
    let mut last = HashMap::new();
    for file in directory.files()?.iter().rev() {
        let source = directory.open(file)?;
        if source.metadata()?.modified()? < since {
            break;
        }
        scan_file(source, &search, MAX_PLACE_BYTES, |rest| {
            if let Some((sandbox, report)) = parse_report(rest) {
                keep_last(&mut last, sandbox, report);
            }
        })?;
    }
    Ok(last)
}

fn keep_last(last: &mut HashMap<String, u64>, sandbox: &str, report: u64) {
    if let Some(known) = last.get_mut(sandbox) {
        *known = report.max(*known);
    } else if last.len() < MAX_REPORTING_SANDBOXES {
        last.insert(sandbox.to_owned(), report);
    }
}

/// The sandbox and the number after a prefix.
fn parse_report(rest: &[u8]) -> Option<(&str, u64)> {
    let rest = &rest[..rest.len().min(MAX_PLACE_BYTES)];
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let number = rest[end..].strip_prefix(INFIX.as_bytes())?;
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let report = std::str::from_utf8(&number[..digits]).ok()?.parse().ok()?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, report))
}

/// Searches a file, and passes on what stands behind each place that is found. `margin_bytes`: how much of a chunk's end is searched again
/// with the next one, so that a place with what is read behind it is whole once.
fn scan_file(
    mut source: File,
    search: &AhoCorasick,
    margin_bytes: usize,
    mut found: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut held = Vec::with_capacity(CHUNK_BYTES + margin_bytes);
    loop {
        let read = (&mut source).take(CHUNK_BYTES as u64).read_to_end(&mut held)?;
        search.find_iter(&held).for_each(|place| found(&held[place.end()..]));
        if read == 0 {
            return Ok(());
        }
        // What may go on in the next chunk. A place that was found is found twice, which says nothing new: a number that
        // was cut there is smaller than the whole one.
        let done = held.len().saturating_sub(margin_bytes);
        held.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::{ExecAskEndedRecord, Record};

    #[test]
    fn an_end_is_found_wherever_it_stands_and_no_callers_text_is_taken_for_one() {
        let root = tempfile::tempdir().unwrap();
        let line = |id: &str, pad: usize| {
            format!(r#"{{"x":"{}",{EXIT_RECORD_PREFIX}{id}","session":"s"}}}}{}"#, "p".repeat(pad), "\n")
        };
        let mut text = line("term_a", 0);
        // Across the end of a chunk, at each of its places.
        for (n, offset) in (0..EXIT_RECORD_PREFIX.len() + 20).step_by(7).enumerate() {
            let next = (text.len() / CHUNK_BYTES + 1) * CHUNK_BYTES;
            text.push_str(&line(&format!("term_{n}"), next - text.len() - offset));
        }
        let forged = serde_json::to_string(&line("term_b", 0)).unwrap();
        text.push_str(&forged);
        fs::write(root.path().join("journal-00000000000000000001.jsonl"), text).unwrap();
        let directory = JournalDirectory::new(root.path());
        let ended = terminals_with_exit(&directory, SystemTime::UNIX_EPOCH).unwrap();
        let written = (0..EXIT_RECORD_PREFIX.len() + 20).step_by(7).count();
        let expected: HashSet<String> =
            (0..written).map(|n| format!("term_{n}")).chain(["term_a".to_owned()]).collect();
        assert_eq!(ended, expected);
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(terminals_with_exit(&directory, later).unwrap().is_empty());
    }

    fn record(sandbox: &str, report: u64) -> String {
        let record = Record::ExecAskEnded(ExecAskEndedRecord {
            sandbox: sandbox.to_owned(),
            report,
            terminal: "term_1".to_owned(),
            session: "sess_1".to_owned(),
            principal: "uid:1000".to_owned(),
            asked_in: 999,
            end: "ran".to_owned(),
        });
        format!(r#"{{"seq":1,"record":{},"hash":"0"}}{}"#, serde_json::to_string(&record).unwrap(), "\n")
    }

    #[test]
    fn the_last_report_of_each_sandbox_is_found_and_no_text_is_taken_for_one() {
        let root = tempfile::tempdir().unwrap();
        let mut text = record("sbx_a", 7) + &record("sbx_a", 3);
        // Across the end of a chunk, at each of its places.
        for (n, offset) in (0..MAX_PLACE_BYTES).step_by(11).enumerate() {
            let next = (text.len() / CHUNK_BYTES + 1) * CHUNK_BYTES;
            text.push_str(&"x".repeat(next - text.len() - offset - 10));
            text.push_str(&record(&format!("sbx_{n}"), 123_456));
        }
        text.push_str(&serde_json::to_string(&record("sbx_b", 9)).unwrap());
        fs::write(root.path().join("journal-00000000000000000001.jsonl"), text).unwrap();
        let directory = JournalDirectory::new(root.path());
        let last = last_reports(&directory, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(last.get("sbx_a"), Some(&7));
        assert!(!last.contains_key("sbx_b"));
        let written = (0..MAX_PLACE_BYTES).step_by(11).count();
        assert!((0..written).all(|n| last.get(&format!("sbx_{n}")) == Some(&123_456)), "{last:?}");
    }
}
