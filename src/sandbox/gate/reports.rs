//! Reports to the gateway: numbered, and kept until the journal has them. Pure.

use std::collections::{BTreeMap, VecDeque};

use prost::Message as _;

use crate::proto::gate::{ExecDenied, Report, exec_denied::Cause, report};

/// Reports that are kept. What happens beyond is counted in the last one.
pub(super) const MAX_KEPT_REPORTS: usize = 4_096;
/// Their encoded bytes.
pub(super) const MAX_KEPT_BYTES: usize = 16 << 20;

/// Reports that the journal does not have yet.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: u64,
    /// The highest number that the journal has.
    recorded: u64,
    kept: VecDeque<Report>,
    /// Questions that the journal has, as long as their execs wait: the next gateway asks them again.
    questions: BTreeMap<u64, Report>,
    bytes: usize,
    /// What happened since the bound was reached, and of which terminal it was first.
    omitted: u64,
    omitted_of: String,
}

impl Reports {
    /// Numbers a report and keeps it. `None`: there are too many, and it is only counted.
    pub(super) fn add(
        &mut self,
        terminal_id: &str,
        policy_generation: u64,
        at_unix_ns: u64,
        what: report::Report,
    ) -> Option<&Report> {
        if self.kept.len() >= MAX_KEPT_REPORTS || self.bytes >= MAX_KEPT_BYTES {
            if self.omitted == 0 {
                self.omitted_of = terminal_id.to_owned();
            }
            self.omitted += 1;
            return None;
        }
        self.last += 1;
        let report = Report {
            number: self.last,
            terminal_id: terminal_id.to_owned(),
            policy_generation,
            at_unix_ns,
            report: Some(what),
        };
        self.bytes += report.encoded_len();
        self.kept.push_back(report);
        self.kept.back()
    }

    /// Forgets the reports up to this number, which the journal has. Returns the report of what was only counted, if there is
    /// room for it now.
    pub(super) fn forget(&mut self, up_to: u64, policy_generation: u64, at_unix_ns: u64) -> Option<&Report> {
        self.recorded = self.recorded.max(up_to.min(self.last));
        while self.kept.front().is_some_and(|report| report.number <= up_to) {
            if let Some(report) = self.kept.pop_front() {
                self.bytes = self.bytes.saturating_sub(report.encoded_len());
                if matches!(report.report, Some(report::Report::Asked(_))) {
                    self.questions.insert(report.number, report);
                }
            }
        }
        if self.omitted == 0 {
            return None;
        }
        let (count, terminal) = (std::mem::take(&mut self.omitted), std::mem::take(&mut self.omitted_of));
        let denied = ExecDenied {
            cause: Cause::Unavailable.into(),
            reason: format!("{count} more reports were not kept while no gateway took them"),
            ..ExecDenied::default()
        };
        self.add(&terminal, policy_generation, at_unix_ns, report::Report::Denied(denied))
    }

    /// The number of the last report; 0: there was none.
    pub(super) fn last_number(&self) -> u64 {
        self.last
    }

    /// The highest number of which the gateway has said that the journal has it; 0: of none.
    pub(super) fn last_recorded(&self) -> u64 {
        self.recorded
    }

    /// Forgets the questions whose execs do not wait any more.
    pub(super) fn retain_questions(&mut self, waits: impl Fn(u64) -> bool) {
        self.questions.retain(|number, _| waits(*number));
    }

    /// Whether it keeps a question that the journal has.
    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The questions that the journal has, and then the reports that it does not have: in the order of their numbers.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Report> {
        self.questions.values().chain(&self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> report::Report {
        report::Report::Denied(ExecDenied::default())
    }

    #[test]
    fn numbers_have_no_gaps_and_what_is_recorded_is_forgotten() {
        let mut reports = Reports::default();
        for expected in 1..=5 {
            assert_eq!(reports.add("t", 1, 1, denied()).unwrap().number, expected);
        }
        assert!(reports.forget(3, 1, 1).is_none());
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [4, 5]);
        assert!(reports.forget(1, 1, 1).is_none(), "an old number forgets nothing");
        assert_eq!(reports.kept().count(), 2);
    }

    #[test]
    fn a_question_is_kept_while_its_exec_waits() {
        let mut reports = Reports::default();
        for what in [denied(), report::Report::Asked(crate::proto::gate::ExecAsked::default()), denied()] {
            reports.add("t", 1, 1, what);
        }
        reports.forget(2, 1, 1);
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [2, 3]);
        reports.retain_questions(|number| number != 2);
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn beyond_the_bound_they_are_counted_in_one_report_when_there_is_room() {
        let mut reports = Reports::default();
        for _ in 0..MAX_KEPT_REPORTS {
            assert!(reports.add("t", 1, 1, denied()).is_some());
        }
        for _ in 0..7 {
            assert!(reports.add("u", 1, 1, denied()).is_none());
        }
        let report = reports.forget(1, 1, 1).unwrap().clone();
        assert_eq!((report.number, report.terminal_id.as_str()), (MAX_KEPT_REPORTS as u64 + 1, "u"));
        let Some(report::Report::Denied(denied)) = report.report else { panic!("not a denial") };
        assert!(denied.reason.starts_with("7 more"), "{}", denied.reason);
        assert!(reports.forget(2, 1, 1).is_none());
    }
}
