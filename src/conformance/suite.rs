//! Runs the cases, one after the other, each in a session of its own, against a backend command.

use std::{ffi::OsString, time::Duration};

use tokio::time::Instant;

use super::{
    backend::{Backend, BackendError, BackendLauncher},
    case::{Case, Needs},
    cases,
    context::TestContext,
    fault::Fault,
    report::{CaseOutcome, CaseResult, ConformanceReport},
    roles::EditorKind,
};

/// How long an answer may take, unless the caller sets another limit.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest that a case may take altogether, in answers that each take as long as they may.
const CASE_ANSWERS: u32 = 6;

/// All cases, by their numbers.
pub fn all_cases() -> Vec<&'static Case> {
    let mut all: Vec<&Case> = cases::LISTS.iter().flat_map(|list| list.iter()).collect();
    all.sort_by_key(|case| case.number);
    all
}

/// Which cases are to run.
#[derive(Debug, Clone, Default)]
pub struct Selection(Vec<u16>);

/// A selection that names what is no case.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no case: they are named TC-001 and so on, and `--list` shows them")]
pub struct SelectionError(String);

impl Selection {
    /// Every case.
    pub fn all() -> Self {
        Self::default()
    }

    /// Parses a list such as `TC-001,TC-010`; commas or spaces stand between the names.
    pub fn parse(text: &str) -> Result<Self, SelectionError> {
        let words = text.split([',', ' ', '\n']).filter(|word| !word.is_empty());
        let numbers = words.map(|word| {
            let number = word.to_ascii_uppercase().strip_prefix("TC-").and_then(|digits| digits.parse().ok());
            let known = number.filter(|number| all_cases().iter().any(|case| case.number == *number));
            known.ok_or_else(|| SelectionError(word.to_owned()))
        });
        numbers.collect::<Result<_, _>>().map(Self)
    }

    /// The cases, in the order of their numbers.
    pub fn cases(&self) -> Vec<&'static Case> {
        let mut cases = all_cases();
        cases.retain(|case| self.0.is_empty() || self.0.contains(&case.number));
        cases
    }
}

/// Runs cases against a backend, which is started for them, and tells each verdict as it comes.
pub async fn run_against(
    command: Vec<OsString>,
    selection: &Selection,
    answer_timeout: Duration,
    mut tell: impl FnMut(&CaseResult),
) -> Result<ConformanceReport, BackendError> {
    let launch = BackendLauncher { command, answer_timeout };
    let longest = ANSWER_TIMEOUT.max(answer_timeout) * CASE_ANSWERS;
    let mut backend = launch.start(EditorKind::Plain).await?;
    let mut report = ConformanceReport::default();
    for case in selection.cases() {
        if !backend.is_usable() {
            backend.close().await;
            backend = launch.start(EditorKind::Plain).await?;
        }
        let begun = Instant::now();
        let outcome = match tokio::time::timeout(longest, run_in_prompt(&backend, &launch, case)).await {
            Ok(Ok(())) => CaseOutcome::Passed,
            Ok(Err(fault)) => CaseOutcome::Failed(fault.to_string()),
            Err(_) => CaseOutcome::Failed(format!("the case took longer than {longest:?}")),
        };
        let verdict = CaseResult { case, outcome, took: begun.elapsed() };
        tell(&verdict);
        report.verdicts.push(verdict);
    }
    backend.close().await;
    Ok(report)
}

/// As a real agent works: in a session, while the editor waits for its prompt's end.
async fn run_in_prompt(backend: &Backend, launch: &BackendLauncher, case: &Case) -> Result<(), Fault> {
    let stage = TestContext::open(backend, launch).await?;
    let prompt = stage.begin_prompt().await?;
    let result = (case.steps)(stage.clone()).await;
    stage.cleanup().await;
    result?;
    if backend.is_usable() { prompt.end(&stage).await } else { Ok(()) }
}

/// Runs cases in a session of an editor that is not the suite's.
pub(super) async fn run_in(
    stage: impl Fn() -> TestContext,
    selection: &Selection,
    should_continue: impl Fn() -> bool,
    mut tell: impl AsyncFnMut(&CaseResult),
) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    for case in selection.cases() {
        let begun = Instant::now();
        let outcome = if case.needs == Needs::BothSides {
            CaseOutcome::Skipped("needs the editor's side".to_owned())
        } else if !should_continue() {
            CaseOutcome::Skipped("cancelled".to_owned())
        } else {
            let stage = stage();
            let longest = ANSWER_TIMEOUT * CASE_ANSWERS;
            let result = tokio::time::timeout(longest, (case.steps)(stage.clone())).await;
            stage.cleanup().await;
            match result {
                Ok(Ok(())) => CaseOutcome::Passed,
                Ok(Err(fault)) => CaseOutcome::Failed(fault.to_string()),
                Err(_) => CaseOutcome::Failed(format!("the case took longer than {longest:?}")),
            }
        };
        let verdict = CaseResult { case, outcome, took: begun.elapsed() };
        tell(&verdict).await;
        report.verdicts.push(verdict);
    }
    report
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_is_given_once_and_rules_are_sentences() {
        let mut numbers = BTreeSet::new();
        for case in all_cases() {
            assert!(numbers.insert(case.number), "{case:?} has a number that was given before");
            assert!(!case.rule.is_empty() && !case.rule.ends_with('.'), "{case:?}");
            assert!(!case.source.is_empty(), "{case:?} names no source");
        }
        assert!(numbers.len() >= 60, "there are {} cases", numbers.len());
    }

    #[test]
    fn a_selection_names_cases_that_exist() {
        assert_eq!(Selection::parse("TC-001, tc-002").map(|s| s.cases().len()).ok(), Some(2));
        assert!(Selection::parse("TC-999").is_err());
        assert!(Selection::parse("1").is_err());
        assert_eq!(Selection::all().cases().len(), all_cases().len());
    }
}
