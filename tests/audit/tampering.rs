//! Every way to change a journal is found, and the first bad record named.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use provost_journal::{FaultKind, Integrity, Journal, JournalDirectory, JournalKey, Signing};
use sha2::{Digest as _, Sha256};

use crate::audit::{assert_intact, kill, options, report, report_with, written};

/// A closed journal of one file: record 1 opens the file, 2..=n+1 are ours.
pub(crate) fn small(records: u64) -> (tempfile::TempDir, PathBuf, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), records);
    let report = assert_intact(&directory);
    assert_eq!(report.records, records + 1);
    let file = only_file(&directory);
    let lines = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    (root, file, lines)
}

fn only_file(directory: &Path) -> PathBuf {
    let files = JournalDirectory::new(directory).files().unwrap();
    assert_eq!(files.len(), 1);
    directory.join(&files[0].name)
}

pub(crate) fn put(file: &Path, lines: &[String]) {
    fs::write(file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// The line with other content and a hash that fits it.
pub(crate) fn forged(line: &str, from: &str, to: &str) -> String {
    let (hashed, _) = line.split_once(",\"hash\":\"").unwrap();
    let changed = hashed.replace(from, to);
    assert_ne!(changed, hashed);
    let hash: String = Sha256::digest(changed.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{changed},\"hash\":\"{hash}\"}}")
}

#[track_caller]
fn assert_first_fault(file: &Path, kind: FaultKind, sequence: u64, line: u64) {
    let report = report(file.parent().unwrap());
    let fault = report.faults.first().unwrap_or_else(|| panic!("nothing was found: {report:#?}"));
    assert_eq!((fault.kind, fault.sequence, fault.line), (kind, sequence, line), "{report:#?}");
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let (_root, file, _) = small(3);
    for path in [file.clone(), file.with_file_name("head")] {
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            for bit in [0, 5, 7] {
                let mut bytes = sound.clone();
                bytes[at] ^= 1 << bit;
                fs::write(&path, &bytes).unwrap();
                let report = report(file.parent().unwrap());
                assert_eq!(
                    report.integrity(),
                    Integrity::Broken,
                    "byte {at} bit {bit} of {}",
                    path.display()
                );
            }
        }
        fs::write(&path, &sound).unwrap();
    }
    assert_intact(file.parent().unwrap());
}

#[test]
fn a_changed_record_is_named() {
    let (_root, file, mut lines) = small(5);
    lines[3] = lines[3].replace("uid:1000", "uid:1001");
    put(&file, &lines);
    assert_first_fault(&file, FaultKind::Changed, 4, 4);
}

#[test]
fn a_changed_record_with_a_recomputed_hash_is_named() {
    let (_root, file, lines) = small(5);
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed[at] = forged(&changed[at], "\"time\":\"2", "\"time\":\"3");
        put(&file, &changed);
        assert_first_fault(&file, FaultKind::Changed, at as u64 + 1, at as u64 + 1);
    }
}

#[test]
fn a_removed_record_is_named() {
    let (_root, file, lines) = small(5);
    for at in 1..lines.len() - 1 {
        let mut less = lines.clone();
        less.remove(at);
        put(&file, &less);
        assert_first_fault(&file, FaultKind::Removed, at as u64 + 1, at as u64 + 1);
    }
    let mut less = lines.clone();
    less.remove(0);
    put(&file, &less);
    assert_eq!(report(file.parent().unwrap()).integrity(), Integrity::Broken);
}

#[test]
fn reordered_records_are_named() {
    let (_root, file, mut lines) = small(5);
    lines.swap(2, 3);
    put(&file, &lines);
    assert_first_fault(&file, FaultKind::Reordered, 3, 3);
}

#[test]
fn an_inserted_record_is_named() {
    let (_root, file, lines) = small(5);
    let mut copied = lines.clone();
    copied.insert(4, lines[2].clone());
    put(&file, &copied);
    assert_first_fault(&file, FaultKind::Inserted, 3, 5);
    // One that continues the record before it, with a hash of its own.
    let mut more = lines.clone();
    more.insert(3, forged(&lines[3], "uid:1000", "uid:0"));
    put(&file, &more);
    assert_first_fault(&file, FaultKind::Inserted, 4, 4);
}

#[test]
fn a_cut_off_end_is_found_by_the_head() {
    let (_root, file, lines) = small(5);
    put(&file, &lines[..4]);
    assert_first_fault(&file, FaultKind::Truncated, 5, 5);
    // In the middle of a line, too: once on disk, it was whole.
    let text = lines[..5].join("\n");
    fs::write(&file, &text[..text.len() - 9]).unwrap();
    assert_first_fault(&file, FaultKind::Truncated, 5, 5);
}

#[test]
fn a_missing_head_is_found() {
    let (_root, file, _) = small(1);
    fs::remove_file(file.with_file_name("head")).unwrap();
    let report = report(file.parent().unwrap());
    assert_eq!(report.faults[0].kind, FaultKind::Head);
}

#[test]
fn a_missing_file_is_found() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    written(options, 40);
    let files = JournalDirectory::new(&directory).files().unwrap();
    assert!(files.len() > 4, "{files:?}");
    assert_intact(&directory);
    for (at, file) in files.iter().enumerate() {
        let path = directory.join(&file.name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let report = report(&directory);
        let fault = &report.faults[0];
        if at + 1 == files.len() {
            assert_eq!((fault.kind, fault.sequence), (FaultKind::Truncated, file.first_sequence));
        } else {
            assert_eq!(fault.kind, FaultKind::MissingFile, "{report:#?}");
        }
        fs::write(&path, bytes).unwrap();
    }
    assert_intact(&directory);
}

#[test]
fn a_chain_rebuilt_from_the_first_record_is_found_by_its_signatures_only() {
    let root = tempfile::tempdir().unwrap();
    let (original, other) = (root.path().join("a"), root.path().join("b"));
    let key = JournalKey::from_bytes(&[1; 32]);
    let signed_by = |directory: &Path, key: &JournalKey| {
        let mut options = options(directory);
        options.signing = Some(Signing { key: key.clone(), every_records: 10.try_into().unwrap() });
        options
    };
    written(signed_by(&original, &key), 25);
    written(signed_by(&other, &JournalKey::from_bytes(&[2; 32])), 25);
    let report = report_with(&original, &key.public_key());
    assert_eq!(report.integrity(), Integrity::Intact, "{report:#?}");
    assert_eq!(report.signed_through, report.last.map(|last| last.sequence - 1));
    // A user who can write the directory can make a whole new chain, but not sign it.
    assert_intact(&other);
    let report = report_with(&other, &key.public_key());
    assert_eq!(report.faults[0].kind, FaultKind::BadSignature);
    let unsigned = root.path().join("c");
    written(options(&unsigned), 3);
    assert_eq!(report_with(&unsigned, &key.public_key()).faults[0].kind, FaultKind::Unsigned);
}

#[test]
fn damage_is_left_as_evidence_and_gone_on_behind() {
    let (_root, file, mut lines) = small(5);
    let directory = file.parent().unwrap();
    lines[2] = lines[2].replace("uid:1000", "uid:1001");
    put(&file, &lines);
    let damaged = fs::read(&file).unwrap();
    let journal = Journal::open(options(directory)).unwrap();
    assert!(journal.append(&kill(6)).is_ok());
    journal.close();
    assert_eq!(fs::read(&file).unwrap(), damaged);
    assert_eq!(JournalDirectory::new(directory).files().unwrap().len(), 2);
    let report = report(directory);
    assert_eq!(report.faults.len(), 1, "{report:#?}");
    assert_eq!(report.faults[0].sequence, 3);
    assert!(format!("{:?}", report.notices[0].record).contains("Damaged"), "{report:#?}");
}

#[test]
fn a_forged_last_record_is_not_continued_by_the_next_start() {
    for forged_from in [1, 3, 5] {
        let (_root, file, mut lines) = small(5);
        // All lines from there on are made again, so that the chain within the file holds.
        for at in forged_from..lines.len() {
            let (_, previous) = lines[at - 1].rsplit_once("\"hash\":\"").unwrap();
            let (_, named) = lines[at].split_once("\"prev\":\"").unwrap();
            let (before, now) = (named[..64].to_owned(), previous[..64].to_owned());
            lines[at] = forged(&lines[at].replace(&before, &now), "uid:1000", "uid:1001");
        }
        put(&file, &lines);
        let directory = file.parent().unwrap();
        let first = report(directory);
        assert_eq!(first.integrity(), Integrity::Broken, "before a start: {first:#?}");
        written(options(directory), 2);
        let report = report(directory);
        assert_eq!(report.integrity(), Integrity::Broken, "forged from line {forged_from}: {report:#?}");
        assert!(format!("{:?}", report.notices).contains("Damaged"), "{report:#?}");
    }
}

#[test]
fn records_that_were_durable_and_are_gone_leave_a_gap_for_ever() {
    let (_root, file, lines) = small(5);
    put(&file, &lines[..4]);
    written(options(file.parent().unwrap()), 2);
    let report = report(file.parent().unwrap());
    assert_eq!((report.faults[0].kind, report.faults[0].sequence), (FaultKind::Truncated, 5), "{report:#?}");
    assert!(format!("{:?}", report.notices[0].record).contains("Lost"), "{report:#?}");
}

#[test]
fn a_file_that_is_changed_while_it_is_written_is_left() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let journal = Journal::open(options(&directory)).unwrap();
    journal.append(&kill(1)).unwrap();
    let file = only_file(&directory);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(10).unwrap();
    journal.append(&kill(2)).unwrap();
    let second = directory.join(&JournalDirectory::new(&directory).files().unwrap()[1].name);
    fs::remove_file(&second).unwrap();
    journal.append(&kill(3)).unwrap();
    journal.close();
    let report = report(&directory);
    assert_eq!(report.integrity(), Integrity::Broken);
    assert!(format!("{:?}", report.notices).contains("it was deleted"), "{report:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_garbage_stops_a_journal_from_being_opened_and_written(
        garbage in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        of_head in any::<bool>(),
    ) {
        let (_root, file, _) = small(3);
        let directory = file.parent().unwrap();
        let path = if of_head { directory.join("head") } else { file.clone() };
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes.splice(at.., garbage);
        fs::write(&path, bytes).unwrap();
        let journal = Journal::open(options(directory)).unwrap();
        prop_assert!(journal.append(&kill(9)).is_ok());
        journal.close();
        let _ = report(directory);
    }
}
