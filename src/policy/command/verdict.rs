//! The verdict of all rules on one request, and what they say about one command: those that match it, and the one that decides.
//!
//! Everything that the request would run, as far as it can be seen, is evaluated by itself; the strictest wins. The order of rules and
//! files means nothing: deny beats ask beats allow beats the default, which is deny.
//!
//! The answers about one command are shared by the evaluation of requests and by that of execs. What becomes of a command that no rule
//! matches is decided there.

pub(crate) use super::effects::EffectsConflict;
use super::{
    pattern::Match,
    program::{ProgramResolver, Resolved},
    rule::{CommandRole, Decision, Effects, RequestContext, Rule, RuleMode, RuleSubject, Starts},
    shell::{Dialect, LineCwd, OpaqueReason, Word},
};

/// Wrappers within wrappers, or lines within lines, that are followed. Deeper is opaque.
pub const MAX_NESTING: usize = 12;

/// Commands that are evaluated for one request. More is opaque.
pub const MAX_UNITS: usize = 512;

/// What is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandInput<'a> {
    /// An argument vector.
    Argv(&'a [String]),
    /// The commands of a line, whatever shell reads it: no request, but what a rule's examples are about.
    ShellLine(&'a str, Dialect),
    /// A request of a line: what is executed is the profile's shell, which reads it.
    ProfileShell {
        /// The shell.
        shell: &'a str,
        /// The line.
        line: &'a str,
    },
}

/// Why a unit got its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionReason {
    /// This rule decided.
    Rule(String),
    /// No rule matched.
    Default,
    /// It runs nothing by itself that is not evaluated elsewhere: a builtin of the shell, a wrapper whose inner
    /// command is a unit of its own, a function of the line.
    Transparent,
    /// It interprets a script, which is a unit of its own: a rule that allows the script allows it.
    Interprets,
    /// Something about it can't be known before it runs.
    Opaque(OpaqueReason),
    /// The same, and the gate evaluates it when it is executed.
    AtExec(OpaqueReason),
    /// No rule matches it, and this rule lets processes of its terminal start anything.
    Started(String),
    /// A variable that the profile denies is set for it.
    Variable(String),
    /// The effects of rules cannot be put together.
    Conflict(EffectsConflict),
}

/// One command of the request, evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its words, as far as they are known.
    pub words: Vec<Word>,
    /// The file that it runs.
    pub file: Resolved,
    /// Where it runs.
    pub place: LineCwd,
    /// The wrappers and shells around it, outermost first.
    pub within: Vec<String>,
    /// What was decided.
    pub decision: Decision,
    /// Why.
    pub reason: DecisionReason,
    /// Every rule that matches, surely or perhaps, by id.
    pub matched: Vec<(String, Match)>,
}

/// The verdict on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct RuleVerdict {
    /// The strictest of all units'.
    pub decision: Decision,
    /// Every unit, in the order in which it stands. The first with the verdict's decision is its cause.
    pub units: Vec<Unit>,
    /// The rule that made the decision.
    pub cause_rule: Option<String>,
    /// What the rules that allow or ask change.
    pub effects: Effects,
    /// The rule, if there is one, by which processes of the terminal may execute what no rule matches.
    pub starts_any: Option<String>,
    /// Rules that only watch, and would have decided this way.
    pub observed: Vec<(String, Decision)>,
}

impl RuleVerdict {
    /// The unit that made the decision: rather a command that a rule is about than the wrapper or shell around it.
    pub fn cause(&self) -> Option<&Unit> {
        cause_of(&self.units, self.decision)
    }
}

/// See [`RuleVerdict::cause`].
pub(super) fn cause_of(units: &[Unit], decision: Decision) -> Option<&Unit> {
    let mut deciding = units.iter().filter(|unit| unit.decision == decision);
    let first = deciding.clone().next();
    deciding.find(|unit| unit.reason != DecisionReason::Transparent).or(first)
}

/// What becomes of a line that sets a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentVerdict {
    /// Nothing.
    Allowed,
    /// It may change what programs mean: the line is evaluated as any command whatever.
    Guarded,
    /// It loads code into programs: as [`Self::Guarded`] where any command is allowed, and otherwise as [`Self::Denied`].
    Loads,
    /// The line is refused.
    Denied,
}

/// What names mean at one point of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// What the trusted path says.
    Trusted,
    /// Something else, perhaps: a variable was set that changes it.
    Changed,
}

/// What becomes of commands that cannot be seen before they are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unseen {
    /// They are evaluated as any command: asked about, mostly.
    Asked,
    /// Nothing: a gate evaluates them when they are executed.
    JudgedAtExec,
}

/// What an evaluation depends on.
#[derive(Clone, Copy)]
pub struct EvalContext<'a> {
    /// The rules.
    pub rules: &'a [Rule],
    /// The files.
    pub resolver: &'a dyn ProgramResolver,
    /// Who, where, in what.
    pub request: &'a RequestContext,
    /// The profile of commands that no rule gives one.
    pub own_profile: &'a str,
    /// What names mean in the environment that the command will have, before it changes anything in it.
    pub lookup: Lookup,
    /// What becomes of commands that cannot be seen.
    pub unseen: Unseen,
    /// What becomes of a line that sets a variable of this name, to this value where that is known.
    pub assignment_verdict: &'a dyn Fn(&str, Option<&str>) -> AssignmentVerdict,
}

impl std::fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalContext").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

/// What a rule means that matches only perhaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It allows nothing, and asks where it would deny.
    Counts,
    /// Nothing: the command is evaluated again when it is executed, and then there is no doubt.
    Waits,
}

/// The answers of all rules to one command.
#[derive(Debug, Default)]
pub struct RuleAnswers<'r> {
    /// Every rule that matches, surely or perhaps, by id.
    pub matched: Vec<(String, Match)>,
    /// Rules that only watch, and what they would have decided.
    pub observed: Vec<(String, Decision)>,
    /// The strictest decision, and the first rule by id that made it.
    pub strictest: Option<(Decision, &'r Rule)>,
    /// The first rule by id that denies, if it matches.
    pub possible_deny: Option<&'r Rule>,
    /// Rules that surely match, and allow or ask: their effects count. What only perhaps matches gives nothing.
    pub effective: Vec<&'r Rule>,
    /// Whether a rule perhaps allows.
    pub may_be_allowed: bool,
    /// The first rule by id that lets the command run, perhaps after a question, and start anything.
    pub starts_any: Option<&'r str>,
}

impl<'r> RuleAnswers<'r> {
    /// Asks the rules that count for a command in this role.
    pub fn of(
        rules: impl Iterator<Item = &'r Rule>,
        subject: &RuleSubject<'_>,
        role: CommandRole,
        resolver: &dyn ProgramResolver,
        doubt: Doubt,
    ) -> Self {
        let mut answers = Self::default();
        for rule in rules.filter(|rule| rule.counts_for(role)) {
            let answer = rule.matches(subject, resolver);
            if answer != Match::No {
                answers.matched.push((rule.id.clone(), answer));
                answers.add(rule, answer, doubt);
            }
        }
        answers.matched.sort_unstable();
        answers
    }

    fn add(&mut self, rule: &'r Rule, answer: Match, doubt: Doubt) {
        let decision = match (rule.decision, answer, doubt) {
            (Decision::Allow, Match::Yes, _) => Decision::Allow,
            (Decision::Allow, _, _) => {
                self.may_be_allowed |= rule.mode == RuleMode::Enforce;
                return;
            }
            (_, Match::Perhaps, Doubt::Waits) => return,
            (Decision::Deny, Match::Perhaps, Doubt::Counts) => Decision::Ask,
            (decision, _, _) => decision,
        };
        if rule.mode == RuleMode::Observe {
            self.observed.push((rule.id.clone(), decision));
            return;
        }
        // It asks about nothing that would be denied without it.
        if rule.decision == Decision::Deny && answer == Match::Perhaps {
            self.possible_deny = self.possible_deny.filter(|other| other.id < rule.id).or(Some(rule));
            return;
        }
        if answer == Match::Yes && decision != Decision::Deny {
            self.effective.push(rule);
        }
        if rule.starts == Some(Starts::Any) {
            self.starts_any = self.starts_any.filter(|other| *other < rule.id.as_str()).or(Some(&rule.id));
        }
        let wins = self
            .strictest
            .is_none_or(|(so_far, by)| decision > so_far || (decision == so_far && rule.id < by.id));
        if wins {
            self.strictest = Some((decision, rule));
        }
    }
}

#[cfg(test)]
mod tests;
