//! Explains a decision in full: as text for people, and as JSON for programs.
//!
//! Copies what an evaluation has found; it decides nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    command::{
        pattern::Match,
        program::{ProgramResolver, Resolved},
        rule::Decision,
        shell,
        verdict::{DecisionReason, Unit},
    },
    denial::Denial,
    evaluate::{Evaluated, Evaluation},
    exec_gate::{EvaluatedUnits, ExecRequest},
    profile::ProfileName,
    set::PolicySet,
};
use crate::byte_text;

/// Stands for a secret.
const HIDDEN: &str = "***";

/// One decision, with everything that led to it.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// "allow", "ask" or "deny".
    pub decision: String,
    /// The rule that made it, if one did.
    pub rule: Option<String>,
    /// One sentence.
    pub because: String,
    /// The policy's generation.
    pub generation: u64,
    /// The policy's digest.
    pub policy: String,
    /// Every command that the request would run, as far as it can be seen.
    pub commands: Vec<CommandExplanation>,
    /// What rules in mode `observe` would have decided.
    pub observed: Vec<ObservedRule>,
    /// What would run, unless it is denied.
    pub run: Option<PlannedRun>,
}

/// One command of the request.
#[derive(Debug, Serialize)]
pub struct CommandExplanation {
    /// Its normal form: quoting undone where it says nothing.
    pub normal_form: String,
    /// Wrappers and shells around it, outermost first.
    pub within: Vec<String>,
    /// The file that its name means, all links followed.
    pub file: Option<String>,
    /// What was decided about it.
    pub decision: String,
    /// Why that was decided, in one sentence.
    pub because: String,
    /// Every rule that matches it.
    pub matched: Vec<MatchedRule>,
}

/// A rule that matches a command.
#[derive(Debug, Serialize)]
pub struct MatchedRule {
    /// The rule.
    pub rule: String,
    /// What it decides.
    pub decision: String,
    /// Whether it surely matches; otherwise it depends on what cannot be seen.
    pub surely: bool,
    /// Where it stands: file and line.
    pub place: Option<String>,
}

/// What a rule in mode `observe` would have decided.
#[derive(Debug, Serialize)]
pub struct ObservedRule {
    /// The rule.
    pub rule: String,
    /// What it would have decided.
    pub decision: String,
}

/// How the command would run.
#[derive(Debug, Serialize)]
pub struct PlannedRun {
    /// The profile.
    pub profile: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The file that would be executed.
    pub file: Option<String>,
    /// The working directory.
    pub cwd: String,
    /// The network.
    pub network: String,
    /// The whole environment. The values of secrets are not in it.
    pub environment: BTreeMap<String, String>,
    /// Milliseconds.
    pub time_limit_ms: Option<u64>,
    /// Milliseconds.
    pub idle_limit_ms: Option<u64>,
}

impl Explanation {
    /// Explains an evaluation.
    pub fn new(evaluation: &Evaluation<'_>) -> Self {
        let policy = evaluation.policy;
        let (verdict, spec) = match &evaluation.result {
            Ok(Evaluated { verdict, spec, .. }) => (verdict, spec),
            Err(denial) => return Self::denied(policy, denial),
        };
        let profile_name = spec.profile_name();
        let text = |bytes: &bytes::Bytes| byte_text::shown(&byte_text::from_bytes(bytes)).into_owned();
        let millis =
            |time: Option<std::time::Duration>| time.and_then(|time| u64::try_from(time.as_millis()).ok());
        let environment = spec.env().iter().filter_map(|entry| {
            let entry = text(entry);
            entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        // Nobody reads the values for an explanation.
        let secrets = spec.secrets().iter().map(|secret| (secret.name.clone(), HIDDEN.to_owned()));
        Self {
            decision: verdict.decision.to_string(),
            rule: verdict.cause_rule.clone(),
            because: verdict.cause().map_or_else(
                || "there is nothing to run".to_owned(),
                |unit| decision_sentence(policy, profile_name, unit),
            ),
            generation: policy.generation(),
            policy: policy.digest().to_string(),
            commands: verdict.units.iter().map(|unit| explain_command(policy, profile_name, unit)).collect(),
            observed: observed_rules(&verdict.observed),
            run: (verdict.decision != Decision::Deny).then(|| PlannedRun {
                profile: profile_name.to_string(),
                argv: spec.argv().iter().map(text).collect(),
                file: spec.resolved_file().map(|file| file.path.clone()),
                cwd: spec.cwd().shown(),
                network: format!("{:?}", spec.network()).to_lowercase(),
                environment: environment.chain(secrets).collect(),
                time_limit_ms: millis(spec.time_limit()),
                idle_limit_ms: millis(spec.idle_limit()),
            }),
        }
    }

    /// Explains what would be decided about an exec.
    pub fn of_exec(policy: &PolicySet, request: &ExecRequest<'_>, resolver: &dyn ProgramResolver) -> Self {
        let EvaluatedUnits { verdict, units } = policy.evaluate_exec_units(request, resolver);
        let cause = units.iter().find(|unit| unit.decision == verdict.decision);
        let because = match (cause, &verdict.reason) {
            (Some(unit), _) => decision_sentence(policy, request.profile, unit),
            (None, reason) => reason.clone().unwrap_or_default(),
        };
        Self {
            decision: verdict.decision.to_string(),
            rule: verdict.rule,
            because,
            generation: policy.generation(),
            policy: policy.digest().to_string(),
            commands: units.iter().map(|unit| explain_command(policy, request.profile, unit)).collect(),
            observed: observed_rules(&verdict.observed),
            run: None,
        }
    }

    fn denied(policy: &PolicySet, denial: &Denial) -> Self {
        Self {
            decision: Decision::Deny.to_string(),
            rule: Some(denial.rule()),
            because: denial.to_string(),
            generation: policy.generation(),
            policy: policy.digest().to_string(),
            commands: Vec::new(),
            observed: Vec::new(),
            run: None,
        }
    }
}

fn observed_rules(observed: &[(String, Decision)]) -> Vec<ObservedRule> {
    let show = |(rule, decision): &(String, Decision)| ObservedRule {
        rule: rule.clone(),
        decision: decision.to_string(),
    };
    observed.iter().map(show).collect()
}

fn explain_command(policy: &PolicySet, profile: &ProfileName, unit: &Unit) -> CommandExplanation {
    let matched = unit.matched.iter().map(|(id, answer)| MatchedRule {
        rule: id.clone(),
        decision: policy
            .rules()
            .iter()
            .find(|rule| rule.id == *id)
            .map_or_else(String::new, |rule| rule.decision.to_string()),
        surely: *answer == Match::Yes,
        place: rule_location(policy, id),
    });
    CommandExplanation {
        normal_form: shell::print(&unit.words),
        within: unit.within.clone(),
        file: unit.file.path().map(str::to_owned),
        decision: unit.decision.to_string(),
        because: decision_sentence(policy, profile, unit),
        matched: matched.collect(),
    }
}

fn rule_location(policy: &PolicySet, rule: &str) -> Option<String> {
    policy.rule_location(rule).map(|origin| format!("{}:{}", origin.file, origin.line))
}

fn decision_sentence(policy: &PolicySet, profile: &ProfileName, unit: &Unit) -> String {
    match &unit.reason {
        DecisionReason::Rule(id) => {
            let at = rule_location(policy, id).map(|place| format!(" ({place})")).unwrap_or_default();
            let reason =
                policy.rules().iter().find(|rule| rule.id == *id).and_then(|rule| rule.reason.clone());
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            match unit.words.first() {
                Some(shell::Word::Opaque { reason: hidden, .. }) => {
                    format!("{hidden}: it cannot be seen, and rule {id:?}{at} may be about it{reason}")
                }
                _ => format!("rule {id:?}{at}{reason}"),
            }
        }
        DecisionReason::Default if unit.file == Resolved::Missing => {
            "no rule allows it, and there is no such program in the sandbox".to_owned()
        }
        DecisionReason::Default => "no rule allows it".to_owned(),
        DecisionReason::Transparent => {
            "it runs nothing except commands that are decided on separately".to_owned()
        }
        DecisionReason::Interprets => {
            "it interprets a script, and what allows the script allows it".to_owned()
        }
        DecisionReason::Opaque(reason) => format!("{reason}: it cannot be seen before it runs"),
        DecisionReason::AtExec(reason) => format!("{reason}: it is evaluated when it is executed"),
        DecisionReason::Started(rule) => {
            format!("no rule matches it, and rule {rule:?} lets what it allows start anything")
        }
        DecisionReason::Variable(name) => {
            format!("profile {:?} denies the variable {name:?}", profile.as_str())
        }
        DecisionReason::Conflict(conflict) => conflict.to_string(),
    }
}
