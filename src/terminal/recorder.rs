//! The gateway's hand on the journal: the one type by which terminals, sessions and approvals write down what they do.
//!
//! Two ways, and nothing between: what may be refused is *recorded*, before its effect, and does not happen when that
//! fails; what happens in any case (ends, kills, what was found out) is *noted*, and never waits or fails. Both are in
//! the journal in the order of the calls. What a record says is made in [`records`](super::records); secret values are
//! out of it before it comes here.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    quota::{Kind, QuotaReached, Scope},
    refusals::{Refusal, Refusals, Room, WRITTEN_EVERY},
};
use crate::{
    journal::{AppendError, Journal, Record},
    session::Principal,
};

/// Writes to the gateway's journal, or nowhere when the configuration has none.
#[derive(Debug, Clone)]
pub struct Recorder {
    journal: Option<Journal>,
    refusals: Arc<Refusals>,
}

/// The refusals of this principal are too many to be written one by one: this one was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedOnly;

/// The journal did not take a record: what it was to say must not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal cannot be written, and nothing is started unrecorded")]
pub struct Unrecorded(#[from] pub AppendError);

impl Recorder {
    /// Writes to this journal.
    pub fn to(journal: Journal) -> Self {
        let refusals = Arc::new(Refusals::kept_in(journal.folder().path()));
        Self { journal: Some(journal), refusals }
    }

    /// Writes nothing, and refuses nothing: the configuration has no journal.
    pub fn nowhere() -> Self {
        Self { journal: None, refusals: Arc::default() }
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
    pub(super) async fn refused(
        &self,
        record: &Record,
    ) -> Result<Result<Option<u64>, CountedOnly>, Unrecorded> {
        if self.journal.is_some() && self.refusals.take(record, self.room(record)) == Refusal::Counted {
            return Ok(Err(CountedOnly));
        }
        self.record_all([record]).await.map(Ok)
    }

    /// Notes what its principal can have happen again and again at no cost, or counts it where that is too often.
    pub(super) fn note_or_count(&self, record: &Record) {
        if self.journal.is_some() && self.refusals.take(record, self.room(record)) == Refusal::Written {
            self.note(record);
        }
    }

    /// Notes what a command has done, or counts it where its principal's share of the journal is full.
    pub(super) fn note_within_share(&self, record: &Record) {
        match self.room(record) {
            Room::Some => self.note(record),
            Room::None => self.refusals.count(record),
        }
    }

    fn room(&self, record: &Record) -> Room {
        let Some((journal, principal)) = self.journal.as_ref().zip(record.subject().principal) else {
            return Room::Some;
        };
        // Whatever its length: what is at the bound is a little beyond it with the last record.
        if journal.shares().has_room(principal, 1).is_ok() { Room::Some } else { Room::None }
    }

    /// Whether a principal's share of the journal has room for so many bytes of what a caller wrote, and what comes of
    /// them: else nothing new is begun for it.
    pub(super) fn share(&self, principal: Principal, bytes: usize) -> Result<(), QuotaReached> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let share = journal.shares().has_room(&principal.to_string(), bytes as u64);
        share.map_err(|reached| QuotaReached {
            kind: Kind::Journal { within_s: reached.within.as_secs() },
            scope: Scope::Principal,
            cap: reached.cap,
        })
    }

    /// Whether this principal may have another record written that says only what the principal wants it to.
    pub fn may_report(&self, principal: Principal) -> bool {
        let has_share = || self.share(principal, 1).is_ok();
        self.journal.is_none() || has_share() && self.refusals.spend(&principal.to_string())
    }

    /// Writes what was counted of refusals, from time to time. Never ends.
    pub async fn write_repeated_refusals(&self) -> Infallible {
        let mut due = tokio::time::interval(WRITTEN_EVERY);
        loop {
            due.tick().await;
            if let Some(journal) = &self.journal
                && self.write_counted_refusals()
            {
                journal.settled().await;
                self.refusals.are_written();
            }
        }
    }

    /// Writes what was counted of refusals by now; whether there was anything.
    pub fn write_counted_refusals(&self) -> bool {
        let counted = self.refusals.drain();
        counted.iter().for_each(|record| self.note(record));
        !counted.is_empty()
    }

    /// The journal is closed, with all that was counted.
    pub fn forget_counted_refusals(&self) {
        self.refusals.are_written();
    }

    /// Writes down what happens in any case. Neither waits nor fails; may be called anywhere. What the disk does not
    /// take is counted in the journal as soon as it can be written again.
    pub fn note(&self, record: &Record) {
        if let Some(journal) = &self.journal {
            journal.note(record);
        }
    }

    /// To find out which ends a gateway before this one has written.
    pub fn written_ends(&self) -> WrittenEnds {
        WrittenEnds { journal: self.journal.clone(), known: HashSet::new(), since: None }
    }
}

/// How far the clock may have been set between the end of a command and its record.
const CLOCK_MARGIN: Duration = Duration::from_secs(600);

/// The ends that are in the journal, read when first asked for: a command whose supervisor still tells of its end must
/// not have it written twice.
#[derive(Debug)]
pub struct WrittenEnds {
    journal: Option<Journal>,
    known: HashSet<String>,
    /// Ends since then are known.
    since: Option<SystemTime>,
}

impl WrittenEnds {
    /// Whether the end of a terminal, so long ago, is written. Blocks.
    pub(super) fn has(&mut self, terminal: &str, ago: Duration) -> bool {
        let Some(journal) = &self.journal else { return false };
        let since = SystemTime::now().checked_sub(ago.saturating_add(CLOCK_MARGIN));
        let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
        if self.since.is_none_or(|known| since < known) {
            // Twice as far, so that it is not read anew for each that is a little older.
            let since = since.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
            match journal.terminals_ended(since) {
                Ok(known) => self.known = known,
                // Twice is better than not at all.
                Err(error) => tracing::error!(%error, "the journal's ends cannot be read"),
            }
            self.since = Some(since);
        }
        self.known.contains(terminal)
    }
}
