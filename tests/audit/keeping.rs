//! Files are ended, deleted and read again, clocks step, and the chain holds.

use std::{
    fs,
    num::NonZeroU32,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use provost_journal::{
    AppendError, Clock, DecisionRecord, Entries, FaultKind, FileClosed, Follower, Journal, JournalDirectory,
    JudgedCommands, Moment, ObservedDecision, Record, RecordFilter, RecordedCommand, RecordedVerdict,
    Retention, SyncRule,
};

use crate::audit::{assert_intact, kill, options, written};

/// A clock that shows what it is told.
#[derive(Clone, Default)]
struct GivenClock {
    wall_ns: Arc<AtomicU64>,
    boot_ns: Arc<AtomicU64>,
}

impl Clock for GivenClock {
    fn now(&mut self) -> Moment {
        Moment {
            wall_ns: self.wall_ns.load(Ordering::Relaxed),
            boot_ns: self.boot_ns.fetch_add(1000, Ordering::Relaxed),
        }
    }
}

#[test]
fn rotation_and_deletion_keep_the_chain() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 4000;
    options.retention.files = NonZeroU32::new(3);
    for _ in 0..5 {
        written(options.clone(), 50);
        let report = assert_intact(&directory);
        assert!(report.first_sequence.unwrap() > 1);
        assert!(JournalDirectory::new(&directory).files().unwrap().len() <= 3);
    }
}

#[test]
fn a_deletion_that_was_interrupted_is_explained_and_another_one_is_not() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    written(options.clone(), 40);
    let before: Vec<_> = JournalDirectory::new(&directory)
        .files()
        .unwrap()
        .into_iter()
        .map(|file| (directory.join(&file.name), fs::read(directory.join(&file.name)).unwrap()))
        .collect();
    assert!(before.len() > 5, "{}", before.len());
    options.retention.files = NonZeroU32::new(4);
    written(options, 10);
    let is_gone = |path: &PathBuf| !path.exists();
    let gone: Vec<_> = before.iter().filter(|(path, _)| is_gone(path)).collect();
    assert!(gone.len() > 2, "{}", gone.len());
    assert_intact(&directory);
    // The crash came when the first one was gone, and the others were not.
    for (path, content) in gone.iter().skip(1).rev() {
        fs::write(path, content).unwrap();
        assert_intact(&directory);
    }
    // What is listed in no record is missed.
    for (path, _) in &before {
        let _ = fs::remove_file(path);
    }
    assert_eq!(crate::audit::report(&directory).faults[0].kind, FaultKind::MissingFile);
}

#[test]
fn a_clock_that_steps_by_ten_years_breaks_no_chain_and_deletes_no_journal() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let clock = GivenClock::default();
    let now_ns =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let ten_years_ns = 10 * 365 * 86_400 * 1_000_000_000;
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    options.retention = Retention {
        files: None,
        age: Some(Duration::from_secs(30 * 86_400)),
        files_at_least: NonZeroU32::new(4).unwrap(),
    };
    let journal = Journal::open_with_clock(options, Box::new(clock.clone())).unwrap();
    for wall_ns in [now_ns, now_ns + 3_600_000_000_000, now_ns - 3_600_000_000_000, now_ns - ten_years_ns, 0]
    {
        clock.wall_ns.store(wall_ns, Ordering::Relaxed);
        (0..20).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    }
    assert_eq!(assert_intact(&directory).first_sequence, Some(1));
    clock.wall_ns.store(now_ns + ten_years_ns, Ordering::Relaxed);
    (0..20).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    journal.close();
    assert!(assert_intact(&directory).first_sequence > Some(1));
    assert!(JournalDirectory::new(&directory).files().unwrap().len() >= 4);
}

#[test]
fn no_file_with_a_record_that_is_too_young_is_deleted_whatever_the_rule_says() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let clock = GivenClock::default();
    let mut options = options(&directory);
    options.rotate_bytes = 2000;
    options.retention.files = NonZeroU32::new(3);
    options.keep_at_least = Duration::from_secs(3600);
    let journal = Journal::open_with_clock(options, Box::new(clock.clone())).unwrap();
    let files = || JournalDirectory::new(&directory).files().unwrap();
    (0..20).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    clock.boot_ns.fetch_add(1_800_000_000_000, Ordering::Relaxed);
    // A clock that is set makes nothing older.
    clock.wall_ns.fetch_add(10 * 365 * 86_400_000_000_000, Ordering::Relaxed);
    (0..20).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    let before = files();
    assert!(before.len() > 6, "{before:?}");
    assert_eq!(assert_intact(&directory).first_sequence, Some(1));
    // The first half is old enough by now, and the second is not.
    clock.boot_ns.fetch_add(1_800_000_000_000, Ordering::Relaxed);
    (0..10).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    assert!(assert_intact(&directory).first_sequence > Some(1));
    let left = files();
    assert!(left.len() > 3 && left[0] < before[before.len() - 2], "{left:?}");
    clock.boot_ns.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    (0..10).for_each(|n| assert!(journal.append(&kill(n)).is_ok()));
    assert!(files().len() < left.len());
    journal.close();
    assert_intact(&directory);
}

#[test]
fn a_file_is_ended_when_it_is_old_by_the_boot_clock() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let clock = GivenClock::default();
    let mut options = options(&directory);
    options.rotate_after = Some(Duration::from_secs(3600));
    let journal = Journal::open_with_clock(options, Box::new(clock.clone())).unwrap();
    journal.append(&kill(1)).unwrap();
    clock.wall_ns.fetch_add(86_400_000_000_000, Ordering::Relaxed);
    journal.append(&kill(2)).unwrap();
    assert_eq!(JournalDirectory::new(&directory).files().unwrap().len(), 1);
    clock.boot_ns.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    journal.append(&kill(3)).unwrap();
    assert_eq!(JournalDirectory::new(&directory).files().unwrap().len(), 2);
    journal.close();
    assert_intact(&directory);
}

#[test]
fn every_rule_of_syncing_keeps_a_journal_that_verifies() {
    for sync in [SyncRule::Always, SyncRule::Off] {
        let root = tempfile::tempdir().unwrap();
        let mut options = options(&root.path().join("journal"));
        options.sync = sync;
        written(options.clone(), 20);
        assert_eq!(assert_intact(&options.directory).records, 21);
    }
}

#[test]
fn records_are_found_by_what_they_are_about() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let journal = Journal::open(options(&directory)).unwrap();
    for (verdict, rule) in [
        (RecordedVerdict::Allow, "build"),
        (RecordedVerdict::Deny, "publish"),
        (RecordedVerdict::Deny, "build"),
    ] {
        let decision = DecisionRecord {
            principal: "uid:1000".to_owned(),
            session: "sess_a".to_owned(),
            front_end: "mcp".to_owned(),
            terminal: None,
            request_digest: Some("00".repeat(32)),
            verdict,
            rule: Some(rule.to_owned()),
            generation: 1,
            reason: String::new(),
            command: RecordedCommand::new(["make"]),
            command_in: None,
            judged: JudgedCommands::new(["make"]),
            observed: vec![ObservedDecision { rule: "watching".to_owned(), verdict: RecordedVerdict::Deny }],
            approval: None,
            cwd: "/work".to_owned(),
        };
        journal.append(&Record::Decision(decision)).unwrap();
    }
    journal.append(&kill(1)).unwrap();
    let count = |filter| Entries::new(journal.directory(), filter).unwrap().map(Result::unwrap).count();
    let with = RecordFilter::default;
    assert_eq!(count(with()), 5);
    assert_eq!(count(RecordFilter { session: Some("sess_a".to_owned()), ..with() }), 4);
    assert_eq!(count(RecordFilter { principal: Some("uid:1000".to_owned()), ..with() }), 4);
    assert_eq!(count(RecordFilter { principal: Some("uid:1001".to_owned()), ..with() }), 0);
    assert_eq!(count(RecordFilter { rule: Some("watching".to_owned()), ..with() }), 3);
    assert_eq!(count(RecordFilter { rule: Some("build".to_owned()), ..with() }), 2);
    assert_eq!(count(RecordFilter { verdict: Some(RecordedVerdict::Deny), ..with() }), 2);
    // What does not name the front end belongs to a session that does.
    assert_eq!(count(RecordFilter { front_end: Some("mcp".to_owned()), ..with() }), 4);
    assert_eq!(count(RecordFilter { front_end: Some("cli".to_owned()), ..with() }), 0);
    assert_eq!(
        count(RecordFilter {
            verdict: Some(RecordedVerdict::Deny),
            rule: Some("build".to_owned()),
            ..with()
        }),
        1
    );
    assert_eq!(count(RecordFilter { since_ns: Some(u64::MAX), ..with() }), 0);
}

#[test]
fn a_follower_sees_every_record_once_across_files() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut options = options(&directory);
    options.rotate_bytes = 3000;
    let journal = Journal::open(options).unwrap();
    let about = RecordFilter { session: Some("sess_a".to_owned()), ..RecordFilter::default() };
    let mut follower = Follower::new(journal.directory(), about, 1).unwrap();
    let writer = {
        let journal = journal.clone();
        std::thread::spawn(move || (0..300).for_each(|n| assert!(journal.append(&kill(n)).is_ok())))
    };
    for n in 0..300 {
        let entry = follower.next(Duration::from_secs(20)).unwrap().expect("a record comes in time");
        assert_eq!(entry.line.record, kill(n));
    }
    writer.join().unwrap();
    assert!(follower.next(Duration::from_millis(20)).unwrap().is_none());
}

#[test]
fn a_follower_does_not_leave_a_file_for_one_that_was_begun_and_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), 2);
    let about = RecordFilter { session: Some("sess_a".to_owned()), ..RecordFilter::default() };
    let mut follower = Follower::new(&JournalDirectory::new(&directory), about, 1).unwrap();
    for _ in 0..2 {
        assert!(follower.next(Duration::from_secs(20)).unwrap().is_some());
    }
    let begun = directory.join("journal-00000000000000000004.jsonl");
    fs::write(&begun, b"").unwrap();
    assert!(follower.next(Duration::from_millis(20)).unwrap().is_none());
    fs::remove_file(&begun).unwrap();
    written(options(&directory), 1);
    let entry = follower.next(Duration::from_secs(20)).unwrap().expect("a record comes in time");
    assert_eq!(entry.line.sequence, 4);
}

#[test]
fn what_callers_must_not_write_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(options(&root.path().join("journal"))).unwrap();
    let closed =
        Record::FileClosed(FileClosed { records: 1, next: "x".to_owned(), written: Default::default() });
    assert!(matches!(journal.append(&closed), Err(AppendError::Reserved)));
    let long = Record::SessionClosed(provost_journal::SessionClosed {
        principal: "uid:0".to_owned(),
        session: "s".repeat(2 << 20),
        cause: String::new(),
    });
    assert!(matches!(journal.append(&long), Err(AppendError::TooLong { .. })));
    journal.close();
    assert!(matches!(journal.append(&kill(1)), Err(AppendError::Stopped)));
}

#[tokio::test]
async fn tasks_append_without_a_thread_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let journal = Journal::open(options(&directory)).unwrap();
    let tasks: Vec<_> = (0..2000)
        .map(|n| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.append_async(&kill(n)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    journal.close();
    assert_eq!(assert_intact(&directory).records, 2001);
}
