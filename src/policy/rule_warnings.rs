//! Warns of rules that do not catch what they seem to: a policy with such a rule is valid.

mod never_matches;
mod shadow;

use super::{
    command::{
        option_syntax::{LongOptions, OptionSyntax},
        pattern::{RegexSource, Regexes, WordSource},
        rule::{Decision, RuleMode, RuleSource, base_name},
        tool_options,
    },
    warning::WarningId,
};

/// What a policy has, as far as warnings about its rules depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gates {
    /// A profile has an exec gate.
    Some,
    /// None has.
    None,
}

/// A rule as it is written, with the mode that it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenRule<'a> {
    /// The rule.
    pub(super) source: &'a RuleSource,
    /// Its own mode, else its file's.
    pub(super) mode: RuleMode,
}

/// What is odd about each rule, by its place in the list.
pub(super) fn check(
    rules: &[WrittenRule<'_>],
    gates: Gates,
    regexes: &Regexes,
) -> Vec<(usize, WarningId, String)> {
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        found.extend(unknown_options(rule.source).map(|problem| (at, WarningId::UnknownOptions, problem)));
        let never = never_matches::problems(rule.source, gates, regexes).into_iter();
        found.extend(never.map(|problem| (at, WarningId::NeverMatches, problem)));
        found.extend(clustered_flag(rule.source).map(|problem| (at, WarningId::ClusteredFlags, problem)));
    }
    let shadowed = shadow::find(rules, regexes).into_iter();
    found.extend(shadowed.map(|(at, problem)| (at, WarningId::Shadowed, problem)));
    found.sort_by_key(|(at, id, _)| (*at, *id));
    found
}

/// Options that stand before a rule's subcommand get round it, where nobody knows the tool's options.
fn unknown_options(source: &RuleSource) -> Option<String> {
    let [program, subcommand, ..] = source.argv.as_slice() else { return None };
    if source.decision == Decision::Allow || source.skip != Default::default() || is_rest(program) {
        return None;
    }
    let subcommand = written(subcommand).into_iter().find(|text| names_subcommands(text))?;
    let program = written(program).into_iter().find(|name| {
        let base = base_name(name);
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        let is_several = base.contains(['*', '?', '[', '(', '|']);
        is_several || (base.chars().all(is_name) && !tool_options::is_known(base))
    })?;
    Some(format!(
        "does not match {program:?} with an option before {subcommand:?}: the options of {program:?} are not known; write \"**\" \
         before {subcommand:?}, or name them in `skip`"
    ))
}

/// Whether a word of a pattern, a glob or a regular expression is about subcommands, by how it begins.
fn names_subcommands(text: &str) -> bool {
    if is_subcommand(text) {
        return true;
    }
    let special = ['*', '?', '[', '(', ')', '|', '.', '{', '+'];
    let bare = text.trim_start_matches("(?i)").trim_start_matches("(?:").trim_start_matches('(');
    let beginning = bare.split(special).next().unwrap_or_default();
    let is_pattern = beginning.len() < text.len() && !text.contains(['/', '\\', ' ', ':', '=']);
    // `*.rs` and `x.rs` are files.
    let is_file = text.contains('.') && !text.contains(".*") && !text.contains(".+");
    is_pattern && !is_file && is_subcommand(beginning)
}

/// Several short options in one: the rule has but this spelling of them.
fn clustered_flag(source: &RuleSource) -> Option<String> {
    let programs = source.argv.first().map(texts).unwrap_or_default();
    let syntax = OptionSyntax::of(programs.iter().map(|name| base_name(name)));
    if source.decision == Decision::Allow || syntax.long_options == LongOptions::OneDash {
        return None;
    }
    let is_listed =
        |flag: &str| programs.iter().any(|name| tool_options::is_option_of(base_name(name), flag));
    let is_cluster = |flag: &&String| {
        let letters = flag.strip_prefix('-').filter(|letters| (2..=3).contains(&letters.len()));
        letters.is_some_and(|letters| letters.chars().all(|c| c.is_ascii_alphabetic())) && !is_listed(flag)
    };
    let flag = source.flags.iter().find(is_cluster)?;
    let each: Vec<String> = flag.chars().skip(1).map(|letter| format!("\"-{letter}\"")).collect();
    Some(format!(
        "finds {flag:?} as this one word only, not its letters in another order or apart: `flags` is a list of options of which one is \
         enough; write [{}], or a rule for each",
        each.join(", ")
    ))
}

fn is_rest(word: &WordSource) -> bool {
    texts(word).iter().any(|text| text == "**")
}

fn texts(word: &WordSource) -> &[String] {
    match word {
        WordSource::Text(text) => std::slice::from_ref(text),
        WordSource::OneOf(texts) => texts,
        WordSource::Regex(_) => &[],
    }
}

/// As written, regular expressions too.
fn written(word: &WordSource) -> Vec<&str> {
    match word {
        WordSource::Regex(RegexSource { regex }) => vec![regex],
        word => texts(word).iter().map(String::as_str).collect(),
    }
}

/// Whether a word is a plain name, as those of programs and subcommands are.
fn is_subcommand(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain)
}

#[cfg(test)]
mod tests;
