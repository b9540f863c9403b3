//! The execs within a terminal that were refused: the first ones, and the number of the others.
//!
//! A report counts once, whichever gateway takes it and however often: its number says whether it has been counted.

use std::sync::{Mutex, MutexGuard};

use prost::Message as _;

use crate::proto::{
    state::TerminalExecDenied,
    v1::{ExecDenial, Outcome},
};

/// The most refused execs in one outcome.
pub(in crate::terminal) const DENIALS_MAX: usize = 64;

/// The refused execs of one terminal.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ExecDenials(Mutex<CountedDenials>);

/// What was counted so far.
#[derive(Debug, Clone, Default)]
pub(in crate::terminal) struct CountedDenials {
    first: Vec<ExecDenial>,
    omitted: u64,
    /// The number of the last report that was counted.
    last_report: u64,
}

impl ExecDenials {
    /// Those that an earlier gateway has counted.
    pub(in crate::terminal) fn restored(counted: CountedDenials) -> Self {
        Self(Mutex::new(counted))
    }

    /// Counts a report; what the terminal log is to have of it. `None`: it was counted before.
    pub(in crate::terminal) fn count(&self, report: u64, denial: ExecDenial) -> Option<TerminalExecDenied> {
        let mut counted = self.lock();
        if report <= counted.last_report {
            return None;
        }
        counted.last_report = report;
        let mut entry = TerminalExecDenied { report, ..TerminalExecDenied::default() };
        if counted.first.len() < DENIALS_MAX {
            entry.denial = denial.encode_to_vec().into();
            counted.first.push(denial);
        } else {
            counted.omitted += 1;
        }
        entry.omitted = counted.omitted;
        Some(entry)
    }

    /// Puts them into the outcome.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        let counted = self.lock();
        outcome.exec_denials.clone_from(&counted.first);
        outcome.exec_denials_omitted = counted.omitted;
    }

    fn lock(&self) -> MutexGuard<'_, CountedDenials> {
        self.0.lock().expect("no code panics while it holds refused execs")
    }
}

impl CountedDenials {
    /// Takes in an entry of a terminal log, in the order in which it was written.
    pub(in crate::terminal) fn replay(&mut self, entry: &TerminalExecDenied) {
        self.last_report = self.last_report.max(entry.report);
        self.omitted = self.omitted.max(entry.omitted);
        // What is in the log has a checksum: it is what a gateway wrote.
        if !entry.denial.is_empty()
            && self.first.len() < DENIALS_MAX
            && let Ok(denial) = ExecDenial::decode(&entry.denial[..])
        {
            self.first.push(denial);
        }
    }

    /// The entries from which the same is read again.
    pub(in crate::terminal) fn entries(&self, terminal_id: &str) -> Vec<TerminalExecDenied> {
        let denials = self.first.iter().map(|denial| denial.encode_to_vec().into());
        let count_only = self.first.is_empty() && self.last_report > 0;
        let denials = denials.chain(count_only.then(Default::default));
        denials
            .map(|denial| TerminalExecDenied {
                terminal_id: terminal_id.to_owned(),
                report: self.last_report,
                denial,
                omitted: self.omitted,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_is_counted_once_also_by_the_next_gateway() {
        let denials = ExecDenials::default();
        let mut log = CountedDenials::default();
        for report in (1..=100).flat_map(|report| [report, report]) {
            let denial = ExecDenial { program: report.to_string(), ..ExecDenial::default() };
            if let Some(entry) = denials.count(report, denial) {
                log.replay(&entry);
            }
        }
        let mut rewritten = CountedDenials::default();
        log.entries("term_1").iter().for_each(|entry| rewritten.replay(entry));
        for counted in [log, rewritten] {
            let restored = ExecDenials::restored(counted);
            assert!(restored.count(100, ExecDenial::default()).is_none());
            let mut outcome = Outcome::default();
            restored.report(&mut outcome);
            let programs: Vec<_> = outcome.exec_denials.iter().map(|one| one.program.clone()).collect();
            assert_eq!(programs, (1..=64).map(|n| n.to_string()).collect::<Vec<_>>());
            assert_eq!(outcome.exec_denials_omitted, 36);
        }
    }
}
