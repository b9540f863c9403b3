//! The hearing of one request: what it would run is found, step by step, and the rules speak on each command.
//!
//! Lines are followed in the order in which they stand: an assignment that changes what names mean holds for all that
//! comes behind it, in `eval` and its kind as well.

mod surroundings;
mod weighing;

use super::{
    builtin::{is_builtin, runs_a_file},
    kinds,
    program::{self, Found, Programs},
    rule::{Decision, Effects, base_name},
    shell::{self, Dialect, Line, Named, OpaqueReason, Place, SimpleCommand, Word},
    values::Values,
    verdict::{Bench, DEEPEST, Form, Ground, Lookup, MOST_UNITS, Unit, Verdict},
    wrapper::{self, Inner},
};

/// How the judge came to see a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// As an argument vector: names mean files.
    FromArgv,
    /// In a line for a shell: names may mean builtins.
    InShell(Dialect),
    /// In a line, and its name is a function of the line.
    AsFunction(Dialect),
}

/// How the rules came to their decision on a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    /// A rule that is about this program, and not about everything, allows it.
    AllowedByName,
    /// Otherwise.
    Otherwise,
}

/// Which shell reads a line within a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// One of its own: what it sets ends with it.
    NewShell,
    /// The one that reads the words around it (`eval`, `trap`).
    SameShell,
}

/// The hearing of one request.
pub(super) struct Hearing<'a> {
    bench: Bench<'a>,
    units: Vec<Unit>,
    effects: Vec<(String, Effects)>,
    observed: Vec<(String, Decision)>,
    lookup: Lookup,
    values: Values,
}

impl<'a> Hearing<'a> {
    pub(super) fn of(bench: Bench<'a>) -> Self {
        Self {
            bench,
            units: Vec::new(),
            effects: Vec::new(),
            observed: Vec::new(),
            lookup: bench.lookup,
            values: Values::default(),
        }
    }

    pub(super) fn hear(mut self, form: Form<'_>) -> Verdict {
        match form {
            Form::Argv(argv) => {
                let words: Vec<Word> = argv.iter().cloned().map(Word::Literal).collect();
                self.command(&words, &Place::Start, Seen::FromArgv, &mut Vec::new());
            }
            Form::Line(line, dialect) => {
                self.line(line, dialect, Reads::NewShell, &Place::Start, &mut Vec::new());
            }
        }
        if let Some(text) = self.values.hidden_in_arithmetic(&self.bench.circumstances.env) {
            self.hide(&text, OpaqueReason::Assignment, &[]);
        }
        self.close()
    }

    fn line(&mut self, line: &str, dialect: Dialect, reads: Reads, place: &Place, within: &mut Vec<String>) {
        let outer = self.lookup;
        if reads == Reads::NewShell {
            self.lookup = self.bench.lookup;
        }
        let parsed = match self.values.leave_names_alone() {
            true => shell::parse_knowing_programs(line, dialect),
            false => shell::parse(line, dialect),
        };
        self.values.take_in(&parsed);
        for part in &parsed.opaque {
            self.hide(&part.text, part.reason, within);
        }
        for (at, command) in parsed.commands.iter().enumerate() {
            if self.units.len() >= MOST_UNITS {
                self.hide(line, OpaqueReason::TooMany, within);
                break;
            }
            let before = self.lookup;
            let place = join(place, &command.place);
            let seen = match command.of_function {
                Named::Function => Seen::AsFunction(dialect),
                Named::Program => Seen::InShell(dialect),
            };
            let mut assignments = command.assignments.clone();
            if is_own_read(command, &parsed) {
                assignments.retain(|(name, _)| name != "IFS");
            }
            if self.assignments(&assignments, within) | self.variables(&command.words, within) {
                self.lookup = Lookup::Changed;
            }
            if !command.words.is_empty() {
                if self.lookup == Lookup::Changed {
                    self.hide_words(&command.words, OpaqueReason::Assignment, within);
                }
                self.command(&command.words, &place, seen, within);
            }
            // What has been judged already may run again, or only now.
            let comes_back = parsed.loops.iter().any(|commands| commands.contains(&at))
                || parsed
                    .commands
                    .iter()
                    .any(|other| other.words.first().and_then(Word::literal) == Some("trap"));
            if self.lookup != before && comes_back {
                self.hide(line, OpaqueReason::Assignment, within);
            }
        }
        if reads == Reads::NewShell {
            self.lookup = outer;
        }
    }

    fn command(&mut self, words: &[Word], place: &Place, seen: Seen, within: &mut Vec<String>) {
        let Some(command) = words.first() else { return };
        let Some(given) = command.literal() else {
            let reason = match command {
                Word::Opaque { reason, .. } => *reason,
                Word::Literal(_) => OpaqueReason::Expansion,
            };
            self.rules(words, Found::Unknown, false, place, within, Some(Ground::Opaque(reason)));
            return;
        };
        let cwd = &self.bench.circumstances.cwd;
        let programs = self.bench.programs;
        let is_builtin = seen != Seen::FromArgv && is_builtin(given);
        let file = if is_builtin { Found::Builtin } else { program::find(programs, given, cwd, place) };
        let base = base_name(given);
        let is_itself =
            is_builtin || matches!(file, Found::File(_)) && (given == base || programs.is_named(&file, base));
        // What is no file can only be what the shell itself takes the name for.
        let is_shells_own = seen != Seen::FromArgv && file == Found::Missing && given == base;
        // An applet is itself, whatever files there are.
        let is_applet = seen == Seen::FromArgv
            && given == base
            && within.last().is_some_and(|outer| kinds::is_many_programs(outer));
        // A file that only calls itself `env` is no wrapper: it is a program that nobody knows.
        let is_wrapper = is_itself
            || is_shells_own
            || is_applet
            || kinds::is_dynamic_loader(base)
            || (base.starts_with("git-") && is_of_git(&file, programs));
        let inner = if is_wrapper { wrapper::unwrap(base, words) } else { Vec::new() };
        let is_function = matches!(seen, Seen::AsFunction(_));
        let transparent = (is_builtin && !runs_a_file(given))
            || (!inner.is_empty() && kinds::is_transparent(base))
            || is_function;
        let otherwise = match &file {
            Found::Unknown => Some(Ground::Opaque(OpaqueReason::Place)),
            _ if transparent => Some(Ground::Transparent),
            _ => None,
        };
        let answered = self.rules(words, file, is_itself || is_function, place, within, otherwise);
        within.push(base.to_owned());
        for inner in inner {
            if within.len() > DEEPEST || self.units.len() >= MOST_UNITS {
                self.hide_words(words, OpaqueReason::TooMany, within);
                break;
            }
            match inner {
                // `command NAME`, `exec NAME` and their kind name files or builtins, as a line does.
                Inner::Argv { assignments, removed, words } => {
                    let seen = match seen {
                        Seen::InShell(dialect) | Seen::AsFunction(dialect) if is_builtin => {
                            Seen::InShell(dialect)
                        }
                        _ => Seen::FromArgv,
                    };
                    let is_changed = self.assignments(&assignments, within)
                        | self.is_other_without(&removed, &words)
                        | (self.bench.lookup == Lookup::Changed);
                    if is_changed {
                        self.hide_words(&words, OpaqueReason::Assignment, within);
                    }
                    self.command(&words, place, seen, within);
                }
                Inner::ShellLine(line, dialect) => {
                    let outer = match seen {
                        Seen::InShell(dialect) | Seen::AsFunction(dialect) => dialect,
                        Seen::FromArgv => Dialect::Posix,
                    };
                    let reads = if dialect.is_some() { Reads::NewShell } else { Reads::SameShell };
                    self.line(&line, dialect.unwrap_or(outer), reads, place, within);
                }
                // Who allows `bash build.sh` by name has read build.sh, and who allows `strace` knows that nobody looks
                // into it. What is seen through otherwise hides nothing because of a rule for its name.
                Inner::Opaque(reason)
                    if answered == Answered::AllowedByName && kinds::is_taken_on_trust(base, reason) => {}
                Inner::Opaque(reason) => self.hide_words(words, reason, within),
            }
        }
        within.pop();
    }
}

/// Whether a file named `git-X` is git's: git itself, or in its folder of programs.
fn is_of_git(file: &Found, programs: &dyn Programs) -> bool {
    programs.is_named(file, "git") || file.path().is_some_and(|path| path.contains("/git-core/"))
}

/// Whether a command is the builtin `read`, for which alone what stands before it is set.
fn is_own_read(command: &SimpleCommand, line: &Line) -> bool {
    let is_read = command.words.first().and_then(Word::literal) == Some("read");
    is_read && line.defined.iter().all(|name| name != "read")
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
