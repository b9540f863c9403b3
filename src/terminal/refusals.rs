//! How much of the journal one principal's refused requests may fill.
//!
//! A refusal costs its caller nothing, so that without a bound one caller could push everybody's records out of the
//! retention. Each principal's refusals are written in full at a rate; beyond it they are counted, by session and rule or
//! bound, and the counts are written. Starts, ends and kills are never counted instead of written.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::journal::{Decision, QuotaRefused, Record, RefusalsRepeated, Verdict};

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

/// What is to be done with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is written.
    Written,
    /// It was counted.
    Counted,
}

/// The refusals of all principals.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    principals: Mutex<HashMap<String, Principal>>,
}

#[derive(Debug)]
struct Principal {
    bytes_left: u64,
    at: Instant,
    counted: BTreeMap<Kind, Count>,
}

/// Refusals that are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    session: Option<String>,
    rule: Option<String>,
    limit: Option<String>,
    is_question: bool,
}

#[derive(Debug)]
struct Count {
    times: u64,
    first: SystemTime,
    last: SystemTime,
}

impl Refusals {
    /// Decides about a refusal: a record of something else is always written.
    pub(super) fn take(&self, record: &Record) -> Refusal {
        let Some((principal, kind, bytes)) = describe(record) else { return Refusal::Written };
        let mut principals = self.principals.lock().expect("no code panics while it holds the refusals");
        if principals.len() > IDLE_PRINCIPALS && !principals.contains_key(principal) {
            principals.retain(|_, one| !one.counted.is_empty());
        }
        let one = principals.entry(principal.to_owned()).or_insert_with(Principal::new);
        one.take(kind, bytes, Instant::now())
    }

    /// Whether this principal may write a record that only it has asked for.
    pub(super) fn spend(&self, principal: &str) -> bool {
        let mut principals = self.principals.lock().expect("no code panics while it holds the refusals");
        let one = principals.entry(principal.to_owned()).or_insert_with(Principal::new);
        one.spend(ENVELOPE_BYTES, Instant::now())
    }

    /// The records of what was counted since the last time.
    pub(super) fn drain(&self) -> Vec<Record> {
        let mut principals = self.principals.lock().expect("no code panics while it holds the refusals");
        let mut records = Vec::new();
        for (principal, one) in principals.iter_mut() {
            for (kind, count) in std::mem::take(&mut one.counted) {
                records.push(Record::RefusalsRepeated(RefusalsRepeated {
                    principal: principal.clone(),
                    session: kind.session,
                    rule: kind.rule,
                    limit: kind.limit,
                    verdict: if kind.is_question { Verdict::Ask } else { Verdict::Deny },
                    times: count.times,
                    first_unix_ms: unix_ms(count.first),
                    last_unix_ms: unix_ms(count.last),
                }));
            }
        }
        records
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

    fn take(&mut self, kind: Kind, bytes: u64, now: Instant) -> Refusal {
        if self.spend(bytes, now) {
            return Refusal::Written;
        }
        let is_known = self.counted.contains_key(&kind) || self.counted.len() < KINDS;
        let kind = if is_known { kind } else { Kind { is_question: kind.is_question, ..Kind::default() } };
        let at = SystemTime::now();
        let count = self.counted.entry(kind).or_insert(Count { times: 0, first: at, last: at });
        count.times += 1;
        count.last = at;
        Refusal::Counted
    }
}

/// Whose refusal a record is, of what kind, and about how long; `None`: it is none.
fn describe(record: &Record) -> Option<(&str, Kind, u64)> {
    match record {
        Record::Decision(Decision { verdict: Verdict::Deny | Verdict::Ask, .. }) => {
            let Record::Decision(it) = record else { return None };
            let is_question = it.verdict == Verdict::Ask;
            let kind =
                Kind { session: Some(it.session.clone()), rule: it.rule.clone(), limit: None, is_question };
            let texts = it.command.argv.iter().chain(&it.judged.commands).map(String::len).sum::<usize>();
            let bytes = ENVELOPE_BYTES + (texts + it.reason.len() + it.cwd.len()) as u64;
            let records = if is_question { RECORDS_OF_A_QUESTION } else { 1 };
            Some((&it.principal, kind, bytes * records))
        }
        Record::QuotaRefused(QuotaRefused { principal, session, limit, .. }) => {
            let kind = Kind { session: session.clone(), limit: Some(limit.clone()), ..Kind::default() };
            Some((principal, kind, ENVELOPE_BYTES))
        }
        _ => None,
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(principal: &str, session: &str) -> Record {
        Record::QuotaRefused(QuotaRefused {
            principal: principal.into(),
            session: Some(session.into()),
            limit: "sessions_per_principal".into(),
            bound: 1,
        })
    }

    #[test]
    fn beyond_the_rate_refusals_are_counted_and_every_one_of_them() {
        let refusals = Refusals::default();
        let mut written = 0;
        for n in 0..20_000 {
            let record = refused("uid:1", &format!("sess_{}", n % 200));
            written += u64::from(refusals.take(&record) == Refusal::Written);
        }
        assert!(written * ENVELOPE_BYTES < 2 * BYTES_AT_ONCE);
        assert_eq!(refusals.take(&refused("uid:2", "sess_0")), Refusal::Written, "another one's are");
        let drained = refusals.drain();
        assert!(drained.len() <= KINDS + 1, "{} records", drained.len());
        let times = drained.iter().map(|record| match record {
            Record::RefusalsRepeated(it) => it.times,
            other => panic!("{other:?}"),
        });
        assert_eq!(written + times.sum::<u64>(), 20_000);
        assert!(refusals.drain().is_empty());
    }
}
