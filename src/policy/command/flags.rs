//! The options that a rule looks for wherever they stand among the arguments, and how programs read options in general
//! (`policies/data/option-syntax.toml`, compiled in).
//!
//! A rule that denies or asks finds an option in every spelling that the program may take for it, and where it is not certain that options
//! have ended. A rule that allows finds it only as it is written, where nothing takes it for something else or takes it back.

use std::{collections::HashSet, sync::LazyLock};

use serde::Deserialize;

use super::{
    pattern::{Match, PatternError},
    shell::Word,
};

/// Options that a rule looks for wherever they stand.
#[derive(Debug, Clone)]
pub(crate) struct Flags(Vec<String>);

impl Flags {
    /// Compiles flags as "-f" or "--force".
    pub(crate) fn compile(sources: &[String]) -> Result<Self, PatternError> {
        match sources.iter().find(|s| !s.starts_with('-') || s.len() < 2 || *s == "--") {
            Some(bad) => Err(PatternError::Flag(bad.clone())),
            None => Ok(Self(sources.to_vec())),
        }
    }

    /// Whether one of the flags is among the arguments: alone, with `=VALUE`, or in a cluster of short ones.
    /// A long option that is cut short is one perhaps, and so is what stands behind `--` that may end no options.
    pub(crate) fn any(&self, words: &[Word], syntax: OptionSyntax) -> Match {
        let mut answer = Match::No;
        // What a flag counts for, as far as it is known that options still stand here.
        let mut here = Match::Yes;
        let mut is_behind_option = false;
        for word in words {
            match word.literal() {
                Some("--") => match (syntax.behind_dashes, is_behind_option, here) {
                    (BehindDashes::Options, _, _) => {}
                    (BehindDashes::Operands, false, Match::Yes) => break,
                    // It may be a value, of an option before it or behind another such one.
                    _ => here = Match::Perhaps,
                },
                Some(text) => {
                    let found = self.0.iter().map(|flag| spells(flag, text, syntax.long_options));
                    answer = answer.or(here.and(found.fold(Match::No, Match::or)));
                }
                None => answer = answer.or(Match::Perhaps),
            }
            is_behind_option = word.literal().is_none_or(|text| text.starts_with('-'));
        }
        answer
    }

    /// Whether one of the flags is certainly given, and not taken back: exactly as it is written, before `--`, not where it may be
    /// the value of the option before it. `takes_nothing` knows of an option that the next word is no value of it.
    pub(crate) fn surely_any(&self, words: &[Word], takes_nothing: impl Fn(&str) -> bool) -> Match {
        if words.iter().enumerate().any(|(at, word)| self.is_taken_back(word, words.get(at + 1))) {
            return Match::No;
        }
        let may_take = |before: &Word| {
            before.literal().is_none_or(|text| {
                text.starts_with(['-', '+']) && text != "-" && !text.contains('=') && !takes_nothing(text)
            })
        };
        let options = words.iter().take_while(|word| word.literal() != Some("--"));
        let mut before: Option<&Word> = None;
        let mut found = Match::No;
        for word in options {
            let is_flag = word.literal().is_some_and(|text| self.0.iter().any(|flag| flag == text));
            found = found.or(Match::of(is_flag && !before.is_some_and(may_take)));
            before = Some(word);
        }
        // What is not known may be the option, or take it back.
        match words.iter().any(|word| word.literal().is_none()) {
            true => Match::Perhaps,
            false => found,
        }
    }

    /// Whether a word says the contrary of one of the flags, or gives it another value.
    fn is_taken_back(&self, word: &Word, next: Option<&Word>) -> bool {
        let Some(text) = word.literal().filter(|text| text.starts_with('-')) else { return false };
        if let Some(flag) = self.0.iter().find(|flag| *flag == text) {
            let value = next.and_then(Word::literal);
            let denies = matches!(value, Some("false" | "null" | "no" | "none" | "off" | "0" | "n"));
            return denies && !flag.contains('=');
        }
        self.0.iter().any(|flag| gives_another_value(flag, text) || is_negation(flag, text))
    }
}

/// Whether a word is the flag, as a rule that denies or asks reads it.
fn spells(flag: &str, text: &str, long_options: LongOptions) -> Match {
    if is_flag(flag, text) || is_in_cluster(flag, text) {
        return Match::Yes;
    }
    let Some(long) = long_name(flag, long_options) else { return Match::No };
    match (text.strip_prefix("--"), text.strip_prefix('-')) {
        (Some(name), _) if is_named(long, name) => Match::Yes,
        (None, Some(name)) if is_long_with_one_dash(flag, long_options) && is_named(long, name) => Match::Yes,
        (Some(name), _) if is_cut_short(long, name) => Match::Perhaps,
        _ => Match::No,
    }
}

fn is_flag(flag: &str, text: &str) -> bool {
    text == flag
        || (flag.starts_with("--") && text.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
}

fn is_in_cluster(flag: &str, text: &str) -> bool {
    let short = flag.strip_prefix('-').filter(|f| f.chars().count() == 1 && *f != "-");
    let cluster = text.strip_prefix('-').filter(|t| !t.starts_with('-'));
    matches!((short, cluster), (Some(flag), Some(cluster)) if cluster.contains(flag))
}

/// The name of a long option, of two dashes or of one: a program that knows `-exec` mostly takes `--exec` and `-exec=VALUE`, too.
fn long_name(flag: &str, long_options: LongOptions) -> Option<&str> {
    let is_short = |name: &&str| name.chars().count() == 1 && long_options == LongOptions::TwoDashes;
    flag.strip_prefix("--").or_else(|| flag.strip_prefix('-').filter(|name| !is_short(name)))
}

fn is_long_with_one_dash(flag: &str, long_options: LongOptions) -> bool {
    long_options == LongOptions::OneDash || !flag.starts_with("--")
}

fn is_named(long: &str, name: &str) -> bool {
    name.strip_prefix(long).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// getopt_long(3) takes a long option for another that it begins.
fn is_cut_short(long: &str, name: &str) -> bool {
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    !name.is_empty() && long.starts_with(name)
}

/// `--dry-run=none`, also cut short, for the flag `--dry-run` or `--dry-run=client`. A bare `--dry-run` behind the latter may take the next word.
fn gives_another_value(flag: &str, text: &str) -> bool {
    let wanted = flag.split_once('=').map_or(flag, |(name, _)| name).trim_start_matches('-');
    let (given, has_value) = text.split_once('=').map_or((text, false), |(name, _)| (name, true));
    let name = given.trim_start_matches('-');
    let is_same = name == wanted || (given.starts_with("--") && is_cut_short(wanted, name));
    is_same && (has_value || flag.contains('='))
}

/// `--no-dry-run`, also cut short, and other words for it; `--verify` for the flag `--no-verify`.
fn is_negation(flag: &str, text: &str) -> bool {
    let name = |text: &str| {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        name.trim_start_matches('-').to_owned()
    };
    let (wanted, given) = (name(flag), name(text));
    let is_begun = |whole: &str, beginning: &str| !beginning.is_empty() && whole.starts_with(beginning);
    let denied = ["no-", "no", "not-", "disable-", "without-", "skip-"];
    let has_prefix = |prefix: &str| given.strip_prefix(prefix).is_some_and(|rest| is_begun(&wanted, rest));
    let is_without = |prefix: &str| wanted.strip_prefix(prefix).is_some_and(|rest| is_begun(rest, &given));
    let has_two_dashes = text.starts_with("--");
    given == format!("no-{wanted}")
        || (has_two_dashes && (denied.into_iter().any(has_prefix) || denied.into_iter().any(is_without)))
}

/// How a program reads its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OptionSyntax {
    /// What stands behind `--`.
    pub behind_dashes: BehindDashes,
    /// How long options are written.
    pub long_options: LongOptions,
}

/// What stands behind `--`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BehindDashes {
    /// No option.
    Operands,
    /// Nobody knows.
    Unknown,
    /// Options, as before.
    Options,
}

/// How long options are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongOptions {
    /// `--word`; behind one dash stand letters.
    TwoDashes,
    /// `-word`, and mostly `--word`, too.
    OneDash,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SyntaxData {
    ends_options: HashSet<String>,
    ends_nothing: HashSet<String>,
    one_dash: HashSet<String>,
}

static DATA: LazyLock<SyntaxData> = LazyLock::new(|| {
    toml::from_str(include_str!("../policies/data/option-syntax.toml"))
        .expect("the data file is part of the build, and a test reads it")
});

impl OptionSyntax {
    /// That of a program by its names. Of several, each may be what runs.
    pub(crate) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let behind_dashes = match () {
            () if names.iter().any(|name| DATA.ends_nothing.contains(*name)) => BehindDashes::Options,
            () if !names.is_empty() && names.iter().all(|name| DATA.ends_options.contains(*name)) => {
                BehindDashes::Operands
            }
            () => BehindDashes::Unknown,
        };
        let long_options = match names.iter().any(|name| DATA.one_dash.contains(*name)) {
            true => LongOptions::OneDash,
            false => LongOptions::TwoDashes,
        };
        Self { behind_dashes, long_options }
    }
}

#[cfg(test)]
mod tests;
