//! Records what terminals, sessions and approvals do, in the gateway's journal.
//!
//! A record of what may be refused is written before its effect, and when that fails the effect does not happen. What happens
//! in any case (ends, kills, observations) is recorded with best effort and never waits or fails. The journal has both in the
//! order of the calls. The contents are made in [`records`](super::records); secret values are removed before they come here.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::record_limiter::{COUNTS_WRITE_INTERVAL, RateDecision, RecordLimiter, ShareRoom};
use crate::{
    journal::{AppendError, Journal, Record},
    session::Principal,
    terminal::quotas::{QuotaKind, QuotaReached, QuotaScope},
};

/// Writes to the gateway's journal, or nowhere when the configuration has none.
#[derive(Debug, Clone)]
pub struct Recorder {
    journal: Option<Journal>,
    limiter: Arc<RecordLimiter>,
}

/// The refusals of this principal are too many to be written one by one: this one was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) struct CountedOnly;

/// The journal did not take a record: what it was to say must not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal cannot be written, and nothing is started unrecorded")]
pub struct Unrecorded(#[from] pub AppendError);

impl Recorder {
    /// Writes to this journal.
    pub fn new(journal: Journal) -> Self {
        let limiter = Arc::new(RecordLimiter::open(journal.directory().path()));
        Self { journal: Some(journal), limiter }
    }

    /// Writes nothing, and refuses nothing: the configuration has no journal.
    pub fn disabled() -> Self {
        Self { journal: None, limiter: Arc::default() }
    }

    /// The journal, where there is one.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Writes a record before its effect, and waits until that is done. An error forbids the effect.
    pub async fn record(&self, record: &Record) -> Result<(), Unrecorded> {
        self.record_all([record]).await.map(drop)
    }

    /// Writes records before their effect: all in one go, in this order, or none. The number of the first, where there is
    /// a journal.
    pub async fn record_all<'a>(
        &self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Option<u64>, Unrecorded> {
        match &self.journal {
            None => Ok(None),
            Some(journal) => Ok(journal.append_all_async(records).await.map(Some)?),
        }
    }

    /// Writes a refusal and answers with its number, or counts it where its principal's are too many.
    pub(in crate::terminal) async fn record_refusal(
        &self,
        record: &Record,
    ) -> Result<Result<Option<u64>, CountedOnly>, Unrecorded> {
        if self.journal.is_some()
            && self.limiter.admit(record, self.share_room(record)) == RateDecision::Count
        {
            return Ok(Err(CountedOnly));
        }
        self.record_all([record]).await.map(Ok)
    }

    /// Notes what its principal can have happen again and again at no cost, or counts it where that is too often.
    pub(in crate::terminal) fn record_or_count(&self, record: &Record) {
        if self.journal.is_some()
            && self.limiter.admit(record, self.share_room(record)) == RateDecision::Write
        {
            self.record_best_effort(record);
        }
    }

    /// Writes what a command has done, in one go, or counts it where its principal's share of the journal is full.
    pub(in crate::terminal) async fn record_all_within_share(
        &self,
        records: &[Record],
    ) -> Result<(), Unrecorded> {
        match records.first().map(|record| self.share_room(record)) {
            None => Ok(()),
            Some(ShareRoom::Available) => self.record_all(records).await.map(drop),
            Some(ShareRoom::Full) => {
                records.iter().for_each(|record| self.limiter.count(record));
                Ok(())
            }
        }
    }

    /// Notes what a command has done, or counts it where its principal's share of the journal is full.
    pub(in crate::terminal) fn record_within_share(&self, record: &Record) {
        match self.share_room(record) {
            ShareRoom::Available => self.record_best_effort(record),
            ShareRoom::Full => self.limiter.count(record),
        }
    }

    fn share_room(&self, record: &Record) -> ShareRoom {
        let Some((journal, principal)) = self.journal.as_ref().zip(record.subject().principal) else {
            return ShareRoom::Available;
        };
        // Whatever its length: what is at the bound is a little beyond it with the last record.
        if journal.write_quota().has_room(principal, 1).is_ok() {
            ShareRoom::Available
        } else {
            ShareRoom::Full
        }
    }

    /// Whether a principal's share of the journal has room for so many bytes of what a caller wrote, and what comes of
    /// them: else nothing new is begun for it.
    pub(in crate::terminal) fn check_share(
        &self,
        principal: Principal,
        bytes: usize,
    ) -> Result<(), QuotaReached> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let share = journal.write_quota().has_room(&principal.to_string(), bytes as u64);
        share.map_err(|reached| QuotaReached {
            kind: QuotaKind::Journal { within_s: reached.within.as_secs() },
            scope: QuotaScope::Principal,
            max: reached.cap,
        })
    }

    /// Whether this principal may have another record written that says only what the principal wants it to.
    pub fn may_report(&self, principal: Principal) -> bool {
        let has_share = || self.check_share(principal, 1).is_ok();
        self.journal.is_none() || has_share() && self.limiter.try_spend(&principal.to_string())
    }

    /// Writes what was counted of refusals, from time to time. Never ends.
    pub async fn write_repeated_refusals(&self) -> Infallible {
        let mut due = tokio::time::interval(COUNTS_WRITE_INTERVAL);
        loop {
            due.tick().await;
            if let Some(journal) = &self.journal
                && self.write_counted_refusals()
            {
                journal.flush().await;
                self.limiter.confirm_written();
            }
        }
    }

    /// Writes what was counted of refusals by now; whether there was anything.
    pub fn write_counted_refusals(&self) -> bool {
        let counted = self.limiter.drain();
        counted.iter().for_each(|record| self.record_best_effort(record));
        !counted.is_empty()
    }

    /// The journal is closed, with all that was counted.
    pub fn clear_counted_refusals(&self) {
        self.limiter.confirm_written();
    }

    /// Records what happens in any case. Neither waits nor fails; may be called anywhere. What the disk does not
    /// take is counted in the journal as soon as it can be written again.
    pub fn record_best_effort(&self, record: &Record) {
        if let Some(journal) = &self.journal {
            journal.append_best_effort(record);
        }
    }

    /// To find out which ends a gateway before this one has written.
    pub fn recorded_exits(&self) -> RecordedExits {
        RecordedExits { journal: self.journal.clone(), known: HashSet::new(), since: None }
    }
}

/// How far the clock may have been set between the end of a command and its record.
const CLOCK_MARGIN: Duration = Duration::from_secs(600);

/// The ends that are in the journal, read when first asked for: a command whose supervisor still reports its end must
/// not have it written twice.
#[derive(Debug)]
pub struct RecordedExits {
    journal: Option<Journal>,
    known: HashSet<String>,
    /// Ends since then are known.
    since: Option<SystemTime>,
}

impl RecordedExits {
    /// Whether the end of a terminal, so long ago, is written. Blocks.
    pub(in crate::terminal) fn contains(&mut self, terminal: &str, ago: Duration) -> bool {
        let Some(journal) = &self.journal else { return false };
        let since = SystemTime::now().checked_sub(ago.saturating_add(CLOCK_MARGIN));
        let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
        if self.since.is_none_or(|known| since < known) {
            // Twice as far, so that it is not read again for each that is a little older.
            let since = since.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
            match journal.terminals_with_exit(since) {
                Ok(known) => self.known = known,
                // Twice is better than not at all.
                Err(error) => tracing::error!(%error, "the journal's ends cannot be read"),
            }
            self.since = Some(since);
        }
        self.known.contains(terminal)
    }
}
