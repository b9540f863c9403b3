//! What the journal promises, tried from outside: nothing is lost, nothing is changed unseen, nothing is written
//! by halves.

mod command;
mod exact;
mod full_disk;
mod keeping;
mod tampering;
mod tearing;

use std::{num::NonZeroU32, path::Path, time::Duration};

use provost_journal::{
    Integrity, Journal, JournalDirectory, JournalOptions, JournalPublicKey, KillRequested, Record, Retention,
    SyncRule, VerifyReport, verify,
};

/// A record about terminal `n`.
pub(crate) fn kill(n: u64) -> Record {
    Record::KillRequested(KillRequested {
        terminal: format!("term_{n}"),
        session: "sess_a".to_owned(),
        principal: "uid:1000".to_owned(),
        by: Some("uid:1000".to_owned()),
        cause: "kill".to_owned(),
        grace_ms: Some(n),
    })
}

pub(crate) fn options(directory: &Path) -> JournalOptions {
    let retention = Retention { files: None, age: None, files_at_least: NonZeroU32::MIN };
    JournalOptions {
        sync: SyncRule::Batch { within: Duration::from_millis(1) },
        retention,
        ..JournalOptions::new(directory)
    }
}

/// A journal of so many records about terminals, closed.
pub(crate) fn written(options: JournalOptions, records: u64) {
    let journal = Journal::open(options).unwrap();
    for n in 1..=records {
        journal.append(&kill(n)).unwrap();
    }
    journal.close();
}

pub(crate) fn report(directory: &Path) -> VerifyReport {
    verify(&JournalDirectory::new(directory), None).unwrap()
}

pub(crate) fn report_with(directory: &Path, key: &JournalPublicKey) -> VerifyReport {
    verify(&JournalDirectory::new(directory), Some(key)).unwrap()
}

#[track_caller]
pub(crate) fn assert_intact(directory: &Path) -> VerifyReport {
    let report = report(directory);
    assert_eq!(report.integrity(), Integrity::Intact, "{report:#?}");
    report
}
