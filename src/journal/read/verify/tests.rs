//! What a report says of more than its lists have room for.

use super::*;
use crate::format::{
    chain::ChainHead,
    record::{GatewayStopped, Record},
};

fn position() -> LinePosition {
    LinePosition { file: "1.jsonl".to_owned(), line: 7 }
}

#[test]
fn faults_beyond_the_list_are_counted() {
    let mut check = Verifier::default();
    for expected in 0..MAX_FAULTS {
        assert_eq!(check.fault(position(), expected as u64, FaultKind::Changed, "it is bad"), Some(expected));
    }
    for beyond in 1..=3 {
        assert_eq!(check.fault(position(), 0, FaultKind::Changed, "it is bad"), None);
        assert_eq!((check.report.faults.len(), check.report.more_faults), (MAX_FAULTS, beyond));
    }
    let last = check.report.faults.last().unwrap();
    assert_eq!((last.sequence, last.line, last.problem.as_str()), (MAX_FAULTS as u64 - 1, 7, "it is bad"));
}

#[test]
fn a_missing_beginning_stands_first_and_what_it_pushes_out_is_counted() {
    for (before, more) in [(MAX_FAULTS, 1), (MAX_FAULTS - 1, 0)] {
        let mut check =
            Verifier { unexplained_start: Some((ChainHead::START, position())), ..Verifier::default() };
        for sequence in 0..before {
            check.fault(position(), sequence as u64, FaultKind::Changed, "it is bad");
        }
        let report = check.finish(None);
        assert_eq!(report.faults[0].kind, FaultKind::MissingFile);
        assert_eq!((report.faults.len(), report.more_faults), (MAX_FAULTS, more));
    }
}

#[test]
fn notices_beyond_the_list_are_counted() {
    let mut check = Verifier::default();
    let record = Record::GatewayStopped(GatewayStopped { cause: "drained".to_owned(), live_terminals: 0 });
    let line = |sequence| JournalLine {
        sequence,
        time: String::new(),
        boot_id: String::new(),
        boot_ns: 0,
        previous: ChainHead::START.hash,
        hash: ChainHead::START.hash,
        record: record.clone(),
    };
    for sequence in 0..MAX_NOTICES as u64 + 2 {
        check.notice(&line(sequence));
    }
    assert_eq!((check.report.notices.len(), check.report.more_notices), (MAX_NOTICES, 2));
    assert_eq!(check.report.notices.last().unwrap().sequence, MAX_NOTICES as u64 - 1);
}
