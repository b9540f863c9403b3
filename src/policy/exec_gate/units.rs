//! What one exec consists of: the program, what a program that is many chooses by its name, what a loader loads, what interprets a
//! script.
//!
//! A wrapper (`env`, `xargs`, a shell) is only itself here: what it starts is an exec of its own. But one that is part of a program that
//! is many (`busybox xargs`) runs the other parts without one: what it runs is followed.

use super::{
    super::command::{
        called_from, git,
        interpreter::with_arguments,
        kinds,
        program::{self, ProgramResolver, Resolved},
        readings,
        rule::{base_name, resolve_place},
        shell::{LineCwd, OpaqueReason, Word},
        wrapper::{self, WrappedCommand},
    },
    ExecRequest, resolved,
};

/// Programs within one exec that are followed (`busybox` by way of a loader). Deeper is unknown.
const MAX_PROGRAMS: usize = 8;

/// Whether a part of an exec runs only if a rule allows it. Rules that deny or ask hold in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Needed,
    NotNeeded,
    /// It is what a program may also be: rules that allow say nothing about it, and it needs none.
    OtherReading,
}

/// One part of an exec: a program with its arguments.
#[derive(Debug)]
pub(super) struct ExecUnit {
    pub(super) words: Vec<Word>,
    pub(super) file: Resolved,
    /// Whether the file is what the trusted path gives this name.
    pub(super) is_itself: bool,
    pub(super) permission: Permission,
    /// The programs by way of which it runs.
    pub(super) within: Vec<String>,
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
pub(super) fn units_of(request: &ExecRequest<'_>, resolver: &dyn ProgramResolver) -> Vec<ExecUnit> {
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
    if is_elsewhere && called_from::is_of_its_place(&program.file, started_as, request.cwd, resolver) {
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
        git::is_of_git(&program.file, given, self.resolver)
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
