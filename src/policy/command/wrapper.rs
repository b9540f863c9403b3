//! Wrappers: programs that run the command given in their arguments (`env`, `sudo`, `xargs`, `sh -c`, ...).
//!
//! The evaluator must see through them: what a wrapper runs is evaluated as if it stood alone. Only what the wrapper's own manual says is
//! followed; an option that is not known hides the inner command, and that is said, not guessed. Programs that run *configured* commands
//! (`git`, `make`, `npm`) are no wrappers: nothing in their arguments tells what they run.
//!
//! What `xargs` and `find` put into a command is not known. What may be replaced by it, or may turn out to be an option that runs
//! something, is taken to be. Where a wrapper's own options end is found as getopt(3) does: clusters of short options, attached and
//! separate values, `--`.

use std::collections::BTreeSet;

use super::{
    builtin::{is_harmless_option, keeps_reading},
    kinds::{HIDING, chooses_versions, is_dynamic_loader, is_hiding_applet, is_many_programs},
    shell::{Dialect, OpaqueReason, Word},
};

/// What a wrapper runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrappedCommand {
    /// A command by its argument vector, with the environment that the wrapper gives it.
    Argv {
        /// Assignments by the wrapper (`env NAME=VALUE`).
        assignments: Vec<(String, Word)>,
        /// What the wrapper takes out of the environment.
        removed: Removed,
        /// The inner argument vector; never empty.
        words: Vec<Word>,
    },
    /// A line for a shell; for the one that reads the wrapper itself where none is named.
    ShellLine(String, Option<Dialect>),
    /// Something that can't be seen.
    Opaque(OpaqueReason),
}

/// What a wrapper takes out of the environment of what it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// These variables.
    Names(Vec<String>),
    /// All (`env -i`).
    All,
}

impl Removed {
    const NOTHING: Self = Self::Names(Vec::new());
}

/// What `words` runs in addition to itself. Empty for a program that is no wrapper, or that has no inner command.
///
/// `name` is the program's base name.
pub fn unwrap(name: &str, words: &[Word]) -> Vec<WrappedCommand> {
    let args = words.get(1..).unwrap_or(&[]);
    match name {
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash" => shell(name, args),
        "env" => env(args),
        "nohup" | "coproc" | "noglob" | "nocorrect" | "-" => after(args, &PLAIN),
        "repeat" => after(args, &OptionSpec { operands: 1, ..PLAIN }),
        "setsid" => after(args, &OptionSpec { short: "cfw", long: &["ctty", "fork", "wait"], ..PLAIN }),
        "command" | "builtin" => command_builtin(args),
        // `-a` gives another name, by which some programs choose what they do.
        "exec" => without(after(args, &OptionSpec { short: "cl", ..PLAIN }), args, 'c', &Removed::All),
        "time" => after(
            args,
            &OptionSpec {
                short: "pvaq",
                short_with_value: "fo",
                long_with_value: &["format", "output"],
                long: &["append", "verbose", "quiet", "portability"],
                ..PLAIN
            },
        ),
        "nice" => {
            after(args, &OptionSpec { short_with_value: "n", long_with_value: &["adjustment"], ..PLAIN })
        }
        "ionice" => after(
            args,
            &OptionSpec {
                short: "t",
                short_with_value: "cnpPu",
                long_with_value: &["class", "classdata", "pid", "pgid", "uid"],
                long: &["ignore"],
                ..PLAIN
            },
        ),
        "chrt" => after(args, &OptionSpec { short: "abdfiorRvm", operands: 1, ..PLAIN }),
        "taskset" => {
            after(args, &OptionSpec { short: "ac", long: &["all-tasks", "cpu-list"], operands: 1, ..PLAIN })
        }
        "timeout" => after(
            args,
            &OptionSpec {
                short: "vfp",
                short_with_value: "ks",
                long_with_value: &["kill-after", "signal"],
                long: &["foreground", "preserve-status", "verbose"],
                operands: 1,
                ..PLAIN
            },
        ),
        "stdbuf" => after(
            args,
            &OptionSpec { short_with_value: "ioe", long_with_value: &["input", "output", "error"], ..PLAIN },
        ),
        "sudo" | "doas" => sudo(args),
        "xargs" => xargs(args),
        "find" => find(args),
        _ if is_many_programs(name) => applet(args),
        "watch" => joined(after(
            args,
            &OptionSpec {
                short: "bcdegtx",
                short_with_value: "nq",
                long_with_value: &["interval", "equexit"],
                long: &["beep", "color", "differences", "errexit", "chgexit", "no-title", "exec"],
                ..PLAIN
            },
        )),
        "eval" => joined(after(args, &PLAIN)),
        "trap" => trap(args),
        "flock" => flock(args),
        "source" | "." => opaque(OpaqueReason::Script),
        "set" if !keeps_reading(args) => opaque(OpaqueReason::Dialect),
        "enable" | "alias" | "hash" if !args.is_empty() => opaque(OpaqueReason::Assignment),
        // `-x` runs the rest, with the numbers of processes in place of those of jobs.
        "jobs" if args.iter().any(|word| word.literal().is_none_or(|text| text.starts_with('-'))) => {
            after(args, &OptionSpec { short: "lnprsx", ..PLAIN })
        }
        // These are zsh's: they run a line, bring functions from files, or take the shell's own words away.
        "emulate" | "sched" | "autoload" | "zmodload" | "disable" | "zle" | "zstyle" | "setopt"
        | "unsetopt"
            if !args.is_empty() =>
        {
            opaque(OpaqueReason::Wrapper)
        }
        "compgen" | "complete" | "mapfile" | "readarray" | "bind" | "fc" if !args.is_empty() => {
            opaque(OpaqueReason::Wrapper)
        }
        _ if HIDING.contains(&name) && !asks_only(args) => opaque(OpaqueReason::Wrapper),
        _ if chooses_versions(name) && args.iter().any(may_execute) => opaque(OpaqueReason::Wrapper),
        // git(1) is installed under one name for each of its commands, too.
        _ if name.starts_with("git-") => {
            let mut words = vec![Word::Literal("git".into()), Word::Literal(name[4..].into())];
            words.extend_from_slice(args);
            argv(&words)
        }
        _ if is_dynamic_loader(name) && !args.is_empty() => loader(args),
        _ => Vec::new(),
    }
}

/// As [`unwrap`], for a program that is one of many. Such ones run others without an exec, also where the program of the same name
/// would execute them.
pub fn unwrap_applet(name: &str, words: &[Word]) -> Vec<WrappedCommand> {
    match is_hiding_applet(name, words.get(1..).unwrap_or(&[])) {
        true => opaque(OpaqueReason::Wrapper),
        false => unwrap(name, words),
    }
}

/// Whether a program is only asked about itself.
fn asks_only(args: &[Word]) -> bool {
    matches!(args, [only] if matches!(only.literal(), Some("--help" | "--version" | "-V")))
}

/// Whether a word is a subcommand by which such a program runs another.
fn may_execute(word: &Word) -> bool {
    word.literal().is_none_or(|text| matches!(text, "exec" | "run" | "x" | "shell" | "which-exec"))
}

fn opaque(reason: OpaqueReason) -> Vec<WrappedCommand> {
    vec![WrappedCommand::Opaque(reason)]
}

fn argv(words: &[Word]) -> Vec<WrappedCommand> {
    if words.is_empty() {
        return Vec::new();
    }
    vec![WrappedCommand::Argv { assignments: Vec::new(), removed: Removed::NOTHING, words: words.to_vec() }]
}

/// What runs without these variables where a wrapper's own options have this letter (`exec -c`, `command -p`).
fn without(
    mut inner: Vec<WrappedCommand>,
    args: &[Word],
    letter: char,
    gone: &Removed,
) -> Vec<WrappedCommand> {
    let own = args.iter().map_while(|word| word.literal().filter(|text| text.starts_with('-')));
    if own.into_iter().any(|option| option.contains(letter)) {
        for inner in &mut inner {
            if let WrappedCommand::Argv { removed, .. } = inner {
                *removed = gone.clone();
            }
        }
    }
    inner
}

fn after(args: &[Word], options: &OptionSpec) -> Vec<WrappedCommand> {
    match skip(args, options) {
        Ok(rest) => argv(rest),
        Err(reason) => opaque(reason),
    }
}

/// `command -v NAME` only asks; `command NAME ...` runs.
fn command_builtin(args: &[Word]) -> Vec<WrappedCommand> {
    match args.first().and_then(Word::literal) {
        Some("-v" | "-V") => Vec::new(),
        // `-p` looks on a path of the system's own, as what runs without PATH does.
        _ => {
            let path = Removed::Names(vec!["PATH".into()]);
            without(after(args, &OptionSpec { short: "p", ..PLAIN }), args, 'p', &path)
        }
    }
}

/// Inner words joined to one line, as `eval` and `watch` do.
fn joined(inner: Vec<WrappedCommand>) -> Vec<WrappedCommand> {
    inner
        .into_iter()
        .map(|inner| match inner {
            WrappedCommand::Argv { words, .. } => {
                let texts: Option<Vec<&str>> = words.iter().map(Word::literal).collect();
                match texts {
                    Some(texts) => WrappedCommand::ShellLine(texts.join(" "), None),
                    None => WrappedCommand::Opaque(OpaqueReason::Expansion),
                }
            }
            other => other,
        })
        .collect()
}

fn shell(name: &str, args: &[Word]) -> Vec<WrappedCommand> {
    let mut at = 0;
    let mut line_follows = false;
    let mut reads_start_files = false;
    while let Some(word) = args.get(at) {
        let Some(text) = word.literal() else { return opaque(OpaqueReason::Expansion) };
        match text {
            "--" | "-" => {
                at += 1;
                break;
            }
            "--help" | "--version" => return Vec::new(),
            // Files that a shell reads at its start may have been written by a command before; and zsh takes `-c +` for something.
            "--rcfile" | "--init-file" | "+" => return opaque(OpaqueReason::Wrapper),
            "--login" => {
                reads_start_files = true;
                at += 1;
            }
            "--norc" | "--noprofile" | "--posix" | "--restricted" | "--verbose" | "--noediting" => {
                at += 1;
            }
            _ if text.starts_with("--") => return opaque(OpaqueReason::Wrapper),
            // zsh takes `- LINE` for a line.
            _ if text.starts_with(['-', '+']) && !text[1..].chars().all(|c| c.is_ascii_alphanumeric()) => {
                return opaque(OpaqueReason::Wrapper);
            }
            _ if text.len() > 1 && (text.starts_with('-') || text.starts_with('+')) => {
                line_follows |= text.starts_with('-') && text.contains('c');
                if text.contains('s') {
                    return opaque(OpaqueReason::Input);
                }
                let names_option = text.ends_with('o');
                if text[..text.len() - usize::from(names_option)].contains(['o', 'O', 'k', 'H', 't', 'P']) {
                    return opaque(OpaqueReason::Dialect);
                }
                // A login shell, or an interactive one.
                reads_start_files |= text.contains(['l', 'i']);
                let named = args.get(at + 1).and_then(Word::literal);
                if names_option && !named.is_some_and(is_harmless_option) {
                    return opaque(OpaqueReason::Dialect);
                }
                at += if names_option { 2 } else { 1 };
            }
            _ => break,
        }
    }
    let mut inner = match (line_follows, args.get(at)) {
        (true, Some(Word::Literal(line))) => {
            vec![WrappedCommand::ShellLine(line.clone(), Some(Dialect::of(name)))]
        }
        (true, Some(Word::Opaque { reason, .. })) => opaque(*reason),
        (true, None) => Vec::new(),
        (false, Some(_)) => opaque(OpaqueReason::Script),
        (false, None) => opaque(OpaqueReason::Input),
    };
    if reads_start_files {
        inner.push(WrappedCommand::Opaque(OpaqueReason::Wrapper));
    }
    inner
}

fn applet(args: &[Word]) -> Vec<WrappedCommand> {
    match args.first().map(Word::literal) {
        Some(Some(name)) if !name.starts_with('-') => argv(args),
        Some(Some("--help" | "--version" | "--list" | "--list-full" | "--install" | "--long")) | None => {
            Vec::new()
        }
        // `coreutils --coreutils-prog=NAME`.
        Some(Some(_) | None) => opaque(OpaqueReason::Wrapper),
    }
}

fn trap(args: &[Word]) -> Vec<WrappedCommand> {
    let args = match args.first().and_then(Word::literal) {
        Some("--") => &args[1..],
        _ => args,
    };
    match args.first() {
        None => Vec::new(),
        Some(Word::Literal(text)) if text == "-" || text == "-l" || text == "-p" || text.is_empty() => {
            Vec::new()
        }
        Some(Word::Literal(line)) => vec![WrappedCommand::ShellLine(line.clone(), None)],
        Some(Word::Opaque { reason, .. }) => opaque(*reason),
    }
}

fn flock(args: &[Word]) -> Vec<WrappedCommand> {
    let options = OptionSpec {
        short: "sxeunoFv",
        short_with_value: "wE",
        long_with_value: &["timeout", "wait", "conflict-exit-code"],
        long: &["shared", "exclusive", "unlock", "nonblock", "nb", "close", "no-fork", "verbose"],
        operands: 1,
        ..PLAIN
    };
    match skip(args, &options) {
        Ok([Word::Literal(flag), Word::Literal(line), ..]) if flag == "-c" || flag == "--command" => {
            vec![WrappedCommand::ShellLine(line.clone(), Some(Dialect::Posix))]
        }
        Ok([first, ..]) if first.literal().is_none_or(|w| w.starts_with('-')) => {
            opaque(OpaqueReason::Wrapper)
        }
        Ok(rest) => argv(rest),
        Err(reason) => opaque(reason),
    }
}

/// `ld.so [OPTION]... PROGRAM [ARG]...`
fn loader(args: &[Word]) -> Vec<WrappedCommand> {
    let options = OptionSpec {
        // What loads other code (`--preload`, `--library-path`, `--audit`), or names the program otherwise, hides.
        long: &["list", "verify", "inhibit-cache", "list-tunables", "list-diagnostics", "help", "version"],
        ..PLAIN
    };
    after(args, &options)
}

fn env(args: &[Word]) -> Vec<WrappedCommand> {
    let options = OptionSpec {
        short: "iv0",
        short_with_value: "u",
        long_with_value: &["unset"],
        long: &["ignore-environment", "debug", "null", "default-signal", "ignore-signal", "block-signal"],
        ..PLAIN
    };
    // `-` alone means `-i`; `-S` splits its value into words by rules of its own, and `-C` goes elsewhere: both hide.
    let is_alone = args.first().and_then(Word::literal) == Some("-");
    let args = if is_alone { &args[1..] } else { args };
    let mut inner = with_assignments(args, &options);
    if let [WrappedCommand::Argv { removed, words, assignments }] = inner.as_mut_slice() {
        let own = &args[..args.len() - words.len() - assignments.len()];
        *removed = if is_alone { Removed::All } else { removed_by_env(own) };
    }
    inner
}

/// What env(1) makes of the first line of a script that splits words (`#!/usr/bin/env -S python3 -u`), with the words instead of the
/// option. `None` where it splits none, or where some of the characters have a meaning in it.
pub(in crate::command) fn split_first_line(words: &[Word]) -> Option<Vec<Word>> {
    let [program, first, rest @ ..] = words else { return None };
    let first = first.literal()?;
    let inline = first.strip_prefix("--split-string=").or_else(|| {
        let value = first.strip_prefix("-S").or_else(|| first.strip_prefix("-vS"))?;
        (!value.is_empty()).then_some(value)
    });
    let (value, rest) = match inline {
        Some(value) => (value, rest),
        None if matches!(first, "-S" | "-vS" | "--split-string") => (rest.first()?.literal()?, &rest[1..]),
        None => return None,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " \t-_./:=,+@%".contains(c);
    let words = value.split([' ', '\t']).filter(|word| !word.is_empty());
    let words = words.map(|word| Word::Literal(word.to_owned()));
    let whole = std::iter::once(program.clone()).chain(words).chain(rest.iter().cloned());
    value.chars().all(is_plain).then(|| whole.collect())
}

/// What the options of env(1) take out of the environment. They are known to be options that it has.
fn removed_by_env(own: &[Word]) -> Removed {
    let mut names = Vec::new();
    let mut words = own.iter().filter_map(Word::literal);
    while let Some(option) = words.next() {
        let (before, name) = match option.strip_prefix("--") {
            Some("ignore-environment") => return Removed::All,
            Some("unset") => ("", words.next()),
            Some(long) => ("", long.strip_prefix("unset=")),
            None => match option.split_once('u') {
                Some((before, "")) => (before, words.next()),
                Some((before, name)) => (before, Some(name)),
                None => (option, None),
            },
        };
        if before.contains('i') {
            return Removed::All;
        }
        names.extend(name.map(str::to_owned));
    }
    Removed::Names(names)
}

fn sudo(args: &[Word]) -> Vec<WrappedCommand> {
    // What starts a shell or goes elsewhere (`-s`, `-i`, `-e`, `-D`, `-R`) is not known here, and so hides.
    let options = OptionSpec {
        short: "AbBEHKklLnPSVv",
        short_with_value: "aCcghprTtUu",
        long_with_value: &["user", "group", "host", "prompt", "role", "type", "close-from"],
        long: &["non-interactive", "preserve-env", "set-home", "stdin", "background", "askpass"],
        ..PLAIN
    };
    with_assignments(args, &options)
}

fn with_assignments(args: &[Word], options: &OptionSpec) -> Vec<WrappedCommand> {
    let rest = match skip(args, options) {
        Ok(rest) => rest,
        Err(reason) => return opaque(reason),
    };
    let mut assignments = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        match word.literal().map(|text| text.split_once('=')) {
            Some(Some((name, value))) if !name.is_empty() => {
                assignments.push((name.to_owned(), Word::Literal(value.to_owned())));
            }
            Some(_) => {
                let words = rest[at..].to_vec();
                return vec![WrappedCommand::Argv { assignments, removed: Removed::NOTHING, words }];
            }
            None => return opaque(OpaqueReason::Wrapper),
        }
    }
    Vec::new()
}

fn xargs(args: &[Word]) -> Vec<WrappedCommand> {
    let options = OptionSpec {
        short: "0oprtx",
        short_with_value: "aEdILnPs",
        short_attached: "eil",
        long_with_value: &["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"],
        long: &[
            "null",
            "open-tty",
            "interactive",
            "no-run-if-empty",
            "verbose",
            "exit",
            "eof",
            "max-lines",
            "replace",
            "show-limits",
        ],
        ..PLAIN
    };
    match skip(args, &options) {
        // Without a command it runs echo.
        Ok([]) => Vec::new(),
        Ok(rest) => {
            let marks = replaced_by_xargs(&args[..args.len() - rest.len()]);
            if marks.len() > MAX_MARKS {
                return opaque(OpaqueReason::TooMany);
            }
            let mut words: Vec<Word> = rest.iter().map(|word| unknown_where(word, &marks)).collect();
            words.push(Word::Opaque { text: "...".into(), reason: OpaqueReason::Input });
            argv(&words)
        }
        Err(reason) => opaque(reason),
    }
}

/// More texts to be replaced than this are not looked for.
const MAX_MARKS: usize = 8;

/// The texts that xargs may replace by its input, in every word of its command. What stands like an option may be
/// another's value: each text that would be one is taken.
fn replaced_by_xargs(own: &[Word]) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for (at, word) in own.iter().enumerate() {
        let Some(option) = word.literal().filter(|text| text.starts_with('-')) else { continue };
        let or_braces = |text: &str| if text.is_empty() { "{}".to_owned() } else { text.to_owned() };
        if let Some(rest) = option.strip_prefix("--replace") {
            marks.insert(or_braces(rest.trim_start_matches('=')));
        } else if !option.starts_with("--") {
            let next = || own.get(at + 1).and_then(Word::literal).unwrap_or("{}");
            let with_value =
                option.split_once('I').map(|(_, rest)| if rest.is_empty() { next() } else { rest });
            marks.extend(with_value.map(str::to_owned));
            marks.extend(option.split_once('i').map(|(_, rest)| or_braces(rest)));
        }
    }
    marks
}

fn unknown_where<T: AsRef<str>>(word: &Word, marks: impl IntoIterator<Item = T>) -> Word {
    match word.literal() {
        Some(text) if marks.into_iter().any(|mark| text.contains(mark.as_ref())) => {
            Word::Opaque { text: text.to_owned(), reason: OpaqueReason::Input }
        }
        _ => word.clone(),
    }
}

const FIND_RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// More commands of one find than this are not looked at.
const MAX_RUNS: usize = 16;

fn find(args: &[Word]) -> Vec<WrappedCommand> {
    let mut wrapped = Vec::new();
    let mut rest = args;
    while let Some((word, inner)) = rest.split_first() {
        rest = inner;
        match word {
            Word::Literal(text) if FIND_RUNS.contains(&text.as_str()) => {
                if wrapped.len() >= MAX_RUNS {
                    wrapped.extend(opaque(OpaqueReason::TooMany));
                    return wrapped;
                }
                let is = |at: usize, text: &str| inner.get(at).and_then(Word::literal) == Some(text);
                // A plus ends it behind the braces only; to busybox, everywhere.
                let ends = |at: &usize| is(*at, ";") || (is(*at, "+") && *at > 0 && is(*at - 1, "{}"));
                let end = (0..inner.len()).find(ends).unwrap_or(inner.len());
                let words: Vec<Word> = inner[..end].iter().map(|word| unknown_where(word, ["{}"])).collect();
                wrapped.extend(argv(&words));
                let first_plus = (0..end).find(|at| is(*at, "+")).unwrap_or(end);
                rest = &inner[first_plus..];
            }
            // It may become one of these options, and what stands behind it a command.
            Word::Opaque { text, reason } if FIND_RUNS.iter().any(|name| may_become(text, *reason, name)) => {
                wrapped.extend(opaque(*reason));
                return wrapped;
            }
            Word::Literal(_) | Word::Opaque { .. } => {}
        }
    }
    wrapped
}

/// Whether a word, as written, may turn out to be this one, or several of which it is one.
fn may_become(written: &str, reason: OpaqueReason, name: &str) -> bool {
    if reason != OpaqueReason::Pattern {
        return true;
    }
    // Names of files have what stands before and behind the pattern itself.
    let is_special = |c: char| "*?[]{}~'\"\\$,=".contains(c);
    match (written.find(is_special), written.rfind(is_special)) {
        (Some(first), Some(last)) => {
            name.starts_with(&written[..first]) && name.ends_with(&written[last + 1..])
        }
        _ => true,
    }
}

/// How the options of a wrapper are written.
pub(super) struct OptionSpec {
    /// Short options that take a value, attached or as the next word.
    pub(super) short_with_value: &'static str,
    /// Short options whose value, if there is one, is the rest of the same word.
    pub(super) short_attached: &'static str,
    /// Short options that take none.
    pub(super) short: &'static str,
    /// Long options that take a value, attached by `=` or as the next word.
    pub(super) long_with_value: &'static [&'static str],
    /// Long options that take none (or one attached by `=` only).
    pub(super) long: &'static [&'static str],
    /// Words between the options and the inner command (`timeout DURATION`).
    pub(super) operands: usize,
}

/// No options of its own.
pub(super) const PLAIN: OptionSpec = OptionSpec {
    short_with_value: "",
    short_attached: "",
    short: "",
    long_with_value: &[],
    long: &["help", "version"],
    operands: 0,
};

/// The words after a wrapper's own options and operands. `Err` where an option is not known or not visible.
pub(super) fn skip<'a>(args: &'a [Word], options: &OptionSpec) -> Result<&'a [Word], OpaqueReason> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let Some(text) = word.literal() else { return Err(OpaqueReason::Wrapper) };
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, attached) = match long.split_once('=') {
                Some((name, _)) => (name, true),
                None => (long, false),
            };
            if options.long_with_value.contains(&name) {
                at += if attached { 1 } else { 2 };
            } else if options.long.contains(&name) {
                at += 1;
            } else {
                return Err(OpaqueReason::Wrapper);
            }
        } else if text.len() > 1 && text.starts_with('-') {
            at += 1 + short_values(&text[1..], options)?;
        } else {
            break;
        }
    }
    let rest = args.get(at..).unwrap_or(&[]);
    Ok(rest.get(options.operands..).unwrap_or(&[]))
}

/// How many of the next words a cluster of short options takes for its value.
fn short_values(cluster: &str, options: &OptionSpec) -> Result<usize, OpaqueReason> {
    for (at, c) in cluster.char_indices() {
        if options.short_with_value.contains(c) {
            let attached = at + c.len_utf8() < cluster.len();
            return Ok(usize::from(!attached));
        }
        if options.short_attached.contains(c) {
            return Ok(0);
        }
        // `nice -10`, `ionice -c3`: a number is a value by itself.
        if !options.short.contains(c) && !c.is_ascii_digit() {
            return Err(OpaqueReason::Wrapper);
        }
    }
    Ok(0)
}
