//! A rule's own examples: a rule that does not hold on them is not accepted.
//!
//! Checked without a host: every name is a file of its own.

use std::cell::Cell;

use super::{
    evaluate_rules,
    pattern::{Match, WordSource},
    program,
    rule::{RequestContext, Rule, RuleError, RuleSource},
    shell::Dialect,
    verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, Unseen},
};

/// The most words of a rule times bytes of its examples, of all rules of a policy together.
pub const WORK_MAX: usize = 400_000_000;

/// How much of the examples of one policy may still be tried.
#[derive(Debug)]
pub struct ExampleBudget(Cell<usize>);

impl Default for ExampleBudget {
    fn default() -> Self {
        Self(Cell::new(WORK_MAX))
    }
}

impl ExampleBudget {
    fn take(&self, source: &RuleSource) -> Result<(), RuleError> {
        let alternatives = |word: &WordSource| match word {
            WordSource::OneOf(texts) => texts.len().max(1),
            WordSource::Text(_) | WordSource::Regex(_) => 1,
        };
        let words = source.argv.iter().map(alternatives).sum::<usize>()
            + source.flags.len()
            + source.skip.flags.len()
            + source.skip.with_value.len();
        let bytes: usize = source.matches.iter().chain(&source.rejects).map(String::len).sum();
        let left = self
            .0
            .get()
            .checked_sub(words.saturating_mul(bytes))
            .ok_or(RuleError::Examples { work_max: WORK_MAX })?;
        self.0.set(left);
        Ok(())
    }
}

/// Checks a rule against its own examples, without a host.
pub fn check(source: &RuleSource, rule: &Rule, left: &ExampleBudget) -> Result<(), RuleError> {
    left.take(source)?;
    let context = RequestContext {
        principal: example_of(&source.when.principal),
        labels: source.when.labels.iter().map(|(k, v)| (k.clone(), plain(v))).collect(),
        cwd: match source.when.cwd.first() {
            Some(cwd) => plain(cwd),
            None => "/workspace".into(),
        },
        relative_from: Vec::new(),
        env: source.when.env.iter().map(|(k, v)| (k.clone(), plain(v))).collect(),
        ..RequestContext::default()
    };
    let alone = [rule.counted_everywhere()];
    let catches = |line: &str| {
        let eval = EvalContext {
            rules: &alone,
            resolver: &program::NominalResolver,
            request: &context,
            own_profile: "workspace",
            lookup: Lookup::Trusted,
            unseen: Unseen::Asked,
            assignment_verdict: &|_, _| AssignmentVerdict::Allowed,
        };
        let verdict = evaluate_rules(CommandInput::ShellLine(line, Dialect::Posix), eval);
        verdict.units.iter().any(|unit| unit.matched.iter().any(|(_, answer)| *answer == Match::Yes))
    };
    if let Some(missed) = source.matches.iter().find(|line| !catches(line)) {
        return Err(RuleError::ExampleMissed(missed.clone()));
    }
    match source.rejects.iter().find(|line| catches(line)) {
        Some(caught) => Err(RuleError::ExampleCaught(caught.clone())),
        None => Ok(()),
    }
}

fn example_of(patterns: &[String]) -> String {
    patterns.first().map(|pattern| plain(pattern)).unwrap_or_default()
}

/// A text that a simple glob accepts.
fn plain(pattern: &str) -> String {
    pattern.replace('\\', "").replace(['*', '?'], "x")
}
