//! The judge: one request, all rules, one verdict.
//!
//! Everything that the request would run, as far as it can be seen, is judged by itself; the strictest wins.
//! The order of rules and files means nothing: deny beats ask beats allow beats the default, which is deny.

use super::{
    hearing::Hearing,
    pattern::Match,
    program::{Found, Programs},
    rule::{Circumstances, Decision, Effects, Rule},
    shell::{Dialect, OpaqueReason, Word},
};

/// Wrappers within wrappers, or lines within lines, that are followed. Deeper is opaque.
pub const DEEPEST: usize = 12;

/// Commands that are judged for one request. More is opaque.
pub const MOST_UNITS: usize = 512;

/// What is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// An argument vector.
    Argv(&'a [String]),
    /// A line for a shell.
    Line(&'a str, Dialect),
}

/// Why a unit got its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// This rule decided.
    Rule(String),
    /// No rule matched.
    Default,
    /// It runs nothing by itself that is not judged elsewhere: a builtin of the shell, a wrapper whose inner
    /// command is a unit of its own, a function of the line.
    Transparent,
    /// Something about it can't be known before it runs.
    Opaque(OpaqueReason),
    /// A variable that the profile denies is set for it.
    Variable(String),
    /// Two allowing rules ask for effects that exclude one another.
    Conflict(String, String),
}

/// One command of the request, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its words, as far as they are known.
    pub words: Vec<Word>,
    /// The file that it runs.
    pub file: Found,
    /// The wrappers and shells around it, outermost first.
    pub within: Vec<String>,
    /// What was decided.
    pub decision: Decision,
    /// Why.
    pub ground: Ground,
    /// Every rule that matches, surely or perhaps, by id.
    pub matched: Vec<(String, Match)>,
}

/// The verdict on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// The strictest of all units'.
    pub decision: Decision,
    /// Every unit, in the order in which it stands. The first with the verdict's decision is its cause.
    pub units: Vec<Unit>,
    /// The rule that made the decision.
    pub cause_rule: Option<String>,
    /// What the allowing rules change.
    pub effects: Effects,
    /// Rules that only watch, and would have decided this way.
    pub observed: Vec<(String, Decision)>,
}

impl Verdict {
    /// The unit that made the decision.
    pub fn cause(&self) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.decision == self.decision)
    }
}

/// What becomes of a line that sets a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Nothing.
    Free,
    /// It may change what programs mean: the line is judged as any command whatever.
    Guarded,
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

/// What the judge knows.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// The rules.
    pub rules: &'a [Rule],
    /// The files.
    pub programs: &'a dyn Programs,
    /// Who, where, in what.
    pub circumstances: &'a Circumstances,
    /// What names mean in the environment that the command will have, before it changes anything in it.
    pub lookup: Lookup,
    /// What becomes of a line that sets a variable of this name, to this value where that is known.
    pub setting: &'a dyn Fn(&str, Option<&str>) -> Setting,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

/// Judges a request.
pub fn judge(form: Form<'_>, bench: Bench<'_>) -> Verdict {
    Hearing::of(bench).hear(form)
}

#[cfg(test)]
mod tests;
