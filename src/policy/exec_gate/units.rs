//! What one exec consists of: the program, what a program that is many chooses by its name, what a loader loads, what interprets a
//! script.
//!
//! A wrapper (`env`, `xargs`, a shell) is only itself here: what it starts is an exec of its own.

use super::{
    super::command::{
        git, kinds,
        program::{self, Interpreter, ProgramResolver, Resolved},
        readings,
        rule::base_name,
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
    argv: &'a [String],
    file: Resolved,
    is_itself: bool,
}

/// All parts of an exec, the program first.
pub(super) fn units_of(request: &ExecRequest<'_>, resolver: &dyn ProgramResolver) -> Vec<ExecUnit> {
    let mut units = Units { resolver, cwd: request.cwd, units: Vec::new(), within: Vec::new() };
    let file = resolved(&request.file);
    let is_itself = resolver.is_named(&file, base_name(request.path));
    let program = Program { given: request.path, argv: request.argv, file, is_itself };
    units.program(&program, None);
    let mut argv: Vec<String> =
        std::iter::once(request.path.to_owned()).chain(request.argv.iter().skip(1).cloned()).collect();
    for Interpreter { path, argument, file } in request.interpreters {
        argv = std::iter::once(path.clone()).chain(argument.clone()).chain(argv).collect();
        let is_itself = resolver.is_named(file, base_name(path));
        let program = Program { given: path, argv: &argv, file: file.clone(), is_itself };
        // A rule that allows a script allows what interprets it.
        units.program(&program, Some(Permission::NotNeeded));
    }
    units.units
}

struct Units<'a> {
    resolver: &'a dyn ProgramResolver,
    cwd: &'a str,
    units: Vec<ExecUnit>,
    within: Vec<String>,
}

impl Units<'_> {
    /// Adds a program and what it runs in its own process. `permission`: instead of the one that it needs.
    fn program(&mut self, program: &Program<'_>, permission: Option<Permission>) {
        let base = base_name(program.given);
        let real_base = program.file.path().map_or(base, base_name);
        // A link to a loader is one, whatever it is called.
        let name = if kinds::is_dynamic_loader(real_base) { real_base } else { base };
        let words = words(program.given, program.argv.get(1..).unwrap_or_default());
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
        let is_applet = self.within.last().is_some_and(|outer| kinds::is_many_programs(outer));
        self.units.push(ExecUnit {
            words: words.clone(),
            file: program.file.clone(),
            is_itself: program.is_itself,
            permission: permission.unwrap_or(own),
            within: self.within.clone(),
        });
        self.within.push(name.to_owned());
        for inner in inner {
            self.wrapped(inner, permission);
        }
        self.other_name(program, base, real_base, permission);
        self.within.pop();
        if !is_applet && permission != Some(Permission::OtherReading) {
            self.other_readings(&words, program, program.is_itself, is_git);
        }
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
            let argv: Vec<String> =
                words.iter().filter_map(|word| word.literal().map(str::to_owned)).collect();
            let Some(given) = argv.first() else { continue };
            let file = program.file.clone();
            let program = Program { given, argv: &argv, file, is_itself: false };
            self.program(&program, Some(Permission::OtherReading));
        }
    }

    fn wrapped(&mut self, inner: WrappedCommand, permission: Option<Permission>) {
        let literals = match &inner {
            WrappedCommand::Argv { words, .. } => {
                words.iter().map(|word| word.literal().map(str::to_owned)).collect::<Option<Vec<String>>>()
            }
            WrappedCommand::ShellLine(..) | WrappedCommand::Opaque(_) => None,
        };
        let Some(argv) = literals.filter(|argv| !argv.is_empty() && self.within.len() < MAX_PROGRAMS) else {
            return self.unknown(permission);
        };
        let given = argv[0].clone();
        let outer = self.within.last().map_or("", String::as_str);
        if kinds::is_many_programs(outer) {
            return self.applet(&given, &argv, permission);
        }
        let file = program::resolve_command(self.resolver, &given, self.cwd, &LineCwd::Start);
        let is_itself = !given.contains('/') || self.resolver.is_named(&file, base_name(&given));
        self.program(&Program { given: &given, argv: &argv, file, is_itself }, permission);
    }

    /// Adds what a program that is many runs under this name. It is itself, whatever files there are; but a shell is one that
    /// everything goes through only where the trusted path says so: it may run other applets without an exec.
    fn applet(&mut self, name: &str, argv: &[String], permission: Option<Permission>) {
        let file = self.units.last().map_or(Resolved::Unknown, |unit| unit.file.clone());
        let is_itself = !kinds::is_shell(name) || self.resolver.is_named(&file, name);
        self.program(&Program { given: name, argv, file, is_itself }, permission);
        if !is_itself {
            self.unknown(permission.or(Some(Permission::NotNeeded)));
        }
    }

    /// A program that is started under another name than that of its file may be what that name says.
    fn other_name(
        &mut self,
        program: &Program<'_>,
        base: &str,
        real_base: &str,
        permission: Option<Permission>,
    ) {
        let Some(name) = program.argv.first().map(|first| base_name(first)) else { return };
        // A login shell.
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.is_empty() || name == base || self.within.len() >= MAX_PROGRAMS {
            return;
        }
        let is_git = name.starts_with("git-") && self.is_git(program, name);
        let argv: Vec<String> =
            std::iter::once(name.to_owned()).chain(program.argv.iter().skip(1).cloned()).collect();
        let words = words(name, &argv[1..]);
        if kinds::chooses_by_name(real_base) || is_git {
            self.applet(name, &argv, permission);
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

fn words(given: &str, arguments: &[String]) -> Vec<Word> {
    std::iter::once(given.to_owned()).chain(arguments.iter().cloned()).map(Word::Literal).collect()
}
