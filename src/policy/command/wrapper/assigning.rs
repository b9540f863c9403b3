//! Wrappers that give what they run variables: `env` and `sudo`.

use super::{Removed, WrappedCommand, opaque};
use crate::command::{
    options::{OptionSpec, PLAIN, skip},
    shell::{OpaqueReason, Word},
};

pub(super) fn env(args: &[Word]) -> Vec<WrappedCommand> {
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

pub(super) fn sudo(args: &[Word]) -> Vec<WrappedCommand> {
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

pub(super) fn with_assignments(args: &[Word], options: &OptionSpec) -> Vec<WrappedCommand> {
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
