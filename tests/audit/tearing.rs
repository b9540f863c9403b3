//! A writer that is killed: what it was told is written is there, and the next one goes on.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
};

use provost_journal::{
    Entries, Integrity, Journal, JournalDirectory, JournalDirectoryError, OpenError, RecordFilter,
};

use crate::audit::{assert_intact, kill, options, report, written};

const WRITER: &str = "PROVOST_TEST_JOURNAL_WRITER";

/// Not a test by itself: what the test below kills.
#[test]
fn writer_process() {
    let Some(directory) = std::env::var_os(WRITER) else { return };
    let journal = Journal::open(options(Path::new(&directory))).unwrap();
    let mut out = std::io::stdout().lock();
    for n in 1..=10_000 {
        let sequence = journal.append(&kill(n)).unwrap();
        writeln!(out, "\nwritten {sequence}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_the_next_start_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut acknowledged = 0;
    for round in 1..=3_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "audit::tearing::writer_process", "--nocapture", "--test-threads=1"])
            .env(WRITER, &directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for line in lines {
            let line = line.unwrap();
            let Some(sequence) = line.strip_prefix("written ") else { continue };
            acknowledged = sequence.parse().unwrap();
            seen += 1;
            if seen == 2000 * round {
                child.kill().unwrap();
                break;
            }
        }
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let report = report(&directory);
        assert_ne!(report.integrity(), Integrity::Broken, "{report:#?}");
        assert!(report.last.unwrap().sequence >= acknowledged, "{report:#?}");
    }
    written(options(&directory), 1);
    let report = assert_intact(&directory);
    assert!(report.records > 12_000);
}

#[test]
fn a_torn_last_line_is_moved_away_and_said_wherever_it_is_torn() {
    let root = tempfile::tempdir().unwrap();
    let line_of_next = {
        let directory = root.path().join("model");
        written(options(&directory), 3);
        let file = directory.join(&JournalDirectory::new(&directory).files().unwrap()[0].name);
        fs::read_to_string(file).unwrap().lines().last().unwrap().to_owned()
    };
    for kept in (1..line_of_next.len()).step_by(37).chain([line_of_next.len()]) {
        let directory = root.path().join(format!("torn-{kept}"));
        written(options(&directory), 2);
        let file = directory.join(&JournalDirectory::new(&directory).files().unwrap()[0].name);
        let torn = &line_of_next.as_bytes()[..kept];
        let good_bytes = fs::metadata(&file).unwrap().len();
        OpenOptions::new().append(true).open(&file).unwrap().write_all(torn).unwrap();
        assert_eq!(report(&directory).integrity(), Integrity::Torn);
        written(options(&directory), 1);
        let report = assert_intact(&directory);
        // The file's first, two, what was torn, one more.
        assert_eq!(report.records, 5, "{report:#?}");
        let notice = format!("{:?}", report.notices[0].record);
        let torn_tail = format!("offset: {good_bytes}, bytes: {kept}, ");
        assert!(notice.contains("TornTail") && notice.contains(&torn_tail), "{notice}");
        let quarantined: Vec<_> =
            fs::read_dir(directory.join("quarantine")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(quarantined.len(), 1);
        assert_eq!(fs::read(&quarantined[0]).unwrap(), torn);
    }
}

#[test]
fn a_file_that_was_begun_and_not_written_is_begun_again() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), 2);
    fs::write(directory.join("journal-00000000000000000004.jsonl"), b"").unwrap();
    written(options(&directory), 2);
    assert_eq!(assert_intact(&directory).records, 5);
}

#[test]
fn two_writers_of_one_directory_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let first = Journal::open(options(&directory)).unwrap();
    let second = Journal::open(options(&directory));
    assert!(matches!(second, Err(OpenError::Directory(JournalDirectoryError::Locked { .. }))), "{second:?}");
    drop(first);
    written(options(&directory), 1);
}

#[test]
fn all_that_threads_append_at_once_is_there_in_the_order_of_the_answers() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let journal = Journal::open(options(&directory)).unwrap();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                let mut last = 0;
                for n in 0..500 {
                    let sequence = journal.append(&kill(thread * 1000 + n)).unwrap();
                    assert!(sequence > last);
                    last = sequence;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    journal.close();
    assert_eq!(assert_intact(&directory).records, 4001);
    let wanted = RecordFilter { terminal: Some("term_3007".to_owned()), ..RecordFilter::default() };
    let found: Vec<_> =
        Entries::new(&JournalDirectory::new(&directory), wanted).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line.record, kill(3007));
}
