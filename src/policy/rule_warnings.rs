//! Warns of rules that do not catch what they seem to: a policy with such a rule is valid.
//!
//! A rule is warned of that does not catch what it seems to; that matches nothing which a command has (words that a shell takes for itself,
//! options for which a pattern has no room, principals and directories that there are not); and that decides nothing, because a stricter
//! one matches whatever it matches. None of it is an error: such a rule lets nothing run by itself, and a policy that is in force
//! must not be refused after an update because of one. Words that are arguments somewhere (`;` of `find`, a line of `ssh`) are
//! left alone there.

use std::cell::Cell;

use crate::{
    command::{
        flags::{LongOptions, OptionSyntax},
        pattern::{Element, RegexSource, Regexes, TextPattern, WordSource},
        rule::{Decision, RuleAt, RuleMode, RuleSource, base_name},
        tool_options,
    },
    diagnostics::WarningId,
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
        let never = never_matching(rule.source, gates, regexes).into_iter();
        found.extend(never.map(|problem| (at, WarningId::NeverMatches, problem)));
        found.extend(clustered_flag(rule.source).map(|problem| (at, WarningId::ClusteredFlags, problem)));
    }
    let shadowed = find_shadowed(rules, regexes).into_iter();
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

/// Operators and redirections of a shell.
const OPERATORS: [&str; 22] = [
    "|", "|&", "||", "&", "&&", ";", ";;", "(", ")", "!", "<", "<<", "<<-", "<<<", "<>", ">", ">>", ">|",
    ">&", "&>", "&>>", "<&",
];

/// Programs that have these among their arguments.
const TAKE_OPERATORS: [&str; 9] = ["find", "gfind", "bfs", "fd", "test", "[", "[[", "expr", "parallel"];

/// Words of a shell's grammar that stand where a program does.
const KEYWORDS: [&str; 14] =
    ["if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}"];

/// Programs of which an argument is a line.
const TAKE_LINES: [&str; 16] = [
    "sh", "bash", "dash", "zsh", "ssh", "mosh", "su", "eval", "trap", "watch", "echo", "printf", "script",
    "screen", "tmux", "logger",
];

/// Each thing because of which the rule matches nothing.
fn never_matching(source: &RuleSource, gates: Gates, regexes: &Regexes) -> Vec<String> {
    let of_argv = [program_with_blank, word_with_blank, operator, keyword, assignment, home];
    let mut found: Vec<String> = of_argv.into_iter().filter_map(|check| check(source)).collect();
    found.extend(no_room_for_flags(source, regexes));
    found.extend(odd_flag(source));
    found.extend(principal(source));
    found.extend(directory(source));
    if source.at == Some(RuleAt::Tree) && source.decision == Decision::Allow && gates == Gates::None {
        found.push("matches nothing: it is about what commands start, and no profile has a gate".to_owned());
    }
    found
}

fn programs(source: &RuleSource) -> &[String] {
    source.argv.first().map(texts).unwrap_or_default()
}

fn has_blank(text: &str) -> bool {
    text.contains([' ', '\t'])
}

fn program_with_blank(source: &RuleSource) -> Option<String> {
    let name = programs(source).iter().find(|name| has_blank(name) && !name.contains('/'))?;
    Some(format!("matches nothing: {name:?} is one word; write each word of a command by itself"))
}

/// `["git", "branch -D"]`. Text with blanks is a value elsewhere: of an option, or a line for another program.
fn word_with_blank(source: &RuleSource) -> Option<String> {
    let programs = programs(source);
    if programs.iter().any(|name| TAKE_LINES.contains(&name.as_str())) {
        return None;
    }
    let is_known = programs.iter().any(|name| tool_options::is_known(name));
    let is_several = |at: usize, text: &str| {
        let (first, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let has_options = rest.trim_start().starts_with('-');
        (first.starts_with('-') && first.len() > 1 && !first.contains('='))
            || (is_subcommand(first) && ((at == 1 && is_known) || (at <= 2 && has_options)))
    };
    let is_behind_option = |at: usize| texts(&source.argv[at - 1]).iter().any(|text| text.starts_with('-'));
    let behind = source.argv.iter().enumerate().skip(1).filter(|(at, _)| !is_behind_option(*at));
    let mut words = behind.flat_map(|(at, word)| texts(word).iter().map(move |text| (at, text)));
    let (_, text) = words.find(|(at, text)| has_blank(text) && is_several(*at, text))?;
    let each: Vec<String> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
    Some(format!("matches nothing: {text:?} is one word; write {}", each.join(", ")))
}

fn operator(source: &RuleSource) -> Option<String> {
    if programs(source).iter().any(|name| TAKE_OPERATORS.contains(&name.as_str())) {
        return None;
    }
    let is_operator = |text: &&String| OPERATORS.contains(&text.as_str()) || is_redirection(text);
    let operator = source.argv.iter().flat_map(texts).find(is_operator)?;
    Some(format!(
        "matches nothing: each command of a line is judged by itself, without {operator:?}; write a rule for the command alone, and leave \
         to the profile which files can be written"
    ))
}

/// `2>&1`, `>/dev/null`.
fn is_redirection(text: &str) -> bool {
    let (descriptor, rest) = text.split_once('>').unwrap_or(("x", ""));
    let is_descriptor = descriptor == "&" || descriptor.chars().all(|c| c.is_ascii_digit());
    let rest = rest.trim_start_matches(['>', '&']);
    let is_target = |rest: &str| {
        rest.starts_with("/dev/")
            || rest == "-"
            || (!rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
    };
    is_descriptor && (is_target(rest) || (rest.is_empty() && !descriptor.is_empty()))
}

fn keyword(source: &RuleSource) -> Option<String> {
    let word = programs(source).iter().find(|name| KEYWORDS.contains(&name.as_str()))?;
    Some(format!(
        "matches nothing: {word:?} is a word of the shell's; write the commands that stand behind it"
    ))
}

fn assignment(source: &RuleSource) -> Option<String> {
    let is_assignment = |text: &&String| {
        let name = text.split_once('=').map(|(name, _)| name.trim_end_matches('+'));
        name.is_some_and(|name| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let text = programs(source).iter().find(is_assignment)?;
    Some(format!(
        "matches nothing: {text:?} before a command is no word of it; begin with the program, and name the variable in `when.env`"
    ))
}

fn home(source: &RuleSource) -> Option<String> {
    let beginnings = ["~", "$HOME", "${HOME}"];
    let mut words = source.argv.iter().flat_map(texts);
    let (text, rest) = words.find_map(|text| {
        let rest = beginnings.into_iter().filter_map(|home| text.strip_prefix(home));
        Some((text, rest.into_iter().find(|rest| rest.is_empty() || rest.starts_with('/'))?))
    })?;
    Some(format!(
        "matches nothing: a shell has put a path in the place of {text:?}; write {:?}",
        format!("*{rest}")
    ))
}

/// Flags are words, too: a pattern that lists every word has to have them.
fn no_room_for_flags(source: &RuleSource, regexes: &Regexes) -> Option<String> {
    let flag = source.flags.first()?;
    let takes_some_flag = |word: &WordSource| match Element::compile(word, regexes) {
        Ok(Element::OneOf(patterns)) => patterns.iter().any(|pattern| match pattern {
            TextPattern::Literal(text) => text.starts_with('-'),
            TextPattern::Glob(_) | TextPattern::Expression(_) => {
                source.flags.iter().any(|flag| pattern.accepts(flag))
            }
        }),
        Ok(Element::Rest) | Err(_) => true,
    };
    let is_left_out = |flag: &String| {
        source.skip.flags.contains(flag)
            || source.skip.with_value.contains(flag)
            || programs(source).iter().any(|name| tool_options::is_option_of(name, flag))
    };
    let has_room = source.argv.iter().skip(1).any(takes_some_flag)
        || source.argv.first().is_some_and(is_rest)
        || source.flags.iter().any(is_left_out);
    (!has_room).then(|| {
        format!("matches nothing: `argv` is the whole command and has no {flag:?}; write \"**\" where options may stand")
    })
}

fn odd_flag(source: &RuleSource) -> Option<String> {
    let is_several = |flag: &&String| has_blank(flag.split_once('=').map_or(flag.as_str(), |(name, _)| name));
    if let Some(flag) = source.flags.iter().find(is_several) {
        let each: Vec<String> = flag.split_whitespace().map(|word| format!("{word:?}")).collect();
        return Some(format!(
            "finds no {flag:?}: that is one word; write {}, of which one is enough, or the words into `argv`",
            each.join(", ")
        ));
    }
    let flag = source.flags.iter().find(|flag| flag.contains('*'))?;
    Some(format!(
        "finds no {flag:?}: `flags` are no globs; write each option, or the glob into `argv` between \"**\""
    ))
}

/// Principals are users, by their numbers.
fn principal(source: &RuleSource) -> Option<String> {
    let could_be_one = |text: &&String| match TextPattern::compile(text) {
        Ok(TextPattern::Literal(text)) => text
            .strip_prefix("uid:")
            .is_some_and(|uid| !uid.is_empty() && uid.chars().all(|c| c.is_ascii_digit())),
        _ => {
            text.starts_with("uid:")
                || text.starts_with(['*', '?', '['])
                || "uid:".starts_with(text.split(['*', '?', '[']).next().unwrap_or_default())
        }
    };
    let text = source.when.principal.iter().find(|text| !could_be_one(text))?;
    let number = text.trim_start_matches("uid:");
    let wanted =
        if number.chars().all(|c| c.is_ascii_digit()) && !number.is_empty() { number } else { "1000" };
    Some(format!(
        "has {text:?} in `when.principal`, which nobody is: a user is written by number, as \"uid:{wanted}\""
    ))
}

/// Working directories are absolute, without anything at their end.
fn directory(source: &RuleSource) -> Option<String> {
    let is_one = |text: &&String| {
        let is_begun = text.starts_with(['/', '*', '?', '[', '\\']);
        is_begun
            && !text.contains("//")
            && !text.contains("/../")
            && !text.contains("/./")
            && (!text.ends_with('/') || *text == "/")
    };
    let text = source.when.cwd.iter().find(|text| !is_one(text))?;
    let wanted = match text.trim_start_matches("~/").trim_start_matches("./").trim_end_matches('/') {
        path if path.starts_with('/') => path.to_owned(),
        path => format!("*/{path}"),
    };
    Some(format!(
        "has {text:?} in `when.cwd`, which no working directory is: these are absolute, and what is below them is meant, too; write {wanted:?}"
    ))
}

/// Rules of larger policies are not compared with one another.
const COMPARED_RULES_MAX: usize = 1_000;

/// Words of two rules that are compared. Longer ones are not.
const COMPARED_WORDS_MAX: usize = 32;

/// Texts of one rule that are held against those of another, in all. When so many are done, no more rules are compared.
const COMPARISONS_MAX: usize = 20_000_000;

/// A word as it is written, and what it accepts.
struct ComparedWord<'a> {
    source: &'a WordSource,
    accepted: Option<Element>,
}

/// The rules that a stricter one covers, by their places, each with what is odd about it.
fn find_shadowed(rules: &[WrittenRule<'_>], regexes: &Regexes) -> Vec<(usize, String)> {
    if rules.len() > COMPARED_RULES_MAX {
        return Vec::new();
    }
    let compared: Vec<Vec<ComparedWord<'_>>> = rules.iter().map(|rule| compared(rule, regexes)).collect();
    let left = Cell::new(COMPARISONS_MAX);
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let covers = |other: usize| {
            is_unconditional(&rules[other], rule) && covers_all(&compared[other], &compared[at], &left)
        };
        let Some(by) = (0..rules.len()).find(|other| covers(*other)) else { continue };
        let by = rules[by].source;
        let what = match by.decision {
            Decision::Deny => "denies",
            Decision::Ask | Decision::Allow => "asks about",
        };
        found.push((at, format!("decides nothing: rule {:?} {what} everything that it matches", by.id)));
    }
    found
}

fn compared<'a>(rule: &WrittenRule<'a>, regexes: &Regexes) -> Vec<ComparedWord<'a>> {
    let word = |source| ComparedWord { source, accepted: Element::compile(source, regexes).ok() };
    rule.source.argv.iter().map(word).collect()
}

/// Whether a rule decides more strictly than another one, whenever its words match.
fn is_unconditional(by: &WrittenRule<'_>, of: &WrittenRule<'_>) -> bool {
    let mode = by.mode;
    let (by, of) = (by.source, of.source);
    by.decision > of.decision
        && mode == RuleMode::Enforce
        // After a yes, the effects of all rules count.
        && (by.decision == Decision::Deny || of.effects == Default::default())
        && by.flags.is_empty()
        && by.skip == Default::default()
        && by.when == Default::default()
        && (by.at.is_none() || by.at == of.at)
        && by.argv.len().max(of.argv.len()) <= COMPARED_WORDS_MAX
}

/// Whether a pattern matches everything that another one matches. False where that is not plain to see.
fn covers_all(by: &[ComparedWord<'_>], of: &[ComparedWord<'_>], left: &Cell<usize>) -> bool {
    // What holds for by[..i] against of[..j]: one row at a time, whatever the number of `**`.
    let mut row = vec![false; of.len() + 1];
    row[0] = true;
    for word in by {
        if is_rest(word.source) {
            for at in 1..row.len() {
                row[at] |= row[at - 1];
            }
            continue;
        }
        for at in (1..row.len()).rev() {
            let other = &of[at - 1];
            row[at] = row[at - 1] && !is_rest(other.source) && covers_word(word, other, left);
        }
        row[0] = false;
    }
    row[of.len()]
}

fn covers_word(by: &ComparedWord<'_>, of: &ComparedWord<'_>, left: &Cell<usize>) -> bool {
    let comparisons = (1 + texts(by.source).len()) * (1 + texts(of.source).len());
    left.set(left.get().saturating_sub(comparisons));
    if left.get() == 0 {
        return false;
    }
    if by.source == of.source || texts(by.source).iter().any(|text| text == "*") {
        return true;
    }
    let (Some(Element::OneOf(patterns)), Some(Element::OneOf(words))) = (&by.accepted, &of.accepted) else {
        return false;
    };
    let is_accepted = |word: &TextPattern, text: &String| match word {
        // What `..` leads to is not plain to see.
        TextPattern::Literal(word) => {
            !word.contains("..") && patterns.iter().any(|pattern| pattern.accepts(word))
        }
        TextPattern::Glob(_) | TextPattern::Expression(_) => {
            texts(by.source).iter().any(|by| by == text || covers_glob(by, text))
        }
    };
    // A regular expression has no texts.
    let texts = texts(of.source);
    words.len() == texts.len() && words.iter().zip(texts).all(|(word, text)| is_accepted(word, text))
}

/// `s*` accepts whatever `st*` does.
fn covers_glob(by: &str, of: &str) -> bool {
    let is_special = |c: char| ['*', '?', '[', '\\'].contains(&c);
    by.strip_suffix('*').is_some_and(|beginning| !beginning.contains(is_special) && of.starts_with(beginning))
}

#[cfg(test)]
mod tests;
