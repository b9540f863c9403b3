//! Chooses records of a journal as they are read, in their order.
//!
//! Most fields are in each record. The front end is not: it is in the records that open a session and decide in it, and holds for
//! what else is recorded of that session.

use std::collections::HashSet;

use crate::format::{
    line::JournalLine,
    record::{Record, RecordedVerdict},
};

/// Sessions of the wanted front end that are known at once. Of more, the rest shows only what names its front end itself.
const SESSIONS_MAX: usize = 65_536;

/// Which records are wanted: those that match every field that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// About this principal's sessions, terminals and requests.
    pub principal: Option<String>,
    /// About this session.
    pub session: Option<String>,
    /// About this terminal.
    pub terminal: Option<String>,
    /// Decided by this rule.
    pub rule: Option<String>,
    /// Decided so.
    pub verdict: Option<RecordedVerdict>,
    /// About sessions that were opened by this front end, as their callers claim.
    pub front_end: Option<String>,
    /// Written at this wall time or later, in nanoseconds since 1970.
    pub since_ns: Option<u64>,
}

impl RecordFilter {
    /// Whether a record is wanted, as far as the record alone says it: the front end is for [`Selection`].
    pub(crate) fn matches(&self, line: &JournalLine) -> bool {
        let Self { principal, session, terminal, rule, verdict, front_end: _, since_ns } = self;
        let record = &line.record;
        let subject = record.subject();
        let fits = |wanted: &Option<String>, found| wanted.is_none() || wanted.as_deref() == found;
        fits(principal, subject.principal)
            && fits(session, subject.session)
            && fits(terminal, subject.terminal)
            && rule.as_deref().is_none_or(|wanted| record.names_rule(wanted))
            && verdict.is_none_or(|wanted| record.verdict() == Some(wanted))
            && since_ns.is_none_or(|since| line.time >= crate::rfc3339(since))
    }
}

/// A filter on its way through a journal.
#[derive(Debug)]
pub(super) struct Selection {
    filter: RecordFilter,
    /// Open sessions of the wanted front end.
    sessions: HashSet<String>,
}

impl Selection {
    pub(crate) fn new(filter: RecordFilter) -> Self {
        Self { filter, sessions: HashSet::new() }
    }

    /// Whether the next record is wanted.
    pub(super) fn admits(&mut self, line: &JournalLine) -> bool {
        let is_of_front_end = match self.filter.front_end.clone() {
            None => true,
            Some(wanted) => self.is_of_front_end(&line.record, &wanted),
        };
        is_of_front_end && self.filter.matches(line)
    }

    fn is_of_front_end(&mut self, record: &Record, wanted: &str) -> bool {
        let Some(session) = record.subject().session else { return false };
        match (record.front_end(), record) {
            (Some(named), _) if named != wanted => false,
            (Some(_), _) => {
                if self.sessions.len() < SESSIONS_MAX {
                    self.sessions.insert(session.to_owned());
                }
                true
            }
            (None, Record::SessionClosed(_)) => self.sessions.remove(session),
            (None, _) => self.sessions.contains(session),
        }
    }
}
