//! Wrappers: programs that run the command given in their arguments (`env`, `sudo`, `xargs`, `sh -c`, ...).
//!
//! The evaluator must see through them: what a wrapper runs is evaluated as if it stood alone. Only what the wrapper's own
//! manual says is followed; an option that is not known hides the inner command, and that is said, not guessed.
//! Programs that run *configured* commands (`git`, `make`, `npm`) are no wrappers: nothing in their arguments
//! tells what they run.

mod assigning;
mod many;

pub(super) use assigning::split_first_line;

use self::{
    assigning::{env, sudo},
    many::{find, xargs},
};
use super::{
    builtin::{is_harmless_option, keeps_reading},
    kinds::{HIDING, chooses_versions, is_dynamic_loader, is_hiding_applet, is_many_programs},
    options::{OptionSpec, PLAIN, skip},
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
        // Of zsh: they run a line, bring functions from files, or take the shell's own words away.
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
