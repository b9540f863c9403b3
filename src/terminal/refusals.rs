//! How much of the journal one principal may fill with what costs it nothing: refused requests, questions, signals, kills
//! asked for again, reports.
//!
//! Without a bound one caller could push everybody's records out of the retention. Such records are written in full at a
//! rate; beyond it they are counted, by session and rule, bound or kind, and the counts are written. What a command is and
//! how it ends is never counted instead of written: for that there is the principal's share of the journal.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::counts_file::CountsFile;
use crate::journal::{Decision, QuotaRefused, Record, RefusalsRepeated, Repeated, Verdict};

/// Bytes that the refusals of one principal may write in a second, and at once. 4 GiB, the default retention, then last
/// for two and a half days with one principal that floods, and for 4 hours with 16 of them (decision 0158).
const BYTES_PER_S: u64 = 16 << 10;
const BYTES_AT_ONCE: u64 = 4 << 20;
/// Kinds of refusals of one principal that are counted apart; those beyond are counted together.
const KINDS: usize = 64;
/// Principals that are remembered although nothing is counted of them; beyond that they are forgotten.
const IDLE_PRINCIPALS: usize = 1_024;
/// How often counts are written.
pub(super) const WRITTEN_EVERY: Duration = Duration::from_secs(10);
/// What a record takes beside the texts in it.
const ENVELOPE_BYTES: u64 = 768;
/// A question to a person is followed by the records of its being put and of its end.
const RECORDS_OF_A_QUESTION: u64 = 3;

/// What is to be done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is written.
    Written,
    /// It was counted.
    Counted,
}

/// Whether its principal's share of the journal has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// It has.
    Some,
    /// It has none, or nobody asked: see [`Refusals::count`].
    None,
}

/// The refusals of all principals.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    principals: HashMap<String, Principal>,
    /// What is counted, for the next gateway, should this one be killed.
    file: CountsFile,
    /// What a gateway before this one has counted and not written.
    before: Vec<Record>,
}

#[derive(Debug)]
struct Principal {
    bytes_left: u64,
    at: Instant,
    counted: BTreeMap<Kind, Count>,
}

/// Records that are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    session: Option<String>,
    rule: Option<String>,
    limit: Option<String>,
    is_question: bool,
    /// It is no refusal, but a record of this kind.
    of: Option<&'static str>,
}

#[derive(Debug)]
struct Count {
    times: u64,
    first: SystemTime,
    last: SystemTime,
    slot: u64,
}

impl Refusals {
    /// Counts into files of this directory, too, and takes up what an earlier gateway has counted there.
    pub(super) fn kept_in(directory: &Path) -> Self {
        let (file, before) = CountsFile::open(directory);
        Self { held: Mutex::new(Held { file, before, ..Held::default() }) }
    }

    /// Decides about a record that its principal may cause at no cost: one of something else is always written.
    pub(super) fn take(&self, record: &Record, room: Room) -> Refusal {
        let Some((principal, kind, bytes)) = describe(record) else { return Refusal::Written };
        let mut held = self.lock();
        if room == Room::Some && held.of(principal).spend(bytes, Instant::now()) {
            return Refusal::Written;
        }
        held.count(principal, kind);
        Refusal::Counted
    }

    /// Counts a record instead of its being written.
    pub(super) fn count(&self, record: &Record) {
        if let Some((principal, kind, _)) = describe(record) {
            self.lock().count(principal, kind);
        }
    }

    /// Whether this principal may write a record that only it has asked for.
    pub(super) fn spend(&self, principal: &str) -> bool {
        self.lock().of(principal).spend(ENVELOPE_BYTES, Instant::now())
    }

    /// The records of what was counted since the last time. They stay in a file until [`Refusals::are_written`].
    pub(super) fn drain(&self) -> Vec<Record> {
        let mut held = self.lock();
        let mut records = std::mem::take(&mut held.before);
        for (principal, one) in &mut held.principals {
            for (kind, count) in std::mem::take(&mut one.counted) {
                records.push(record(principal, kind, &count));
            }
        }
        if !records.is_empty() {
            held.file.turn();
        }
        records
    }

    /// What was drained is in the journal.
    pub(super) fn are_written(&self) {
        self.lock().file.forget_turned();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no code panics while it holds the refusals")
    }
}

impl Held {
    fn of(&mut self, principal: &str) -> &mut Principal {
        if !self.principals.contains_key(principal) {
            if self.principals.len() > IDLE_PRINCIPALS {
                self.principals.retain(|_, one| !one.counted.is_empty());
            }
            self.principals.insert(principal.to_owned(), Principal::new());
        }
        self.principals.get_mut(principal).expect("it is there by now")
    }

    fn count(&mut self, principal: &str, kind: Kind) {
        let slot = self.file.free_slot();
        let one = self.of(principal);
        let is_known = one.counted.contains_key(&kind) || one.counted.len() < KINDS;
        let kind = if is_known {
            kind
        } else {
            Kind { is_question: kind.is_question, of: kind.of, ..Kind::default() }
        };
        let at = SystemTime::now();
        let count = one.counted.entry(kind.clone()).or_insert(Count { times: 0, first: at, last: at, slot });
        count.times += 1;
        count.last = at;
        let (slot, record) = (count.slot, record(principal, kind, count));
        self.file.write(slot, record);
    }
}

fn record(principal: &str, kind: Kind, count: &Count) -> Record {
    let Kind { session, rule, limit, is_question, of } = kind;
    let principal = principal.to_owned();
    let (times, first_unix_ms, last_unix_ms) = (count.times, unix_ms(count.first), unix_ms(count.last));
    match of {
        Some(of) => {
            let of = of.to_owned();
            Record::Repeated(Repeated { principal, session, of, times, first_unix_ms, last_unix_ms })
        }
        None => {
            let verdict = if is_question { Verdict::Ask } else { Verdict::Deny };
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

impl Principal {
    fn new() -> Self {
        Self { bytes_left: BYTES_AT_ONCE, at: Instant::now(), counted: BTreeMap::new() }
    }

    fn spend(&mut self, bytes: u64, now: Instant) -> bool {
        let passed_ms = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        let come_back = passed_ms.saturating_mul(BYTES_PER_S) / 1_000;
        if come_back > 0 {
            self.bytes_left = self.bytes_left.saturating_add(come_back).min(BYTES_AT_ONCE);
            self.at = now;
        }
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}

/// Whose a record is, of what kind, and about how long; `None`: its principal cannot cause it at no cost.
fn describe(record: &Record) -> Option<(&str, Kind, u64)> {
    match record {
        Record::Decision(Decision { verdict: Verdict::Deny | Verdict::Ask, .. }) => {
            let Record::Decision(it) = record else { return None };
            let is_question = it.verdict == Verdict::Ask;
            let session = Some(it.session.clone());
            let kind = Kind { session, rule: it.rule.clone(), is_question, ..Kind::default() };
            let texts = it.command.argv.iter().chain(&it.judged.commands).map(String::len).sum::<usize>();
            let bytes = ENVELOPE_BYTES + (texts + it.reason.len() + it.cwd.len()) as u64;
            let records = if is_question { RECORDS_OF_A_QUESTION } else { 1 };
            Some((&it.principal, kind, bytes * records))
        }
        Record::QuotaRefused(QuotaRefused { principal, session, limit, .. }) => {
            let kind = Kind { session: session.clone(), limit: Some(limit.clone()), ..Kind::default() };
            Some((principal, kind, ENVELOPE_BYTES))
        }
        Record::Signal(it) => Some((&it.principal, Kind::of("signal", &it.session), ENVELOPE_BYTES)),
        Record::KillAsked(it) => Some((&it.principal, Kind::of("kill_asked", &it.session), ENVELOPE_BYTES)),
        Record::WorkspaceChange(it) => {
            let bytes = ENVELOPE_BYTES + (it.path.len() + it.what.len()) as u64;
            Some((&it.principal, Kind::of("workspace_change", &it.session), bytes))
        }
        _ => None,
    }
}

impl Kind {
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
    use crate::journal::Signal;

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
            Record::Repeated(it) => it.times,
            other => panic!("{other:?}"),
        });
        times.sum()
    }

    #[test]
    fn beyond_the_rate_refusals_are_counted_and_every_one_of_them() {
        let refusals = Refusals::default();
        let mut written = 0;
        for n in 0..20_000 {
            let record = refused("uid:1", &format!("sess_{}", n % 200));
            written += u64::from(refusals.take(&record, Room::Some) == Refusal::Written);
        }
        assert!(written * ENVELOPE_BYTES < 2 * BYTES_AT_ONCE);
        let another = refused("uid:2", "sess_0");
        assert_eq!(refusals.take(&another, Room::Some), Refusal::Written, "another one's are");
        let drained = refusals.drain();
        assert!(drained.len() <= KINDS + 1, "{} records", drained.len());
        assert_eq!(written + times(&drained), 20_000);
        assert!(refusals.drain().is_empty());
    }

    #[test]
    fn what_was_counted_survives_the_gateway_and_is_not_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let count = |refusals: &Refusals, times| {
            for n in 0..times {
                let session = format!("sess_{}", n % 3);
                assert_eq!(refusals.take(&refused("uid:1", &session), Room::None), Refusal::Counted);
                let (principal, terminal) = ("uid:1".to_owned(), "term_1".to_owned());
                let signal = Signal { terminal, session, principal, signal: "SIGINT".to_owned() };
                refusals.count(&Record::Signal(signal));
            }
        };
        let first = Refusals::kept_in(directory.path());
        count(&first, 100);
        assert_eq!(times(&first.drain()), 200);
        first.are_written();
        count(&first, 50);
        drop(first);
        let second = Refusals::kept_in(directory.path());
        count(&second, 10);
        // Killed behind the drain, and before the records were written.
        assert_eq!(times(&second.drain()), 120);
        count(&second, 1);
        drop(second);
        let third = Refusals::kept_in(directory.path());
        let drained = third.drain();
        assert_eq!(times(&drained), 122);
        third.are_written();
        drop(third);
        assert!(Refusals::kept_in(directory.path()).drain().is_empty());
    }
}
