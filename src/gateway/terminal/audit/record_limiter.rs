//! Limits how much of the journal a principal can fill at no cost to itself: refused requests, questions, signals,
//! repeated kills, reports.
//!
//! Without a limit one caller could push all other records out of the retention. Such records are written in full up
//! to a rate. Beyond it they are counted, by session and rule, limit or kind, and the counts are written. The records
//! of a command's start and end are never only counted; the principal's share of the journal limits those.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::repeat_counts_file::RepeatCountsFile;
use crate::journal::{
    DecisionRecord, QuotaRefused, Record, RecordedExec, RecordedVerdict, RecordsRepeated, RefusalsRepeated,
};

/// Bytes that the refusals of one principal may write in a second, and at once. 4 GiB, the default retention, then last
/// for two and a half days with one principal that floods, and for 4 hours with 16 of them (decision 0158).
const BYTES_PER_S: u64 = 16 << 10;
const BURST_BYTES: u64 = 4 << 20;
/// Kinds of refusals of one principal that are counted apart; those beyond are counted together.
const KINDS_MAX: usize = 64;
/// Principals that are remembered although nothing is counted of them; beyond that they are forgotten.
const IDLE_PRINCIPALS: usize = 1_024;
/// How often counts are written.
pub(in crate::terminal) const COUNTS_WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// What a record takes in addition to the texts in it.
const RECORD_OVERHEAD_BYTES: u64 = 768;
/// A question to a person is followed by the records of its being put and of its end.
const RECORDS_OF_A_QUESTION: u64 = 3;

/// What is to be done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum RateDecision {
    /// It is written.
    Write,
    /// It was counted.
    Count,
}

/// Whether its principal's share of the journal has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum ShareRoom {
    /// It has.
    Available,
    /// It has none, or nobody asked: see [`RecordLimiter::count`].
    Full,
}

/// The refusals of all principals.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RecordLimiter {
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    principals: HashMap<String, PrincipalBudget>,
    /// What is counted, for the next gateway, should this one be killed.
    file: RepeatCountsFile,
    /// What a gateway before this one has counted and not written.
    before: Vec<Record>,
}

#[derive(Debug)]
struct PrincipalBudget {
    bytes_left: u64,
    at: Instant,
    counted: BTreeMap<RepeatKind, RepeatCount>,
}

/// Records that are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RepeatKind {
    session: Option<String>,
    rule: Option<String>,
    limit: Option<String>,
    is_question: bool,
    /// It is no refusal, but a record of this kind.
    of: Option<&'static str>,
}

#[derive(Debug)]
struct RepeatCount {
    times: u64,
    first: SystemTime,
    last: SystemTime,
    slot: u64,
}

impl RecordLimiter {
    /// Counts into files of this directory, too, and takes up what an earlier gateway has counted there.
    pub(in crate::terminal) fn open(directory: &Path) -> Self {
        let (file, before) = RepeatCountsFile::open(directory);
        Self { state: Mutex::new(LimiterState { file, before, ..LimiterState::default() }) }
    }

    /// Decides about a record that its principal may cause at no cost: one of something else is always written.
    pub(in crate::terminal) fn admit(&self, record: &Record, room: ShareRoom) -> RateDecision {
        let Some((principal, kind, bytes)) = classify(record) else { return RateDecision::Write };
        let mut held = self.lock();
        if room == ShareRoom::Available && held.of(principal).spend(bytes, Instant::now()) {
            return RateDecision::Write;
        }
        held.count(principal, kind);
        RateDecision::Count
    }

    /// Counts a record instead of its being written.
    pub(in crate::terminal) fn count(&self, record: &Record) {
        if let Some((principal, kind, _)) = classify(record) {
            self.lock().count(principal, kind);
        }
    }

    /// Whether this principal may write a record that only it has asked for.
    pub(in crate::terminal) fn try_spend(&self, principal: &str) -> bool {
        self.lock().of(principal).spend(RECORD_OVERHEAD_BYTES, Instant::now())
    }

    /// The records of what was counted since the last time. They stay in a file until [`RecordLimiter::confirm_written`].
    pub(in crate::terminal) fn drain(&self) -> Vec<Record> {
        let mut held = self.lock();
        let mut records = std::mem::take(&mut held.before);
        for (principal, one) in &mut held.principals {
            for (kind, count) in std::mem::take(&mut one.counted) {
                records.push(record(principal, kind, &count));
            }
        }
        if !records.is_empty() {
            held.file.rotate();
        }
        records
    }

    /// What was drained is in the journal.
    pub(in crate::terminal) fn confirm_written(&self) {
        self.lock().file.clear_rotated();
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().expect("no code panics while it holds the refusals")
    }
}

impl LimiterState {
    fn of(&mut self, principal: &str) -> &mut PrincipalBudget {
        if !self.principals.contains_key(principal) {
            if self.principals.len() > IDLE_PRINCIPALS {
                self.principals.retain(|_, one| !one.counted.is_empty());
            }
            self.principals.insert(principal.to_owned(), PrincipalBudget::new());
        }
        self.principals.get_mut(principal).expect("it is there by now")
    }

    fn count(&mut self, principal: &str, kind: RepeatKind) {
        let slot = self.file.free_slot();
        let one = self.of(principal);
        let is_known = one.counted.contains_key(&kind) || one.counted.len() < KINDS_MAX;
        let kind = if is_known {
            kind
        } else {
            RepeatKind { is_question: kind.is_question, of: kind.of, ..RepeatKind::default() }
        };
        let at = SystemTime::now();
        let count =
            one.counted.entry(kind.clone()).or_insert(RepeatCount { times: 0, first: at, last: at, slot });
        count.times += 1;
        count.last = at;
        let (slot, record) = (count.slot, record(principal, kind, count));
        self.file.write(slot, record);
    }
}

fn record(principal: &str, kind: RepeatKind, count: &RepeatCount) -> Record {
    let RepeatKind { session, rule, limit, is_question, of } = kind;
    let principal = principal.to_owned();
    let (times, first_unix_ms, last_unix_ms) = (count.times, unix_ms(count.first), unix_ms(count.last));
    match of {
        Some(of) => {
            let of = of.to_owned();
            Record::RecordsRepeated(RecordsRepeated {
                principal,
                session,
                of,
                times,
                first_unix_ms,
                last_unix_ms,
            })
        }
        None => {
            let verdict = if is_question { RecordedVerdict::Ask } else { RecordedVerdict::Deny };
            Record::RefusalsRepeated(RefusalsRepeated {
                principal,
                session,
                rule,
                limit,
                verdict,
                times,
                first_unix_ms,
                last_unix_ms,
            })
        }
    }
}

impl PrincipalBudget {
    fn new() -> Self {
        Self { bytes_left: BURST_BYTES, at: Instant::now(), counted: BTreeMap::new() }
    }

    fn spend(&mut self, bytes: u64, now: Instant) -> bool {
        let passed_ms = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        let come_back = passed_ms.saturating_mul(BYTES_PER_S) / 1_000;
        if come_back > 0 {
            self.bytes_left = self.bytes_left.saturating_add(come_back).min(BURST_BYTES);
            self.at = now;
        }
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}

/// Whose a record is, of what kind, and about how long; `None`: its principal cannot cause it at no cost.
fn classify(record: &Record) -> Option<(&str, RepeatKind, u64)> {
    match record {
        Record::Decision(DecisionRecord {
            verdict: RecordedVerdict::Deny | RecordedVerdict::Ask, ..
        }) => {
            let Record::Decision(it) = record else { return None };
            let is_question = it.verdict == RecordedVerdict::Ask;
            let session = Some(it.session.clone());
            let kind = RepeatKind { session, rule: it.rule.clone(), is_question, ..RepeatKind::default() };
            let texts = it.command.argv.iter().chain(&it.judged.commands).map(String::len).sum::<usize>();
            let bytes = RECORD_OVERHEAD_BYTES + (texts + it.reason.len() + it.cwd.len()) as u64;
            let records = if is_question { RECORDS_OF_A_QUESTION } else { 1 };
            Some((&it.principal, kind, bytes * records))
        }
        Record::QuotaRefused(QuotaRefused { principal, session, limit, .. }) => {
            let kind =
                RepeatKind { session: session.clone(), limit: Some(limit.clone()), ..RepeatKind::default() };
            Some((principal, kind, RECORD_OVERHEAD_BYTES))
        }
        Record::ExecDenied(it) => {
            let session = Some(it.session.clone());
            let kind = RepeatKind { session, rule: it.rule.clone(), ..RepeatKind::default() };
            Some((&it.principal, kind, exec_bytes(&it.exec) + it.reason.len() as u64))
        }
        Record::ExecDeniedAgain(it) => {
            Some((&it.principal, RepeatKind::of("exec_denied_again", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::ExecAsked(it) => {
            let (session, rule) = (Some(it.session.clone()), Some(it.rule.clone()));
            let kind = RepeatKind { session, rule, is_question: true, ..RepeatKind::default() };
            Some((&it.principal, kind, exec_bytes(&it.exec) * RECORDS_OF_A_QUESTION))
        }
        Record::ExecsAllowed(it) => {
            let bytes = it.execs.iter().map(|one| exec_bytes(&one.exec)).sum();
            Some((&it.principal, RepeatKind::of("execs_allowed", &it.session), bytes))
        }
        Record::Connection(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.host.len() + it.reason.len()) as u64;
            let kind = match it.verdict {
                RecordedVerdict::Allow => RepeatKind::of("connection", &it.session),
                RecordedVerdict::Deny | RecordedVerdict::Ask => {
                    let session = Some(it.session.clone());
                    RepeatKind { session, rule: it.rule.clone(), ..RepeatKind::default() }
                }
            };
            Some((&it.principal, kind, bytes))
        }
        Record::ConnectionEnded(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.host.len() + it.failure.len()) as u64;
            Some((&it.principal, RepeatKind::of("connection_ended", &it.session), bytes))
        }
        Record::Signature(it) => {
            let kind = match it.verdict {
                RecordedVerdict::Allow => RepeatKind::of("signature", &it.session),
                RecordedVerdict::Deny | RecordedVerdict::Ask => {
                    let (session, rule) = (Some(it.session.clone()), Some(it.rule.clone()));
                    RepeatKind { session, rule, ..RepeatKind::default() }
                }
            };
            Some((&it.principal, kind, RECORD_OVERHEAD_BYTES))
        }
        Record::ForwardEnded(it) => {
            Some((&it.principal, RepeatKind::of("forward_ended", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::Signal(it) => {
            Some((&it.principal, RepeatKind::of("signal", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::KillRequested(it) => {
            Some((&it.principal, RepeatKind::of("kill_requested", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::WorkspaceChange(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.path.len() + it.what.len()) as u64;
            Some((&it.principal, RepeatKind::of("workspace_change", &it.session), bytes))
        }
        _ => None,
    }
}

fn exec_bytes(exec: &RecordedExec) -> u64 {
    let texts = exec.argv.iter().chain(&exec.interpreters).chain(&exec.path).map(String::len).sum::<usize>();
    RECORD_OVERHEAD_BYTES + (texts + exec.file.len() + exec.cwd.len()) as u64
}

impl RepeatKind {
    fn of(kind: &'static str, session: &str) -> Self {
        Self { session: Some(session.to_owned()), of: Some(kind), ..Self::default() }
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::SignalRecord;

    fn refused(principal: &str, session: &str) -> Record {
        Record::QuotaRefused(QuotaRefused {
            principal: principal.into(),
            session: Some(session.into()),
            limit: "sessions_per_principal".into(),
            bound: 1,
        })
    }

    fn times(records: &[Record]) -> u64 {
        let times = records.iter().map(|record| match record {
            Record::RefusalsRepeated(it) => it.times,
            Record::RecordsRepeated(it) => it.times,
            other => panic!("{other:?}"),
        });
        times.sum()
    }

    #[test]
    fn beyond_the_rate_refusals_are_counted_and_every_one_of_them() {
        let limiter = RecordLimiter::default();
        let mut written = 0;
        for n in 0..20_000 {
            let record = refused("uid:1", &format!("sess_{}", n % 200));
            written += u64::from(limiter.admit(&record, ShareRoom::Available) == RateDecision::Write);
        }
        assert!(written * RECORD_OVERHEAD_BYTES < 2 * BURST_BYTES);
        let another = refused("uid:2", "sess_0");
        assert_eq!(limiter.admit(&another, ShareRoom::Available), RateDecision::Write, "another one's are");
        let drained = limiter.drain();
        assert!(drained.len() <= KINDS_MAX + 1, "{} records", drained.len());
        assert_eq!(written + times(&drained), 20_000);
        assert!(limiter.drain().is_empty());
    }

    #[test]
    fn what_was_counted_survives_the_gateway_and_is_not_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let count = |refusals: &RecordLimiter, times| {
            for n in 0..times {
                let session = format!("sess_{}", n % 3);
                assert_eq!(refusals.admit(&refused("uid:1", &session), ShareRoom::Full), RateDecision::Count);
                let (principal, terminal) = ("uid:1".to_owned(), "term_1".to_owned());
                let signal = SignalRecord { terminal, session, principal, signal: "SIGINT".to_owned() };
                refusals.count(&Record::Signal(signal));
            }
        };
        let first = RecordLimiter::open(directory.path());
        count(&first, 100);
        assert_eq!(times(&first.drain()), 200);
        first.confirm_written();
        count(&first, 50);
        drop(first);
        let second = RecordLimiter::open(directory.path());
        count(&second, 10);
        // Killed behind the drain, and before the records were written.
        assert_eq!(times(&second.drain()), 120);
        count(&second, 1);
        drop(second);
        let third = RecordLimiter::open(directory.path());
        let drained = third.drain();
        assert_eq!(times(&drained), 122);
        third.confirm_written();
        drop(third);
        assert!(RecordLimiter::open(directory.path()).drain().is_empty());
    }
}
