//! Evaluates an exec: what the rules say about a program that a process of a running terminal executes.
//!
//! The exec gate asks, with the file that the kernel would execute and the arguments that it would be given. Nothing is unknown
//! here, so that nothing is guessed. What an exec consists of is found in [`units`]; the rules are those of requests.

mod units;

use std::collections::BTreeMap;

pub use super::command::rule::Decision as ExecDecision;
use super::{
    approved_command::{ApprovedCommand, ExecutedCommand},
    command::{
        answers::{Doubt, RuleAnswers},
        interpreter::Interpreter,
        program::{FileId, ProgramResolver, Resolved},
        rule::{CommandRole, Decision, RequestContext, Rule, RuleSubject, base_name, resolve_place},
        shell::LineCwd,
        verdict::{DecisionReason, Unit},
    },
    profile::ProfileName,
    set::PolicySet,
};

use units::{ExecUnit, Permission, units_of};

/// The reason for an exec that a rule asks about which gives it a profile.
const OTHER_PROFILE: &str = "the rule that asks runs it under another profile, and a process stays under its own: run it as a command of its own";

/// The reason for an exec that a rule about directories may deny.
const NOT_LOOKED_AT: &str = "the rule may be about its working directory, which may have been renamed: there are more directories than are looked at for when.cwd";

/// One exec of a process in a terminal's tree.
#[derive(Debug, Clone)]
pub struct ExecRequest<'a> {
    /// Who asked for the terminal.
    pub principal: &'a str,
    /// The labels of the terminal's session.
    pub labels: &'a BTreeMap<String, String>,
    /// The profile of the terminal.
    pub profile: &'a ProfileName,
    /// The working directory of the process; absolute.
    pub cwd: &'a str,
    /// Where the terminal's command began, and its session's roots; absolute.
    pub relative_from: &'a [String],
    /// The path as it was given, made absolute.
    pub path: &'a str,
    /// The argument vector. Bytes that are not UTF-8 are replaced.
    pub argv: &'a [String],
    /// The environment. Must be there where [`PolicySet::judges_environment_of_execs`]; without it nothing is approved.
    pub env: Option<&'a BTreeMap<String, String>>,
    /// Further values of variables that the environment has more than once.
    pub further_env: &'a BTreeMap<String, Vec<String>>,
    /// The file that the kernel would execute, or the script that it would have interpreted.
    pub file: FileId,
    /// What interprets a script: its interpreter first, then that one's.
    pub interpreters: &'a [Interpreter],
    /// The argument vector that the last of them gets: the kernel's own, with the script's name as the kernel has it
    /// ([`interpreted_argv`](super::command::interpreter::interpreted_argv)).
    pub final_argv: &'a [String],
    /// The rule, if there is one, by which the terminal's processes may execute what no rule matches.
    pub starts_any_rule: Option<&'a str>,
    /// What a person has approved of the terminal's request.
    pub approved: &'a [ApprovedCommand],
}

/// What the rules say about one exec.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ExecVerdict {
    /// What is to be done.
    pub decision: ExecDecision,
    /// The rule that decided. Absent: no rule matches, or none is needed.
    pub rule: Option<String>,
    /// The rule's own reason, or why there could be no decision.
    pub reason: Option<String>,
    /// The rule by which the terminal's processes may execute from now on what no rule matches, if this exec runs.
    pub starts_any: Option<String>,
    /// Rules in mode `observe`, and what they would have decided.
    pub observed: Vec<(String, ExecDecision)>,
    /// Whether the decision depends on the environment.
    pub env_was_read: bool,
    /// Whether it runs because of what a person has approved.
    pub was_approved: bool,
}

/// An exec that has been evaluated, with everything that led to the verdict.
#[derive(Debug)]
pub(super) struct EvaluatedExec {
    pub(super) verdict: ExecVerdict,
    /// What the exec consists of: the program first.
    pub(super) units: Vec<Unit>,
}

impl PolicySet {
    /// Evaluates an exec. deny beats ask beats allow. What no rule matches is denied, unless it needs no rule (a shell, a wrapper
    /// that does nothing by itself) or the terminal's processes may start anything.
    pub fn evaluate_exec(&self, request: &ExecRequest<'_>, resolver: &dyn ProgramResolver) -> ExecVerdict {
        self.evaluate_exec_units(request, resolver).verdict
    }

    /// Whether a rule that counts for execs depends on the environment.
    pub fn judges_environment_of_execs(&self) -> bool {
        self.rules().iter().any(|rule| rule.counts_for(CommandRole::Exec) && rule.reads_environment())
    }

    /// Whether a rule that counts for execs depends on the working directory.
    pub fn judges_directory_of_execs(&self) -> bool {
        self.rules().iter().any(|rule| rule.counts_for(CommandRole::Exec) && rule.reads_directory())
    }

    pub(super) fn evaluate_exec_units(
        &self,
        request: &ExecRequest<'_>,
        resolver: &dyn ProgramResolver,
    ) -> EvaluatedExec {
        let env = match (self.judges_environment_of_execs(), request.env) {
            (false, None) => BTreeMap::new(),
            (_, Some(env)) => env.clone(),
            (true, None) => return EvaluatedExec::without_environment(),
        };
        let context = RequestContext {
            principal: request.principal.to_owned(),
            labels: request.labels.clone(),
            cwd: request.cwd.to_owned(),
            relative_from: request.relative_from.to_vec(),
            env,
            further_env: request.further_env.clone(),
            known_directories: self.known_directories.all().1,
        };
        let mut evaluation = ExecEvaluation {
            policy: self,
            request,
            context,
            resolver,
            units: Vec::new(),
            was_approved: false,
            env_was_read: self.judges_environment_of_execs(),
            doubted_directory: false,
        };
        let mut starts_any: Option<String> = None;
        let mut observed = Vec::new();
        for unit in units_of(request, resolver) {
            let answers = evaluation.unit(&unit);
            let first = answers.starts_any.iter().chain(&starts_any).min().cloned();
            starts_any = first;
            observed.extend(answers.observed);
        }
        observed.sort();
        observed.dedup();
        let ExecEvaluation { units, was_approved, env_was_read, doubted_directory, .. } = evaluation;
        let decision = units.iter().map(|unit| unit.decision).max().unwrap_or(Decision::Deny);
        let cause = units.iter().find(|unit| unit.decision == decision).map(|unit| &unit.reason);
        let rule = match cause {
            Some(DecisionReason::Rule(id)) => Some(id.clone()),
            _ => None,
        };
        let decided = rule.as_ref().and_then(|id| self.rules().iter().find(|rule| rule.id == *id));
        let reason = match (decision, decided) {
            (Decision::Deny, Some(rule)) if rule.decision == Decision::Ask => Some(OTHER_PROFILE.to_owned()),
            (Decision::Ask, Some(rule)) if rule.decision == Decision::Deny && doubted_directory => {
                Some(NOT_LOOKED_AT.to_owned())
            }
            (_, rule) => rule.and_then(|rule| rule.reason.clone()),
        };
        let starts_any = starts_any.filter(|_| decision != Decision::Deny);
        let verdict =
            ExecVerdict { decision, rule, reason, starts_any, observed, env_was_read, was_approved };
        EvaluatedExec { verdict, units }
    }
}

impl EvaluatedExec {
    fn without_environment() -> Self {
        let verdict = ExecVerdict {
            decision: Decision::Deny,
            rule: None,
            reason: Some("rules depend on the environment, which could not be read".to_owned()),
            starts_any: None,
            observed: Vec::new(),
            env_was_read: true,
            was_approved: false,
        };
        Self { verdict, units: Vec::new() }
    }
}

/// What is kept of the answers to one part of an exec.
struct UnitAnswers {
    starts_any: Option<String>,
    observed: Vec<(String, Decision)>,
}

struct ExecEvaluation<'a> {
    policy: &'a PolicySet,
    request: &'a ExecRequest<'a>,
    context: RequestContext,
    resolver: &'a dyn ProgramResolver,
    units: Vec<Unit>,
    was_approved: bool,
    env_was_read: bool,
    /// Whether a rule may be about the directory, which nobody has looked at.
    doubted_directory: bool,
}

impl ExecEvaluation<'_> {
    fn unit(&mut self, unit: &ExecUnit) -> UnitAnswers {
        let place = LineCwd::Start;
        let subject = RuleSubject::of(&unit.words, &unit.file, unit.is_itself, &place, &self.context);
        let rules = self.policy.rules().iter().filter(|rule| {
            self.holds_under_profile(rule)
                && (unit.permission != Permission::OtherReading || rule.decision != Decision::Allow)
        });
        let answers = RuleAnswers::of(rules, &subject, CommandRole::Exec, self.resolver, Doubt::Counts);
        self.doubted_directory |= answers.possible_deny.is_some_and(Rule::reads_directory);
        let needs_none = unit.permission != Permission::Needed || self.request.starts_any_rule.is_some();
        let (decision, reason) = match (answers.strictest, answers.possible_deny) {
            (Some((Decision::Allow, _)), Some(doubt)) => {
                (Decision::Ask, DecisionReason::Rule(doubt.id.clone()))
            }
            (Some((decision, rule)), _) => (decision, DecisionReason::Rule(rule.id.clone())),
            (None, Some(doubt)) if needs_none => (Decision::Ask, DecisionReason::Rule(doubt.id.clone())),
            (None, _) if !needs_none => (Decision::Deny, DecisionReason::Default),
            (None, _) => match (unit.permission, self.request.starts_any_rule) {
                (Permission::Needed, Some(rule)) => {
                    (Decision::Allow, DecisionReason::Started(rule.to_owned()))
                }
                _ => (Decision::Allow, DecisionReason::Transparent),
            },
        };
        let decision = match (decision, &reason) {
            (Decision::Ask, DecisionReason::Rule(rule)) if self.is_approved(rule, unit) => {
                self.was_approved = true;
                Decision::Allow
            }
            // A yes could not bring the process under the rule's profile.
            (Decision::Ask, DecisionReason::Rule(rule)) if !self.is_under_profile_of(rule) => Decision::Deny,
            (decision, _) => decision,
        };
        let starts_any = answers.starts_any.map(str::to_owned);
        self.units.push(Unit {
            words: unit.words.clone(),
            file: unit.file.clone(),
            place,
            within: unit.within.clone(),
            decision,
            reason,
            matched: answers.matched,
        });
        UnitAnswers { starts_any, observed: answers.observed }
    }

    fn is_approved(&mut self, rule: &str, unit: &ExecUnit) -> bool {
        if self.request.approved.is_empty() {
            return false;
        }
        self.env_was_read = true;
        let directory = self.resolver.directories(self.request.cwd);
        let executed = ExecutedCommand {
            words: &unit.words,
            file: &unit.file,
            is_itself: unit.is_itself,
            directory: directory.and_then(|found| found.first().map(|directory| directory.id)),
            context: &self.context,
        };
        self.request.approved.iter().any(|approved| approved.covers(rule, executed))
    }

    /// A rule that lets something run under another profile allows nothing here: the process stays under its own.
    fn holds_under_profile(&self, rule: &Rule) -> bool {
        rule.decision != Decision::Allow || selects(rule, self.request.profile)
    }

    fn is_under_profile_of(&self, id: &str) -> bool {
        self.policy
            .rules()
            .iter()
            .filter(|rule| rule.id == *id)
            .all(|rule| selects(rule, self.request.profile))
    }
}

/// Whether what a rule lets run is under this profile: it names it, or none.
fn selects(rule: &Rule, profile: &ProfileName) -> bool {
    rule.effects.profile.as_deref().is_none_or(|selected| selected == profile.as_str())
}

/// The absolute path by which a program is executed that is named by a path, or by a bare name and then found at its file.
pub fn executed_path(given: &str, file: &FileId, cwd: &str) -> String {
    match (given.starts_with('/'), given.contains('/')) {
        (true, _) => given.to_owned(),
        (false, true) => {
            resolve_place(cwd, &LineCwd::After(given.to_owned())).unwrap_or_else(|| given.to_owned())
        }
        (false, false) if base_name(&file.lookup_path) == given => file.lookup_path.clone(),
        (false, false) => file.path.clone(),
    }
}

/// The file that is executed, as the evaluation knows files.
fn resolved(file: &FileId) -> Resolved {
    Resolved::File(file.clone())
}

#[cfg(test)]
mod tests;
