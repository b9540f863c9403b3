//! Finds what no command has: words that a shell takes for itself, options for which a pattern has no room, principals and directories
//! that there are not.

use super::{
    super::command::{
        pattern::{Element, Regexes, TextPattern, WordSource},
        rule::{Decision, RuleAt, RuleSource},
        tool_options,
    },
    Gates, is_rest, is_subcommand, texts,
};

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
pub(super) fn problems(source: &RuleSource, gates: Gates, regexes: &Regexes) -> Vec<String> {
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
