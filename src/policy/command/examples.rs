//! A rule's own examples: a rule that does not hold on them is not accepted.
//!
//! Checked without a host: every name is a file of its own.

use super::{
    evaluate_rules,
    pattern::Match,
    program,
    rule::{RequestContext, Rule, RuleError, RuleSource},
    shell::Dialect,
    verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, Unseen},
};

/// Checks a rule against its own examples, without a host.
pub fn check(source: &RuleSource, rule: &Rule) -> Result<(), RuleError> {
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
