//! What the journal promises, tried from outside: nothing is lost, nothing is changed unseen, nothing is written
//! by halves.

mod command;
mod exact;
mod full_disk;
mod keeping;
mod tampering;
mod tearing;

use std::{num::NonZeroU32, path::Path, time::Duration};

use provost::journal::{
    Folder, Integrity, Journal, JournalOptions, JournalPublicKey, KillAsked, Record, Report, Retention,
    SyncRule, verify,
};

/// A record about terminal `n`.
pub(crate) fn kill(n: u64) -> Record {
    Record::KillAsked(KillAsked {
        terminal: format!("term_{n}"),
        session: "sess_a".to_owned(),
        principal: "uid:1000".to_owned(),
        by: Some("uid:1000".to_owned()),
        cause: "kill".to_owned(),
        grace_ms: Some(n),
    })
}

pub(crate) fn options(folder: &Path) -> JournalOptions {
    let retention = Retention { files: None, age: None, files_at_least: NonZeroU32::MIN };
    JournalOptions {
        sync: SyncRule::Batch { within: Duration::from_millis(1) },
        retention,
        ..JournalOptions::new(folder)
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

pub(crate) fn report(folder: &Path) -> Report {
    verify(&Folder::new(folder), None).unwrap()
}

pub(crate) fn report_with(folder: &Path, key: &JournalPublicKey) -> Report {
    verify(&Folder::new(folder), Some(key)).unwrap()
}

#[track_caller]
pub(crate) fn assert_intact(folder: &Path) -> Report {
    let report = report(folder);
    assert_eq!(report.verdict(), Integrity::Intact, "{report:#?}");
    report
}
