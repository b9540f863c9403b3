//! Evaluates an exec: what the rules say about a program that a process of a running terminal executes.
//!
//! The exec gate asks, with the file that the kernel would execute and the arguments that it would be given. Nothing is unknown here, so
//! that nothing is guessed. The rules are those of requests. They are asked about each unit that the exec consists of: the program, what a
//! program that is many chooses by its name, what a loader loads, what interprets a script.
//!
//! A wrapper (`env`, `xargs`, a shell) is only itself here: what it starts is an exec of its own. But one that is part of a program that is
//! many (`busybox xargs`) runs the other parts without one: what it runs is followed.

use std::collections::BTreeMap;

pub use super::command::rule::Decision as ExecDecision;
use crate::{
    approval::{ApprovedCommand, ExecutedCommand},
    command::{
        kinds,
        program::{self, FileId, Interpreter, ProgramResolver, Resolved, with_arguments},
        readings,
        rule::{CommandRole, Decision, RequestContext, Rule, RuleSubject, base_name, resolve_place},
        shell::{LineCwd, OpaqueReason, Word},
        verdict::{DecisionReason, Doubt, RuleAnswers, Unit},
        wrapper::{self, WrappedCommand},
    },
    profile::ProfileName,
    set::PolicySet,
};

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
    /// ([`interpreted_argv`](super::command::program::interpreted_argv)).
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
pub(super) struct EvaluatedUnits {
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
    ) -> EvaluatedUnits {
        let env = match (self.judges_environment_of_execs(), request.env) {
            (false, None) => BTreeMap::new(),
            (_, Some(env)) => env.clone(),
            (true, None) => return EvaluatedUnits::without_environment(),
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
        EvaluatedUnits { verdict, units }
    }
}

impl EvaluatedUnits {
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

/// Programs within one exec that are followed (`busybox` by way of a loader). Deeper is unknown.
const MAX_PROGRAMS: usize = 8;

/// Whether a part of an exec runs only if a rule allows it. Rules that deny or ask hold in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Needed,
    NotNeeded,
    /// It is what a program may also be: rules that allow say nothing about it, and it needs none.
    OtherReading,
}

/// One part of an exec: a program with its arguments.
#[derive(Debug)]
struct ExecUnit {
    words: Vec<Word>,
    file: Resolved,
    /// Whether the file is what the trusted path gives this name.
    is_itself: bool,
    permission: Permission,
    /// The programs by way of which it runs.
    within: Vec<String>,
}

/// A program that the kernel or another program would run without an exec of its own.
struct Program<'a> {
    /// The path, or an applet's name.
    given: &'a str,
    /// The name that it is started under.
    started_as: &'a str,
    arguments: &'a [Word],
    file: Resolved,
    is_itself: bool,
    /// Whether it is one of the programs that another one is.
    is_applet: bool,
}

/// All parts of an exec, the program first.
fn units_of(request: &ExecRequest<'_>, resolver: &dyn ProgramResolver) -> Vec<ExecUnit> {
    let mut units =
        Units { resolver, cwd: request.cwd, units: Vec::new(), within: Vec::new(), runs_applets: false };
    let file = resolved(&request.file);
    let is_itself = resolver.is_named(&file, base_name(request.path));
    let started_as = request.argv.first().map_or(request.path, String::as_str);
    let arguments = literals(request.argv);
    let given = request.path;
    let program = Program { given, started_as, arguments: &arguments, file, is_itself, is_applet: false };
    // What takes its place from the name that it is given is the program of that place, too.
    let is_elsewhere = started_as.contains('/') && started_as != given;
    if is_elsewhere && kinds::is_of_its_place(&program.file, started_as, request.cwd, resolver) {
        let started_as = resolve_place(request.cwd, &LineCwd::After(started_as.to_owned()));
        units.units.extend(started_as.map(|path| ExecUnit {
            words: words(&path, &arguments),
            file: program.file.clone(),
            is_itself: false,
            permission: Permission::Needed,
            within: Vec::new(),
        }));
    }
    units.program(&program, None);
    for (interpreter, argv) in with_arguments(request.interpreters, request.final_argv) {
        let (path, file) = (interpreter.path_text(), interpreter.file.clone());
        let is_itself = resolver.is_named(&file, base_name(&path));
        let arguments = literals(argv);
        let (given, started_as) = (path.as_ref(), path.as_ref());
        let program = Program { given, started_as, arguments: &arguments, file, is_itself, is_applet: false };
        // A rule that allows a script allows what interprets it.
        units.program(&program, Some(Permission::NotNeeded));
    }
    units.units
}

/// The arguments behind the program's name.
fn literals(argv: &[String]) -> Vec<Word> {
    argv.iter().skip(1).cloned().map(Word::Literal).collect()
}

struct Units<'a> {
    resolver: &'a dyn ProgramResolver,
    cwd: &'a str,
    units: Vec<ExecUnit>,
    within: Vec<String>,
    /// Whether what is looked at runs applets by their names in its own process.
    runs_applets: bool,
}

impl Units<'_> {
    /// Adds a program and what it runs in its own process. `permission`: instead of the one that it needs.
    fn program(&mut self, program: &Program<'_>, permission: Option<Permission>) {
        let base = base_name(program.given);
        let real_base = program.file.path().map_or(base, base_name);
        // A link to a loader is one, whatever it is called.
        let name = if kinds::is_dynamic_loader(real_base) { real_base } else { base };
        let words = words(program.given, program.arguments);
        let is_of_many = kinds::runs_applets(name) || kinds::runs_applets(real_base);
        let around = self.runs_applets;
        self.runs_applets = is_of_many || (program.is_applet && around);
        let inner = match permission {
            Some(Permission::OtherReading) if kinds::runs_in_place(name) => readings::unwrap(&words),
            _ => self.inner(program, name, &words),
        };
        let is_git = name.starts_with("git-") && !inner.is_empty();
        let is_transparent = match () {
            () if kinds::is_shell(name) => program.is_itself,
            () if kinds::is_many_programs(name) => program.is_itself && !inner.is_empty(),
            () if name.starts_with("git-") => is_git,
            () => program.is_itself && kinds::is_transparent(name),
        };
        let own = match is_transparent {
            true => Permission::NotNeeded,
            false => Permission::Needed,
        };
        self.units.push(ExecUnit {
            words: words.clone(),
            file: program.file.clone(),
            is_itself: program.is_itself,
            permission: permission.unwrap_or(own),
            within: self.within.clone(),
        });
        // A shell is one that everything goes through only where the trusted path says so: it may run applets without an exec.
        if kinds::is_shell(name) && !program.is_itself && self.runs_applets {
            self.unknown(permission.or(Some(Permission::NotNeeded)));
        }
        self.within.push(name.to_owned());
        for inner in inner {
            self.wrapped(inner, program, permission);
        }
        self.other_name(program, base, real_base, permission);
        self.within.pop();
        if !program.is_applet && permission != Some(Permission::OtherReading) {
            self.other_readings(&words, program, program.is_itself, is_git);
        }
        self.runs_applets = around;
    }

    /// What a program runs in its own process, by its arguments. `busybox` as `ls` has no applet in them.
    fn inner(&self, program: &Program<'_>, name: &str, words: &[Word]) -> Vec<WrappedCommand> {
        // git runs what the trusted path has under such a name as its subcommand, too.
        let is_git = || {
            name.starts_with("git-")
                && (self.resolver.is_named(&program.file, name) || self.is_git(program, program.given))
        };
        match kinds::runs_in_place(name) || is_git() {
            true => wrapper::unwrap(name, words),
            // The line of a shell is not followed: what becomes of the shell has been decided.
            false if self.runs_applets && !kinds::is_shell(name) => wrapper::unwrap_applet(name, words),
            false => Vec::new(),
        }
    }

    fn is_git(&self, program: &Program<'_>, given: &str) -> bool {
        readings::is_of_git(&program.file, given, self.resolver)
    }

    /// Adds what else a program may be.
    fn other_readings(&mut self, words: &[Word], program: &Program<'_>, is_itself: bool, is_git: bool) {
        if self.within.len() >= MAX_PROGRAMS {
            return;
        }
        for words in readings::other_readings(words, &program.file, is_itself, is_git) {
            let Some((Word::Literal(given), arguments)) = words.split_first() else { continue };
            let (file, is_itself, is_applet) = (program.file.clone(), false, false);
            let program = Program { given, started_as: given, arguments, file, is_itself, is_applet };
            self.program(&program, Some(Permission::OtherReading));
        }
    }

    /// Adds what `outer` runs.
    fn wrapped(&mut self, inner: WrappedCommand, outer: &Program<'_>, permission: Option<Permission>) {
        let words = match inner {
            WrappedCommand::Argv { words, .. } => words,
            WrappedCommand::ShellLine(line, _) if self.runs_applets => {
                ["sh".to_owned(), "-c".to_owned(), line].map(Word::Literal).to_vec()
            }
            WrappedCommand::ShellLine(..) | WrappedCommand::Opaque(_) => return self.unknown(permission),
        };
        let Some((Word::Literal(given), arguments)) = words.split_first() else {
            return self.unknown(permission);
        };
        if self.within.len() >= MAX_PROGRAMS {
            return self.unknown(permission);
        }
        let is_many = self.within.last().is_some_and(|outer| kinds::is_many_programs(outer));
        if is_many || (self.runs_applets && !given.contains('/')) {
            return self.applet(given, arguments, &outer.file, permission);
        }
        // An applet executes what it finds by a path, and that is judged by itself.
        let permission = permission.or(self.runs_applets.then_some(Permission::NotNeeded));
        let file = program::resolve_command(self.resolver, given, self.cwd, &LineCwd::Start);
        let is_itself = !given.contains('/') || self.resolver.is_named(&file, base_name(given));
        let (started_as, is_applet) = (given.as_str(), false);
        self.program(&Program { given, started_as, arguments, file, is_itself, is_applet }, permission);
    }

    /// Adds what a program that is many runs under this name. It is itself, whatever files there are, but for a shell.
    fn applet(&mut self, name: &str, arguments: &[Word], of: &Resolved, permission: Option<Permission>) {
        let base = base_name(name);
        let is_itself = !kinds::is_shell(base) || self.resolver.is_named(of, base);
        let (file, is_applet) = (of.clone(), true);
        let program = Program { given: name, started_as: name, arguments, file, is_itself, is_applet };
        self.program(&program, permission);
    }

    /// A program that is started under another name than that of its file may be what that name says.
    fn other_name(
        &mut self,
        program: &Program<'_>,
        base: &str,
        real_base: &str,
        permission: Option<Permission>,
    ) {
        let name = base_name(program.started_as);
        // A login shell.
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.is_empty() || name == base || self.within.len() >= MAX_PROGRAMS {
            return;
        }
        let is_git = name.starts_with("git-") && self.is_git(program, name);
        let words = words(name, program.arguments);
        if kinds::chooses_by_name(real_base) || is_git {
            self.applet(name, program.arguments, &program.file, permission);
        } else {
            self.units.push(ExecUnit {
                words: words.clone(),
                file: program.file.clone(),
                is_itself: false,
                permission: Permission::NotNeeded,
                within: self.within.clone(),
            });
        }
        if permission != Some(Permission::OtherReading) {
            let is_itself = self.resolver.is_named(&program.file, name);
            self.other_readings(&words, program, is_itself, is_git);
        }
    }

    /// Adds a program that cannot be known: any rule that denies or asks may be about it.
    fn unknown(&mut self, permission: Option<Permission>) {
        let text = self.units.last().and_then(|unit| unit.words.first()?.literal()).unwrap_or_default();
        let words = vec![Word::Opaque { text: text.to_owned(), reason: OpaqueReason::Wrapper }];
        self.units.push(ExecUnit {
            words,
            file: Resolved::Unknown,
            is_itself: false,
            permission: permission.unwrap_or(Permission::Needed),
            within: self.within.clone(),
        });
    }
}

fn words(given: &str, arguments: &[Word]) -> Vec<Word> {
    std::iter::once(Word::Literal(given.to_owned())).chain(arguments.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
