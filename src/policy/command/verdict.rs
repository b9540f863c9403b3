//! The verdict of all rules on one request.
//!
//! Everything that the request would run, as far as it can be seen, is evaluated by itself; the strictest wins.
//! The order of rules and files means nothing: deny beats ask beats allow beats the default, which is deny.

pub use super::effects::EffectsConflict;
use super::{
    pattern::Match,
    program::{ProgramResolver, Resolved},
    rule::{Decision, Effects, RequestContext, Rule},
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

#[cfg(test)]
mod tests;
