//! Runs the cases, one after the other, each in a session of its own, against a backend command.

use std::{ffi::OsString, time::Duration};

use tokio::time::Instant;

use super::{
    backend::{Backend, BackendError, Launch},
    case::{Case, Fault, Needs},
    cases,
    editing::Editor,
    report::{Outcome, Report, Verdict},
    stage::Stage,
};

/// How long an answer may take, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);
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

    /// Of a list such as `TC-001,TC-010`; commas or spaces stand between the names.
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
    patience: Duration,
    mut tell: impl FnMut(&Verdict),
) -> Result<Report, BackendError> {
    let launch = Launch { command, patience };
    let longest = PATIENCE.max(patience) * CASE_ANSWERS;
    let mut backend = launch.start(Editor::Plain).await?;
    let mut report = Report::default();
    for case in selection.cases() {
        if !backend.is_usable() {
            backend.close().await;
            backend = launch.start(Editor::Plain).await?;
        }
        let begun = Instant::now();
        let outcome = match tokio::time::timeout(longest, in_a_prompt(&backend, &launch, case)).await {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(fault)) => Outcome::Failed(fault.to_string()),
            Err(_) => Outcome::Failed(format!("the case took longer than {longest:?}")),
        };
        let verdict = Verdict { case, outcome, took: begun.elapsed() };
        tell(&verdict);
        report.verdicts.push(verdict);
    }
    backend.close().await;
    Ok(report)
}

/// As a real agent works: in a session, while the editor waits for its prompt's end.
async fn in_a_prompt(backend: &Backend, launch: &Launch, case: &Case) -> Result<(), Fault> {
    let stage = Stage::open(backend, launch).await?;
    let prompt = stage.begin_prompt().await?;
    let result = (case.steps)(stage.clone()).await;
    stage.leave().await;
    result?;
    if backend.is_usable() { prompt.end(&stage).await } else { Ok(()) }
}

/// Runs cases in a session of an editor that is not the suite's.
pub(super) async fn run_in(
    stage: impl Fn() -> Stage,
    selection: &Selection,
    goes_on: impl Fn() -> bool,
    mut tell: impl AsyncFnMut(&Verdict),
) -> Report {
    let mut report = Report::default();
    for case in selection.cases() {
        let begun = Instant::now();
        let outcome = if case.needs == Needs::BothSides {
            Outcome::Skipped("needs the editor's side".to_owned())
        } else if !goes_on() {
            Outcome::Skipped("cancelled".to_owned())
        } else {
            let stage = stage();
            let longest = PATIENCE * CASE_ANSWERS;
            let result = tokio::time::timeout(longest, (case.steps)(stage.clone())).await;
            stage.leave().await;
            match result {
                Ok(Ok(())) => Outcome::Passed,
                Ok(Err(fault)) => Outcome::Failed(fault.to_string()),
                Err(_) => Outcome::Failed(format!("the case took longer than {longest:?}")),
            }
        };
        let verdict = Verdict { case, outcome, took: begun.elapsed() };
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
