//! The judge: one request, all rules, one verdict.
//!
//! Everything that the request would run, as far as it can be seen, is judged by itself; the strictest wins.
//! The order of rules and files means nothing: deny beats ask beats allow beats the default, which is deny.

use super::{
    builtin::{changes_lookup, is_builtin, runs_a_file},
    effects::{Excluded, merge},
    pattern::Match,
    program::{self, Found, Programs},
    rule::{Circumstances, Decision, Effects, Mode, Rule, Subject, base_name},
    shell::{self, Named, OpaqueReason, Place, Word},
    wrapper::{self, Inner},
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
    Line(&'a str),
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

/// What the judge knows.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// The rules.
    pub rules: &'a [Rule],
    /// The files.
    pub programs: &'a dyn Programs,
    /// Who, where, in what.
    pub circumstances: &'a Circumstances,
    /// Whether a variable of this name may be set for a command.
    pub denies_variable: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

/// Judges a request.
pub fn judge(form: Form<'_>, bench: Bench<'_>) -> Verdict {
    let mut hearing = Hearing { bench, units: Vec::new(), effects: Vec::new(), observed: Vec::new() };
    match form {
        Form::Argv(argv) => {
            let words: Vec<Word> = argv.iter().cloned().map(Word::Literal).collect();
            hearing.command(&words, &[], &Place::Start, Seen::FromArgv, &mut Vec::new());
        }
        Form::Line(line) => hearing.line(line, &Place::Start, &mut Vec::new()),
    }
    hearing.close()
}

/// How the judge came to see a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// As an argument vector: names mean files.
    FromArgv,
    /// In a line for a shell: names may mean builtins.
    InShell,
    /// In a line, and its name is a function of the line.
    AsFunction,
}

struct Hearing<'a> {
    bench: Bench<'a>,
    units: Vec<Unit>,
    effects: Vec<(String, Effects)>,
    observed: Vec<(String, Decision)>,
}

impl Hearing<'_> {
    fn line(&mut self, line: &str, place: &Place, within: &mut Vec<String>) {
        let parsed = shell::parse(line);
        for part in &parsed.opaque {
            self.hide(Vec::new(), part.reason, within);
        }
        let mut path_is_changed = false;
        for command in &parsed.commands {
            if self.units.len() >= MOST_UNITS {
                return self.hide(Vec::new(), OpaqueReason::TooMany, within);
            }
            let place = join(place, &command.place);
            let seen = match command.of_function {
                Named::Function => Seen::AsFunction,
                Named::Program => Seen::InShell,
            };
            self.assignments(&command.assignments, within);
            path_is_changed |= command.assignments.iter().any(|(name, _)| changes_lookup(name));
            if command.words.is_empty() {
                continue;
            }
            if path_is_changed {
                self.hide(command.words.clone(), OpaqueReason::Assignment, within);
            }
            self.command(&command.words, &[], &place, seen, within);
        }
    }

    fn assignments(&mut self, assignments: &[(String, Word)], within: &[String]) {
        for (name, _) in assignments {
            if (self.bench.denies_variable)(name) {
                self.units.push(Unit {
                    words: vec![Word::Literal(format!("{name}=..."))],
                    file: Found::Builtin,
                    within: within.to_vec(),
                    decision: Decision::Deny,
                    ground: Ground::Variable(name.clone()),
                    matched: Vec::new(),
                });
            }
        }
    }

    fn command(
        &mut self,
        words: &[Word],
        assignments: &[(String, Word)],
        place: &Place,
        seen: Seen,
        within: &mut Vec<String>,
    ) {
        self.assignments(assignments, within);
        if assignments.iter().any(|(name, _)| changes_lookup(name)) {
            self.hide(words.to_vec(), OpaqueReason::Assignment, within);
        }
        let Some(command) = words.first() else { return };
        let Some(given) = command.literal() else {
            let reason = match command {
                Word::Opaque { reason, .. } => *reason,
                Word::Literal(_) => OpaqueReason::Expansion,
            };
            self.rules(words, Found::Unknown, place, within, Some(Ground::Opaque(reason)));
            return;
        };
        let cwd = &self.bench.circumstances.cwd;
        let is_builtin = seen != Seen::FromArgv && is_builtin(given);
        let file =
            if is_builtin { Found::Builtin } else { program::find(self.bench.programs, given, cwd, place) };
        let base = base_name(given);
        let is_itself = is_builtin
            || file.is_same(&self.bench.programs.trusted(base))
            || wrapper::is_dynamic_loader(base);
        // A file that only calls itself `env` is no wrapper: it is a program that nobody knows.
        let inner = if is_itself { wrapper::unwrap(base, words) } else { Vec::new() };
        let transparent =
            (is_builtin && !runs_a_file(given)) || !inner.is_empty() || seen == Seen::AsFunction;
        let otherwise = match &file {
            Found::Unknown => Some(Ground::Opaque(OpaqueReason::Place)),
            _ if transparent => Some(Ground::Transparent),
            _ => None,
        };
        self.rules(words, file, place, within, otherwise);
        within.push(base.to_owned());
        for inner in inner {
            if within.len() > DEEPEST || self.units.len() >= MOST_UNITS {
                self.hide(words.to_vec(), OpaqueReason::TooMany, within);
                break;
            }
            match inner {
                // `command NAME`, `exec NAME` and their kind name files or builtins, as a line does.
                Inner::Argv { assignments, words } => {
                    let seen = if is_builtin { Seen::InShell } else { Seen::FromArgv };
                    self.command(&words, &assignments, place, seen, within);
                }
                Inner::ShellLine(line) => self.line(&line, place, within),
                Inner::Opaque(reason) => self.hide(words.to_vec(), reason, within),
            }
        }
        within.pop();
    }

    /// Lets every rule speak about one command.
    fn rules(
        &mut self,
        words: &[Word],
        file: Found,
        place: &Place,
        within: &[String],
        otherwise: Option<Ground>,
    ) {
        let subject = Subject { words, file: &file, place, circumstances: self.bench.circumstances };
        let mut matched = Vec::new();
        let mut strictest: Option<(Decision, &Rule, Match)> = None;
        for rule in self.bench.rules {
            let answer = rule.matches(&subject, self.bench.programs);
            if answer == Match::No {
                continue;
            }
            matched.push((rule.id.clone(), answer));
            // What only perhaps matches allows nothing, and asks where it would deny.
            let decision = match (rule.decision, answer) {
                (Decision::Allow, Match::Perhaps) => continue,
                (Decision::Deny, Match::Perhaps) => Decision::Ask,
                (decision, _) => decision,
            };
            if rule.mode == Mode::Observe {
                self.observed.push((rule.id.clone(), decision));
                continue;
            }
            if decision == Decision::Allow && rule.effects != Effects::default() {
                self.effects.push((rule.id.clone(), rule.effects.clone()));
            }
            let wins = strictest
                .is_none_or(|(so_far, by, _)| decision > so_far || (decision == so_far && rule.id < by.id));
            if wins {
                strictest = Some((decision, rule, answer));
            }
        }
        let (decision, ground) = match (strictest, otherwise) {
            // A command word that can't be seen is not allowed by a rule for any program.
            (Some((Decision::Allow, ..)) | None, Some(Ground::Opaque(reason))) => {
                (Decision::Ask, Ground::Opaque(reason))
            }
            (Some((decision, rule, _)), _) => (decision, Ground::Rule(rule.id.clone())),
            (None, Some(ground)) => (Decision::Allow, ground),
            (None, None) => (Decision::Deny, Ground::Default),
        };
        matched.sort_unstable();
        self.units.push(Unit {
            words: words.to_vec(),
            file,
            within: within.to_vec(),
            decision,
            ground,
            matched,
        });
    }

    fn hide(&mut self, words: Vec<Word>, reason: OpaqueReason, within: &[String]) {
        self.units.push(Unit {
            words,
            file: Found::Unknown,
            within: within.to_vec(),
            decision: Decision::Ask,
            ground: Ground::Opaque(reason),
            matched: Vec::new(),
        });
    }

    fn close(mut self) -> Verdict {
        let mut effects = Effects::default();
        self.effects.sort_by(|a, b| a.0.cmp(&b.0));
        let mut by: Option<String> = None;
        for (id, more) in std::mem::take(&mut self.effects) {
            if let Err(Excluded) = merge(&mut effects, &more) {
                let other = by.clone().unwrap_or_default();
                self.units.push(Unit {
                    words: Vec::new(),
                    file: Found::Unknown,
                    within: Vec::new(),
                    decision: Decision::Deny,
                    ground: Ground::Conflict(other, id),
                    matched: Vec::new(),
                });
                break;
            }
            by = Some(id);
        }
        // Nothing to run is nothing to allow.
        let decision = self.units.iter().map(|unit| unit.decision).max().unwrap_or(Decision::Deny);
        self.observed.sort();
        self.observed.dedup();
        Verdict { decision, units: self.units, effects, observed: self.observed }
    }
}

fn join(outer: &Place, inner: &Place) -> Place {
    match (outer, inner) {
        (outer, Place::Start) => outer.clone(),
        (_, Place::After(target)) if target.starts_with('/') => inner.clone(),
        (Place::Start, inner) => inner.clone(),
        (Place::After(base), Place::After(target)) => Place::After(format!("{base}/{target}")),
        (Place::Unknown, _) | (_, Place::Unknown) => Place::Unknown,
    }
}

#[cfg(test)]
mod tests;
