//! Finds the terminals whose exit is in the journal already, for a gateway that adopts another one's commands.
//!
//! Searches for one string and parses nothing: in a line, a quotation mark within a text has a backslash before it, so no
//! text of a caller can contain the string.

use std::{
    collections::HashSet,
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
/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The maximum number of terminals that are returned.
pub const MAX_RECORDED_EXITS: usize = 256 * 1024;

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
        scan_file(source, &search, |id| {
            if ended.len() < MAX_RECORDED_EXITS {
                ended.insert(id.to_owned());
            }
        })?;
    }
    Ok(ended)
}

fn scan_file(mut source: File, search: &AhoCorasick, mut found: impl FnMut(&str)) -> io::Result<()> {
    let mut held = Vec::with_capacity(CHUNK_BYTES + EXIT_RECORD_PREFIX.len() + MAX_TERMINAL_ID_BYTES);
    loop {
        let read = (&mut source).take(CHUNK_BYTES as u64).read_to_end(&mut held)?;
        for place in search.find_iter(&held) {
            let rest = &held[place.end()..];
            let end = rest.iter().take(MAX_TERMINAL_ID_BYTES).position(|byte| *byte == b'"');
            if let Some(id) = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok()) {
                found(id);
            }
        }
        if read == 0 {
            return Ok(());
        }
        // What may go on in the next chunk. An id that was found is found twice, which says nothing new.
        let done = held.len().saturating_sub(EXIT_RECORD_PREFIX.len() + MAX_TERMINAL_ID_BYTES);
        held.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

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
}
