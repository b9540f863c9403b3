//! What came of the cases: for people as lines, for programs as one JSON object.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::case::{Case, Level};

/// What came of one case.
#[derive(Debug)]
pub struct CaseResult {
    /// The case.
    pub case: &'static Case,
    pub(super) outcome: CaseOutcome,
    /// How long it took.
    pub took: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CaseOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl CaseResult {
    /// Whether the rule was seen broken.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, CaseOutcome::Failed(_))
    }

    fn word(&self) -> &'static str {
        match self.outcome {
            CaseOutcome::Passed => "pass",
            CaseOutcome::Failed(_) => "FAIL",
            CaseOutcome::Skipped(_) => "skip",
        }
    }

    fn detail(&self) -> Option<&str> {
        match &self.outcome {
            CaseOutcome::Passed => None,
            CaseOutcome::Failed(detail) | CaseOutcome::Skipped(detail) => Some(detail),
        }
    }
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.case.level.word();
        write!(f, "{} {} {level:6} {}", self.case.id(), self.word(), self.case.rule)?;
        match self.detail() {
            Some(detail) if self.has_failed() => {
                write!(f, "\n       {detail}\n       rule: {}", self.case.source)
            }
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

/// What came of all of them.
#[derive(Debug, Default)]
pub struct ConformanceReport {
    /// In the order of the numbers.
    pub verdicts: Vec<CaseResult>,
}

impl ConformanceReport {
    /// Whether no rule that binds was seen broken.
    pub fn conforms(&self) -> bool {
        self.failed(Level::Must) == 0
    }

    /// How many cases of a level failed.
    pub fn failed(&self, level: Level) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.case.level == level && verdict.has_failed()).count()
    }

    fn counted(&self, word: &str) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.word() == word).count()
    }

    /// The whole report.
    pub fn to_json(&self) -> Value {
        let cases: Vec<Value> = self
            .verdicts
            .iter()
            .map(|verdict| {
                json!({
                    "id": verdict.case.id(),
                    "level": verdict.case.level.word(),
                    "rule": verdict.case.rule,
                    "source": verdict.case.source,
                    "outcome": verdict.word().to_ascii_lowercase(),
                    "detail": verdict.detail(),
                    "took_ms": u64::try_from(verdict.took.as_millis()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        json!({
            "conforms": self.conforms(),
            "passed": self.counted("pass"),
            "failed_must": self.failed(Level::Must),
            "failed_should": self.failed(Level::Should),
            "skipped": self.counted("skip"),
            "cases": cases,
        })
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} MUST failed, {} SHOULD failed, {} skipped: {}",
            self.counted("pass"),
            self.failed(Level::Must),
            self.failed(Level::Should),
            self.counted("skip"),
            if self.conforms() { "conforms" } else { "does not conform" }
        )
    }
}
