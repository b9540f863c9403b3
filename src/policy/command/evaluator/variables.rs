//! What a request does to the environment of what it runs, and whether names still mean the same in it.
//!
//! An assignment is evaluated by its name and, where it is known, its value. It decides nothing about commands. Variables of a shell that
//! are not in the environment (`for ENV in a b`, `n=1; echo $n`) reach no program: only what is certain not to be exported counts as such,
//! and nothing that a shell reads itself.

use std::collections::BTreeSet;

use super::{
    super::{
        builtin::{
            changes_lookup, is_builtin, is_read_by_shells, makes_names_of_names, takes_data, variables_set,
        },
        kinds,
        program::Resolved,
        rule::{CommandRole, Decision, RuleSubject, base_name},
        shell::{self, Dialect, LineCwd, OpaqueReason, ParsedLine, Word},
        verdict::{AssignmentVerdict, DecisionReason, Doubt, MAX_NESTING, RuleAnswers, Unit},
        wrapper::{self, Removed},
    },
    Evaluator, ShellScope,
};

/// Where programs are looked for by what has no PATH, and by `command -p`: confstr(3), _CS_PATH, of the known C libraries.
const WITHOUT_PATH: [&str; 3] = ["/usr/local/bin", "/bin", "/usr/bin"];

impl Evaluator<'_> {
    /// Evaluates assignments; says whether one changes what names mean.
    pub(super) fn assignments(&mut self, assignments: &[(String, Word)], within: &mut Vec<String>) -> bool {
        let mut changes = false;
        for (name, value) in assignments {
            let setting = self.variable(name, value.literal(), within);
            let holds_a_command = kinds::holds_a_command(name);
            changes |= setting == AssignmentVerdict::Guarded && !holds_a_command;
            if holds_a_command && within.len() <= MAX_NESTING {
                within.push(name.clone());
                match value {
                    Word::Literal(line) if line.is_empty() => {}
                    Word::Literal(line) => {
                        self.line(line, Dialect::Posix, ShellScope::NewShell, &LineCwd::Unknown, within);
                    }
                    Word::Opaque { text, reason } => self.hide(text, *reason, within),
                }
                within.pop();
            }
            // A shell runs what is substituted in a value wherever it takes the value for arithmetic.
            if let Some(text) = value.literal().filter(|text| shell::holds_substitution(text)) {
                self.hide(text, OpaqueReason::Assignment, within);
            }
        }
        changes || assignments.iter().any(|(name, _)| changes_lookup(name))
    }

    /// Takes from among assignments that stand alone those that change nothing for any program.
    pub(super) fn keep_in_shell(&mut self, assignments: &mut Vec<(String, Word)>, within: &[String]) {
        assignments.retain(|(name, value)| {
            let stays = self.stays_in_shell(name);
            // A shell runs what is substituted in a value wherever it takes the value for arithmetic.
            if let Some(text) = value.literal().filter(|text| stays && shell::holds_substitution(text)) {
                self.hide(text, OpaqueReason::Assignment, within);
            }
            !stays
        });
    }

    /// Evaluates the variables that a builtin sets; says whether one changes what names mean.
    pub(super) fn variables(&mut self, words: &[Word], within: &[String]) -> bool {
        let words = match words.split_first() {
            // `command export`, `builtin read`.
            Some((first, rest)) if matches!(first.literal(), Some("command" | "builtin")) => rest,
            _ => words,
        };
        let Some((Some(builtin), args)) = words.split_first().map(|(w, rest)| (w.literal(), rest)) else {
            return false;
        };
        if !is_builtin(builtin) {
            return false;
        }
        let texts = || args.iter().filter_map(Word::literal);
        let mut changes = makes_names_of_names(builtin, args);
        for word in variables_set(builtin, args) {
            let Some(text) = word.literal() else {
                self.hide_words(words, OpaqueReason::Assignment, within);
                continue;
            };
            let name = text.split(['=', '[', '+']).next().unwrap_or(text);
            let value = text.split_once('=').map(|(_, value)| value);
            let sets_only = matches!(builtin, "read" | "getopts" | "printf" | "wait" | "let");
            if sets_only && self.stays_in_shell(name) {
                continue;
            }
            let is_guarded = self.variable(name, value, within) == AssignmentVerdict::Guarded;
            // `export NAME` only shows what was set, and what set it was evaluated.
            let sets = match builtin {
                "export" | "readonly" | "declare" | "typeset" | "local" => {
                    value.is_some() || self.variables_of_shells.has_kept(name)
                }
                "unset" => self.context.request.env.contains_key(name),
                _ => true,
            };
            changes |= changes_lookup(name) || (is_guarded && sets);
        }
        let names_variable = builtin == "printf" && !variables_set(builtin, args).is_empty();
        let is_data = (takes_data(builtin) && !names_variable) || kinds::runs_its_text(builtin);
        if is_data {
            return changes;
        }
        if let Some(text) = texts().find(|text| shell::holds_substitution(text)) {
            self.hide(text, OpaqueReason::Assignment, within);
        }
        changes
    }

    fn variable(&mut self, name: &str, value: Option<&str>, within: &[String]) -> AssignmentVerdict {
        let setting = match (self.context.assignment_verdict)(name, value) {
            AssignmentVerdict::Loads if self.allows_any_command() => AssignmentVerdict::Guarded,
            AssignmentVerdict::Loads => AssignmentVerdict::Denied,
            other => other,
        };
        if setting == AssignmentVerdict::Denied {
            self.units.push(Unit {
                words: vec![Word::Literal(format!("{name}=..."))],
                file: Resolved::Builtin,
                place: LineCwd::Unknown,
                within: within.to_vec(),
                decision: Decision::Deny,
                reason: DecisionReason::Variable(name.to_owned()),
                matched: Vec::new(),
            });
        }
        setting
    }

    /// Whether a rule allows whatever command: then code that a variable loads does no more than a command of the line may.
    fn allows_any_command(&self) -> bool {
        let any = [Word::Opaque { text: "...".into(), reason: OpaqueReason::Assignment }];
        let place = LineCwd::Unknown;
        let subject = RuleSubject::of(&any, &Resolved::Unknown, false, &place, self.context.request);
        let rules = self.context.rules.iter();
        let answers =
            RuleAnswers::of(rules, &subject, CommandRole::Within, self.context.resolver, Doubt::Waits);
        answers.strictest.is_some_and(|(decision, _)| decision == Decision::Allow)
    }

    /// Whether a command may be another one, or do something else, without what is removed from its environment.
    pub(super) fn is_other_without(&self, removed: &Removed, words: &[Word]) -> bool {
        let env = &self.context.request.env;
        let is_removed = |name: &str| match removed {
            Removed::All => true,
            Removed::Names(names) => names.iter().any(|removed| removed == name),
        };
        // Without a home there is less configuration, and without a pager another one that nobody chose here.
        let protects = |name: &str| {
            name != "PATH"
                && name != "HOME"
                && !kinds::holds_a_command(name)
                && (changes_lookup(name)
                    || (self.context.assignment_verdict)(name, None) != AssignmentVerdict::Allowed)
        };
        if env.keys().any(|name| is_removed(name) && protects(name)) {
            return true;
        }
        is_removed("PATH") && self.is_other_without_path(words)
    }

    fn is_other_without_path(&self, words: &[Word]) -> bool {
        let Some(name) = words.first().and_then(Word::literal) else { return true };
        let programs = self.context.resolver;
        let is_elsewhere = || {
            let trusted = programs.find_in_path(name);
            WITHOUT_PATH
                .iter()
                .map(|directory| programs.resolve_path(&format!("{directory}/{name}"), "/"))
                .any(|found| found != Resolved::Missing && !found.is_same(&trusted))
        };
        // What runs others by their names looks for them in the same places.
        !wrapper::unwrap(base_name(name), words).is_empty() || (!name.contains('/') && is_elsewhere())
    }
}

/// What the lines of a request may have exported, and what they have set without it.
#[derive(Debug, Default)]
pub(super) struct ShellVariables {
    /// Whether any variable may be exported.
    exports_all: bool,
    exported: BTreeSet<String>,
    /// Set, and not in the environment so far.
    kept: BTreeSet<String>,
}

impl ShellVariables {
    /// Adds what a line may export, wherever in it: what comes last may run before what comes first.
    pub(super) fn add(&mut self, line: &ParsedLine) {
        let runs_again = !line.loops.is_empty() || !line.defined.is_empty();
        self.exports_all |= !line.opaque.is_empty();
        for command in &line.commands {
            let is_prefix = |word: &&Word| matches!(word.literal(), Some("command" | "builtin" | "--"));
            let mut words = command.words.iter().skip_while(is_prefix);
            let Some(first) = words.next() else { continue };
            match first.literal() {
                Some("export" | "declare" | "typeset" | "local" | "readonly") => {
                    self.exported.extend(command.assignments.iter().map(|(name, _)| name.clone()));
                    for word in words {
                        match word.literal() {
                            Some(text) => {
                                let name = text.split(['=', '[', '+']).next().unwrap_or(text);
                                self.exported.insert(name.to_owned());
                            }
                            None => self.exports_all = true,
                        }
                    }
                }
                Some("set") => self.exports_all |= words.any(exports_all),
                Some("setopt" | "emulate") => self.exports_all = true,
                Some("eval" | "." | "source" | "trap") | None => self.exports_all |= runs_again,
                Some(_) => {}
            }
        }
    }

    /// Adds the options of a shell.
    pub(super) fn add_options(&mut self, words: &[Word]) {
        self.exports_all |= words.iter().skip(1).any(exports_all);
    }

    /// Whether a variable of this name has been set, and was not in the environment then.
    pub(super) fn has_kept(&self, name: &str) -> bool {
        self.kept.contains(name)
    }
}

/// Whether a word is an option by which a shell exports what it sets: `-a`, `-o allexport`.
fn exports_all(word: &Word) -> bool {
    word.literal().is_none_or(|text| {
        text == "allexport" || (text.starts_with('-') && !text.starts_with("--") && text.contains('a'))
    })
}

impl Evaluator<'_> {
    /// Whether a variable that is set by itself, not for a command, stays within the shell. One that a profile denies, or the list
    /// of those that change every command, does not count, wherever it stands.
    pub(super) fn stays_in_shell(&mut self, name: &str) -> bool {
        let variables = &self.variables_of_shells;
        let is_in_environment = variables.exports_all
            || variables.exported.contains(name)
            || self.context.request.env.contains_key(name);
        let stays = !is_in_environment
            && !is_read_by_shells(name)
            && (self.context.assignment_verdict)(name, None) != AssignmentVerdict::Denied;
        if stays {
            self.variables_of_shells.kept.insert(name.to_owned());
        }
        stays
    }
}
