//! Evaluates one request: finds every command that it would run, step by step, and asks the rules about each.
//!
//! Lines are followed in the order in which they stand: an assignment that changes what names mean holds for all that comes behind it, in
//! `eval` and its kind as well.
//!
//! What a command runs by its arguments is evaluated, what else it may be, and what interprets a script that the request names: the kernel
//! executes that in its place, with arguments of its own. Rules that deny or ask hold for an interpreter, and a rule that allows the script
//! allows it. The exec gate does the same for what processes execute; nobody else looks at what the gateway itself has executed, or at what
//! a line names under a profile without a gate.

mod combine;
mod variables;

use variables::ShellVariables;

use super::{
    builtin::{is_builtin, runs_a_file},
    effects::{AffectedCommand, CommandEffects, EffectsConflict, OwnWork},
    kinds,
    program::{self, Interpreters, PathStability, Resolved, interpreted_argv, with_arguments},
    readings,
    rule::{Decision, base_name, resolve_place},
    shell::{self, Dialect, LineCwd, Named, OpaqueReason, ParsedLine, SimpleCommand, Word},
    verdict::{
        CommandInput, DecisionReason, EvalContext, Lookup, MAX_NESTING, MAX_UNITS, RuleVerdict, Unit, Unseen,
    },
    wrapper::{self, WrappedCommand},
};

/// Evaluates all rules on a request.
pub fn evaluate_rules(form: CommandInput<'_>, context: EvalContext<'_>) -> RuleVerdict {
    Evaluator::new(context).evaluate(form)
}

/// Where the evaluator found a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandSource {
    /// As an argument vector: names mean files.
    FromArgv,
    /// In a line for a shell: names may mean builtins.
    InShell(Dialect),
    /// In a line, and its name is a function of the line.
    AsFunction(Dialect),
    /// As the profile's shell, which is what it is whatever its file is called; its last word is a line.
    AsProfileShell,
}

/// How the rules came to their decision on a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleAnswer {
    /// A rule that is about this program, and not about everything, allows it.
    AllowedByName,
    /// Otherwise.
    Otherwise,
}

/// A command that runs others.
struct Outer<'a> {
    words: &'a [Word],
    /// What it is seen through as.
    name: &'a str,
    place: &'a LineCwd,
    seen: CommandSource,
    is_builtin: bool,
    answered: RuleAnswer,
}

/// Whether a program is looked at for being a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scripts {
    /// What interprets it is evaluated, too.
    Followed,
    /// It interprets a script itself, and what interprets it is known with that.
    Known,
}

/// Which shell reads a line within a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShellScope {
    /// One of its own: what it sets ends with it.
    NewShell,
    /// The one that reads the words around it (`eval`, `trap`).
    SameShell,
}

/// What is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputForm {
    /// A request: the gateway executes its program.
    Request,
    /// The commands of a line, without the shell that reads it.
    Line,
}

/// The evaluation of one request.
struct Evaluator<'a> {
    context: EvalContext<'a>,
    units: Vec<Unit>,
    affected: Vec<AffectedCommand>,
    /// The effects on the commands around the one that is evaluated, outermost first: what they run has them, too.
    around: Vec<CommandEffects>,
    /// Why the effects on one command cannot be put together.
    conflict: Option<EffectsConflict>,
    observed: Vec<(String, Decision)>,
    starts_any: Vec<String>,
    form: InputForm,
    /// Whether a command so far makes links.
    makes_links: bool,
    /// Whether what is evaluated is another reading of a command: rules that allow say nothing about it.
    is_other_reading: bool,
    /// Whether what is evaluated interprets a script: likewise.
    is_interpreting: bool,
    lookup: Lookup,
    variables_of_shells: ShellVariables,
}

impl<'a> Evaluator<'a> {
    fn new(context: EvalContext<'a>) -> Self {
        Self {
            context,
            units: Vec::new(),
            affected: Vec::new(),
            around: Vec::new(),
            conflict: None,
            observed: Vec::new(),
            starts_any: Vec::new(),
            form: InputForm::Line,
            makes_links: false,
            is_other_reading: false,
            is_interpreting: false,
            lookup: context.lookup,
            variables_of_shells: ShellVariables::default(),
        }
    }

    fn evaluate(mut self, form: CommandInput<'_>) -> RuleVerdict {
        match form {
            CommandInput::Argv(argv) => {
                self.form = InputForm::Request;
                let words: Vec<Word> = argv.iter().cloned().map(Word::Literal).collect();
                self.command(&words, &LineCwd::Start, CommandSource::FromArgv, &mut Vec::new());
            }
            CommandInput::ShellLine(line, dialect) => {
                self.line(line, dialect, ShellScope::NewShell, &LineCwd::Start, &mut Vec::new());
            }
            CommandInput::ProfileShell { shell, line } => {
                self.form = InputForm::Request;
                let words = [shell, "-c", line].map(|word| Word::Literal(word.to_owned()));
                self.command(&words, &LineCwd::Start, CommandSource::AsProfileShell, &mut Vec::new());
            }
        }
        self.combine()
    }

    fn line(
        &mut self,
        line: &str,
        dialect: Dialect,
        scope: ShellScope,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        let outer = self.lookup;
        if scope == ShellScope::NewShell {
            self.lookup = self.context.lookup;
        }
        let parsed = shell::parse(line, dialect);
        self.variables_of_shells.add(&parsed);
        for part in &parsed.opaque {
            self.hide(&part.text, part.reason, within);
        }
        for target in &parsed.expanded_targets {
            self.affected.push(AffectedCommand {
                unit: self.units.len(),
                redirection: Some(target.clone()),
                work: OwnWork::None { may_show_variables: true },
                on: self.around.last().cloned().unwrap_or_default(),
            });
        }
        for (at, command) in parsed.commands.iter().enumerate() {
            if self.units.len() >= MAX_UNITS {
                self.hide(line, OpaqueReason::TooMany, within);
                break;
            }
            let before = self.lookup;
            let place = join(place, &command.place);
            let seen = match command.of_function {
                Named::Function => CommandSource::AsFunction(dialect),
                Named::Program => CommandSource::InShell(dialect),
            };
            let mut assignments = command.assignments.clone();
            if is_own_read(command, &parsed) {
                assignments.retain(|(name, _)| name != "IFS");
            }
            if command.words.is_empty() {
                self.keep_in_shell(&mut assignments, within);
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
            // What has been evaluated already may run again, or only now.
            let comes_back = parsed.loops.iter().any(|commands| commands.contains(&at))
                || parsed
                    .commands
                    .iter()
                    .any(|other| other.words.first().and_then(Word::literal) == Some("trap"));
            if self.lookup != before && comes_back {
                self.hide(line, OpaqueReason::Assignment, within);
            }
        }
        if scope == ShellScope::NewShell {
            self.lookup = outer;
        }
    }

    fn command(&mut self, words: &[Word], place: &LineCwd, seen: CommandSource, within: &mut Vec<String>) {
        let Some(command) = words.first() else { return };
        let Some(given) = command.literal() else {
            let reason = match command {
                Word::Opaque { reason, .. } => *reason,
                Word::Literal(_) => OpaqueReason::Expansion,
            };
            self.apply_rules(
                words,
                Resolved::Unknown,
                false,
                place,
                within,
                Some(DecisionReason::Opaque(reason)),
            );
            return;
        };
        let cwd = &self.context.request.cwd;
        let programs = self.context.resolver;
        let is_in_shell = matches!(seen, CommandSource::InShell(_) | CommandSource::AsFunction(_));
        let is_builtin = is_in_shell && is_builtin(given);
        let file = if is_builtin {
            Resolved::Builtin
        } else {
            program::resolve_command(programs, given, cwd, place)
        };
        self.program(words, (given, file), Scripts::Followed, place, seen, within);
    }

    /// Evaluates a command whose program is known, as it is written and as a file.
    fn program(
        &mut self,
        words: &[Word],
        (given, file): (&str, Resolved),
        scripts: Scripts,
        place: &LineCwd,
        seen: CommandSource,
        within: &mut Vec<String>,
    ) {
        let programs = self.context.resolver;
        let is_builtin = file == Resolved::Builtin;
        let interprets = scripts == Scripts::Known;
        let base = base_name(given);
        let is_fixed = matches!(&file, Resolved::File(file) if file.stability == PathStability::Fixed);
        if self.makes_links && given.contains('/') && !is_fixed {
            self.hide_words(words, OpaqueReason::Link, within);
        }
        self.makes_links |= kinds::makes_links(base, words);
        let is_itself = is_builtin
            || matches!(file, Resolved::File(_))
                && match given == base {
                    true => programs.is_trusted(&file),
                    false => programs.is_named(&file, base),
                };
        // What is no file can only be what the shell itself takes the name for.
        let is_in_shell = matches!(seen, CommandSource::InShell(_) | CommandSource::AsFunction(_));
        let is_shells_own = is_in_shell && file == Resolved::Missing && given == base;
        // An applet is itself, whatever files there are, also one that another applet runs.
        let is_applet = seen == CommandSource::FromArgv
            && (within.last().is_some_and(|outer| kinds::is_many_programs(outer))
                || given == base && within.iter().any(|outer| kinds::runs_applets(outer)));
        // A link to a loader is one, whatever it is called.
        let real_base = file.path().map_or(base, base_name).to_owned();
        let name = if kinds::is_dynamic_loader(&real_base) { real_base.clone() } else { base.to_owned() };
        let is_link_to_many = !is_itself && kinds::runs_applets(&real_base);
        // A file that only calls itself `env` is no wrapper: it is a program that nobody knows.
        let is_wrapper = is_itself
            || is_shells_own
            || is_applet
            || kinds::is_dynamic_loader(&name)
            || is_link_to_many
            || (interprets && kinds::runs_in_place(&name))
            || (name.starts_with("git-") && readings::is_of_git(&file, given, programs));
        let is_profile_shell = seen == CommandSource::AsProfileShell;
        let split = if interprets && name == "env" { wrapper::split_first_line(words) } else { None };
        let inner = match words {
            [.., Word::Literal(line)] if is_profile_shell => {
                vec![WrappedCommand::ShellLine(line.clone(), Some(Dialect::of(base)))]
            }
            _ if is_applet || is_link_to_many => wrapper::unwrap_applet(&name, words),
            _ if is_wrapper => wrapper::unwrap(&name, split.as_deref().unwrap_or(words)),
            _ => Vec::new(),
        };
        let is_read_as_git = name.starts_with("git-") && !inner.is_empty();
        let others = match is_applet || self.is_other_reading {
            true => Vec::new(),
            false => readings::other_readings(words, &file, is_itself, is_read_as_git),
        };
        let is_function = matches!(seen, CommandSource::AsFunction(_));
        let transparent = (is_builtin && !runs_a_file(given))
            || (!inner.is_empty() && kinds::is_transparent(&name) && (is_applet || !is_link_to_many))
            || is_function
            || is_profile_shell;
        let otherwise = match &file {
            Resolved::Unknown if !is_profile_shell => Some(DecisionReason::Opaque(OpaqueReason::UnknownCwd)),
            _ if transparent => Some(DecisionReason::Transparent),
            _ => None,
        };
        let own_file = file.clone();
        let answered = self.apply_rules(words, file, is_itself || is_function, place, within, otherwise);
        let outer = Outer { words, name: &name, place, seen, is_builtin, answered };
        let depth = within.len();
        within.extend((is_link_to_many && real_base != name).then(|| real_base.clone()));
        within.push(name.clone());
        self.around.push(self.affected.last().map(|command| command.on.clone()).unwrap_or_default());
        self.inner(inner, &outer, within);
        within.truncate(depth);
        self.other_readings(others, &own_file, place, within);
        if scripts == Scripts::Followed && !is_applet && !is_function {
            self.interpreters(words, &own_file, place, within);
        }
        self.around.pop();
    }
}

/// Whether a command is the builtin `read`, for which alone what stands before it is set.
fn is_own_read(command: &SimpleCommand, line: &ParsedLine) -> bool {
    let is_read = command.words.first().and_then(Word::literal) == Some("read");
    is_read && line.defined.iter().all(|name| name != "read")
}

fn join(outer: &LineCwd, inner: &LineCwd) -> LineCwd {
    match (outer, inner) {
        (outer, LineCwd::Start) => outer.clone(),
        (_, LineCwd::After(target)) if target.starts_with('/') => inner.clone(),
        (LineCwd::Start, inner) => inner.clone(),
        (LineCwd::After(base), LineCwd::After(target)) => LineCwd::After(format!("{base}/{target}")),
        (LineCwd::Unknown, _) | (_, LineCwd::Unknown) => LineCwd::Unknown,
    }
}

impl Evaluator<'_> {
    /// Evaluates what a command runs. `within` ends with the command itself.
    fn inner(&mut self, inner: Vec<WrappedCommand>, outer: &Outer<'_>, within: &mut Vec<String>) {
        for inner in inner {
            if within.len() > MAX_NESTING || self.units.len() >= MAX_UNITS {
                self.hide_words(outer.words, OpaqueReason::TooMany, within);
                break;
            }
            match inner {
                // `command NAME`, `exec NAME` and their kind name files or builtins, as a line does.
                WrappedCommand::Argv { assignments, removed, words } => {
                    let seen = match outer.seen {
                        CommandSource::InShell(dialect) | CommandSource::AsFunction(dialect)
                            if outer.is_builtin =>
                        {
                            CommandSource::InShell(dialect)
                        }
                        _ => CommandSource::FromArgv,
                    };
                    let is_changed = self.assignments(&assignments, within)
                        | self.is_other_without(&removed, &words)
                        | (self.context.lookup == Lookup::Changed);
                    if is_changed {
                        self.hide_words(&words, OpaqueReason::Assignment, within);
                    }
                    self.command(&words, outer.place, seen, within);
                }
                WrappedCommand::ShellLine(line, dialect) => {
                    let around = match outer.seen {
                        CommandSource::InShell(dialect) | CommandSource::AsFunction(dialect) => dialect,
                        CommandSource::FromArgv | CommandSource::AsProfileShell => Dialect::Posix,
                    };
                    if dialect.is_some() {
                        self.variables_of_shells.add_options(outer.words);
                    }
                    let reads = if dialect.is_some() { ShellScope::NewShell } else { ShellScope::SameShell };
                    self.line(&line, dialect.unwrap_or(around), reads, outer.place, within);
                }
                // Who allows `bash build.sh` by name has read build.sh, and who allows `strace` knows that nobody looks
                // into it. What is seen through otherwise hides nothing because of a rule for its name.
                WrappedCommand::Opaque(reason)
                    if outer.answered == RuleAnswer::AllowedByName
                        && kinds::is_taken_on_trust(outer.name, reason) => {}
                WrappedCommand::Opaque(reason)
                    if self.is_interpreting && self.is_the_scripts_own(outer.name, reason, within) => {}
                WrappedCommand::Opaque(reason) => self.hide_words(outer.words, reason, within),
            }
        }
    }

    /// Evaluates what else a command may be. Rules that deny or ask hold for it, and it needs no rule.
    fn other_readings(
        &mut self,
        others: Vec<Vec<Word>>,
        file: &Resolved,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        if others.is_empty() {
            return;
        }
        self.is_other_reading = true;
        for words in others {
            self.apply_rules(&words, file.clone(), false, place, within, None);
            let name = words.first().and_then(Word::literal).unwrap_or_default();
            let outer = Outer {
                words: &words,
                name,
                place,
                seen: CommandSource::FromArgv,
                is_builtin: false,
                answered: RuleAnswer::Otherwise,
            };
            within.push(name.to_owned());
            self.inner(readings::unwrap(&words), &outer, within);
            within.pop();
        }
        self.is_other_reading = false;
    }
}

impl Evaluator<'_> {
    /// Evaluates what interprets a file that is a script.
    fn interpreters(&mut self, words: &[Word], file: &Resolved, place: &LineCwd, within: &mut Vec<String>) {
        let around = std::mem::replace(&mut self.is_interpreting, true);
        if self.units.len() >= MAX_UNITS {
            self.hide_words(words, OpaqueReason::TooMany, within);
        } else {
            self.interpreters_of(words, file, place, within);
        }
        self.is_interpreting = around;
    }

    fn interpreters_of(
        &mut self,
        words: &[Word],
        file: &Resolved,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        let Some((command, arguments)) = words.split_first() else { return };
        let Some(given) = command.literal() else { return };
        let found = match file {
            Resolved::File(found) => found,
            // A script may have any interpreter, and any first argument for it.
            Resolved::Unknown => return self.hide_words(words, OpaqueReason::Interpreter, within),
            Resolved::Builtin | Resolved::Missing => return,
        };
        let own = &self.context.request.cwd;
        let cwd = match place {
            LineCwd::Start => Some(own.clone()),
            LineCwd::After(_) | LineCwd::Unknown => resolve_place(own, place),
        };
        let cwd = cwd.unwrap_or_else(|| own.clone());
        let Interpreters { chain, may_go_on } = self.context.resolver.interpreters(found, &cwd);
        let lines =
            chain.iter().map(|one| (Word::Literal(one.path_text()), one.argument_text().map(Word::Literal)));
        let script = Word::Literal(program::script_name(given, found).to_owned());
        let last = interpreted_argv(script, arguments.iter().cloned(), lines);
        for (interpreter, argv) in with_arguments(&chain, &last) {
            let program = (&*interpreter.path_text(), interpreter.file.clone());
            self.program(argv, program, Scripts::Known, place, CommandSource::FromArgv, within);
        }
        if may_go_on {
            self.hide_words(words, OpaqueReason::Interpreter, within);
        }
    }

    /// Whether what an interpreter hides is what the script does: who allows the script allows that. The shell of a program that is
    /// many may run the others without an exec, where the gate counts on there being one.
    fn is_the_scripts_own(&self, name: &str, reason: OpaqueReason, within: &[String]) -> bool {
        let is_judged_otherwise = self.context.unseen == Unseen::JudgedAtExec
            && within.iter().any(|outer| kinds::runs_in_place(outer));
        !is_judged_otherwise && (kinds::is_shell(name) || kinds::is_taken_on_trust(name, reason))
    }
}
