//! What verifying says of damage, to the word: each of these told apart from its neighbour, which is as broken.
//!
//! They hold what the other tests, which ask only whether damage is found, let pass.

use std::fs;

use provost_journal::{
    FaultKind, Integrity, Journal, JournalDirectory, JournalFile, JournalKey, JournalOptions, verify,
};

use crate::audit::{
    options, report, report_with,
    tampering::{forged, put, small},
    written,
};

#[test]
fn a_last_line_that_was_on_disk_whole_is_cut_off_and_not_torn() {
    let (_root, file, lines) = small(5);
    // The head names record 6, and the line of record 6 has lost its end.
    let text = lines.join("\n");
    fs::write(&file, &text[..text.len() - 9]).unwrap();
    let report = report(file.parent().unwrap());
    assert!(report.torn_line.is_none(), "{report:#?}");
    assert_eq!(report.faults.len(), 1, "{report:#?}");
    assert!(report.faults[0].problem.contains("was once on disk whole"), "{report:#?}");
}

#[test]
fn a_changed_record_does_not_hide_that_the_end_is_missing() {
    let (_root, file, mut lines) = small(5);
    lines[2] = lines[2].replace("uid:1000", "uid:1001");
    put(&file, &lines[..4]);
    let report = report(file.parent().unwrap());
    let kinds: Vec<_> = report.faults.iter().map(|fault| (fault.kind, fault.sequence)).collect();
    assert_eq!(kinds, [(FaultKind::Changed, 3), (FaultKind::Truncated, 5)], "{report:#?}");
}

#[test]
fn a_second_record_of_the_last_number_is_blamed_where_it_stands() {
    let (_root, file, lines) = small(5);
    // It has record 4's number, and continues nothing that is there.
    let (_, previous) = lines[3].split_once("\"prev\":\"").unwrap();
    let stranger = forged(&lines[3].replace(&previous[..64], &"0".repeat(64)), "uid:1000", "uid:0");
    let mut more = lines.clone();
    more.insert(4, stranger);
    put(&file, &more);
    let report = report(file.parent().unwrap());
    let fault = &report.faults[0];
    assert_eq!((fault.kind, fault.sequence, fault.line), (FaultKind::Inserted, 4, 5), "{report:#?}");
}

#[test]
fn a_file_between_others_that_is_emptied_is_named_and_a_last_one_is_just_begun() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    written(options, 40);
    let files = JournalDirectory::new(&directory).files().unwrap();
    let between = &files[files.len() / 2];
    let path = directory.join(&between.name);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, b"").unwrap();
    let broken = report(&directory);
    let fault = broken.faults.iter().find(|fault| fault.problem == "the file is empty");
    let fault = fault.unwrap_or_else(|| panic!("{broken:#?}"));
    assert_eq!((fault.kind, &fault.file, fault.line), (FaultKind::Removed, &between.name, 1));
    fs::write(&path, whole).unwrap();
    let last = report(&directory).last.unwrap().sequence;
    fs::write(directory.join(format!("journal-{:020}.jsonl", last + 1)), b"").unwrap();
    assert_eq!(report(&directory).integrity(), Integrity::Intact);
}

#[test]
fn the_end_of_a_file_before_the_last_one_is_named_behind_its_last_line() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    written(options, 40);
    let files = JournalDirectory::new(&directory).files().unwrap();
    let between = &files[files.len() / 2];
    let path = directory.join(&between.name);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    put(&path, &lines[..lines.len() - 2]);
    let broken = report(&directory);
    let fault = &broken.faults[0];
    let expected = (FaultKind::Truncated, &between.name, lines.len() as u64 - 1);
    assert_eq!((fault.kind, &fault.file, fault.line), expected, "{broken:#?}");
}

#[test]
fn a_journal_without_records_is_not_unsigned() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), 1);
    for file in JournalDirectory::new(&directory).files().unwrap() {
        fs::remove_file(directory.join(&file.name)).unwrap();
    }
    fs::remove_file(directory.join("head")).unwrap();
    let key = JournalKey::from_bytes(&[1; 32]);
    let report = report_with(&directory, &key.public_key());
    assert!(report.faults.iter().all(|fault| fault.kind != FaultKind::Unsigned), "{report:#?}");
    drop(Journal::open(options(&directory)).unwrap());
}

#[test]
fn what_begins_behind_a_file_without_records_continues_what_the_head_names() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), 2);
    let last = report(&directory).last.unwrap();
    for file in JournalDirectory::new(&directory).files().unwrap() {
        fs::remove_file(directory.join(&file.name)).unwrap();
    }
    fs::write(directory.join(format!("journal-{:020}.jsonl", last.sequence + 1)), b"").unwrap();
    written(options(&directory), 1);
    let files = JournalDirectory::new(&directory).files().unwrap();
    let text = fs::read_to_string(directory.join(&files[0].name)).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains(&format!("\"prev\":\"{}\"", last.hash)), "{first} does not continue {last:?}");
}

#[test]
fn a_line_that_is_cut_off_in_a_file_before_the_last_one_is_changed_and_not_torn() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    written(options, 40);
    let files = JournalDirectory::new(&directory).files().unwrap();
    let between = &files[files.len() / 2];
    let path = directory.join(&between.name);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 9]).unwrap();
    let broken = report(&directory);
    let fault = &broken.faults[0];
    let expected = (FaultKind::Changed, &between.name, text.lines().count() as u64);
    assert_eq!((fault.kind, &fault.file, fault.line), expected, "{broken:#?}");
    assert!(broken.torn_line.is_none(), "{broken:#?}");
    // The line that cannot be read is one of them.
    let read =
        |file: &JournalFile| fs::read_to_string(directory.join(&file.name)).unwrap().lines().count() as u64;
    assert_eq!(broken.records, files.iter().map(read).sum::<u64>(), "{broken:#?}");
}

#[test]
fn a_first_record_that_is_not_the_one_its_file_is_named_after_is_told() {
    let (_root, file, lines) = small(5);
    put(&file, &lines[1..]);
    let broken = report(file.parent().unwrap());
    let told = broken.faults.iter().find(|fault| fault.kind == FaultKind::Removed);
    let fault = told.unwrap_or_else(|| panic!("{broken:#?}"));
    assert_eq!((fault.sequence, fault.line), (1, 1), "{broken:#?}");
    assert_eq!(fault.problem, "the first record has number 2");
}

#[test]
fn a_record_that_nothing_before_or_behind_it_continues_is_the_one_to_blame() {
    let (_root, file, mut lines) = small(5);
    let (_, previous) = lines[3].split_once("\"prev\":\"").unwrap();
    lines[3] = forged(&lines[3].replace(&previous[..64], &"0".repeat(64)), "uid:1000", "uid:0");
    put(&file, &lines);
    let broken = report(file.parent().unwrap());
    let fault = &broken.faults[0];
    assert_eq!((fault.kind, fault.sequence, fault.line), (FaultKind::Changed, 4, 4), "{broken:#?}");
    assert!(fault.problem.contains("do not belong together"), "{broken:#?}");
}

#[test]
fn a_start_that_finds_no_head_or_cannot_read_it_says_so_and_a_first_start_does_not() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let text = || {
        let files = JournalDirectory::new(&directory).files().unwrap();
        files.iter().map(|file| fs::read_to_string(directory.join(&file.name)).unwrap()).collect::<String>()
    };
    written(options(&directory), 2);
    written(options(&directory), 1);
    assert!(!text().contains("recovery"), "{}", text());
    fs::remove_file(directory.join("head")).unwrap();
    written(options(&directory), 1);
    assert_eq!(text().matches("the file head is missing").count(), 1, "{}", text());
    fs::write(directory.join("head"), b"no head").unwrap();
    let problem = JournalDirectory::new(&directory).head().unwrap_err().to_string();
    written(options(&directory), 1);
    assert_eq!(text().matches(&problem).count(), 1, "{problem}: {}", text());
    assert_eq!(text().matches("the file head is missing").count(), 1, "{}", text());
}

#[test]
fn a_file_that_the_next_start_goes_on_with_says_at_its_end_how_many_records_it_has() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let small = || JournalOptions { rotate_bytes: 2_000, ..options(&directory) };
    written(small(), 2);
    let files = || JournalDirectory::new(&directory).files().unwrap();
    assert_eq!(files().len(), 1, "the next start goes on with it");
    written(small(), 40);
    for file in files().iter().rev().skip(1) {
        let text = fs::read_to_string(directory.join(&file.name)).unwrap();
        let closed = text.lines().last().unwrap();
        assert!(closed.contains(&format!("\"records\":{},", text.lines().count())), "{closed}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_not_passed_over() {
    let (_root, file, _) = small(5);
    let elsewhere = file.with_extension("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let unread = verify(&JournalDirectory::new(file.parent().unwrap()), None);
    assert!(unread.is_err(), "{unread:#?}");
}

#[test]
fn a_directory_in_which_no_journal_has_begun_has_nothing_wrong() {
    let root = tempfile::tempdir().unwrap();
    let empty = report(root.path());
    assert_eq!((empty.integrity(), empty.records), (Integrity::Intact, 0), "{empty:#?}");
}
