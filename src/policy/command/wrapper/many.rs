//! Wrappers that run a command many times, with what they read or find put into it: `xargs` and `find`.
//!
//! What is put in is not known. What may be replaced by it, or may turn out to be an option that runs something, is taken
//! to be.

use std::collections::BTreeSet;

use super::{
    super::{
        options::{OptionSpec, PLAIN, skip},
        shell::{OpaqueReason, Word},
    },
    WrappedCommand, argv, opaque,
};

pub(super) fn xargs(args: &[Word]) -> Vec<WrappedCommand> {
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

pub(super) fn find(args: &[Word]) -> Vec<WrappedCommand> {
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
