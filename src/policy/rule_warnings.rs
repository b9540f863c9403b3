//! Warns of rules that do not catch what they seem to: a policy with such a rule is valid.

use super::{
    command::{
        pattern::WordSource,
        rule::{Decision, RuleAt, RuleMode, RuleSource},
        tool_options,
    },
    warning::WarningId,
};

/// Rules of larger policies are not compared with one another.
const COMPARED_RULES_MAX: usize = 1_000;

/// Words of two rules that are compared. Longer ones are not.
const COMPARED_WORDS_MAX: usize = 32;

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
pub(super) fn check(rules: &[WrittenRule<'_>], gates: Gates) -> Vec<(usize, WarningId, String)> {
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        found.extend(unknown_options(rule.source).map(|problem| (at, WarningId::UnknownOptions, problem)));
        let never = never_matches(rule.source, gates);
        found.extend(never.map(|problem| (at, WarningId::NeverMatches, problem)));
        found.extend(shadow(rule, rules).map(|problem| (at, WarningId::Shadowed, problem)));
    }
    found
}

/// Options that stand before a rule's subcommand get round it, where nobody knows the tool's options.
fn unknown_options(source: &RuleSource) -> Option<String> {
    let [program, subcommand, ..] = source.argv.as_slice() else { return None };
    if source.decision == Decision::Allow || source.skip != Default::default() {
        return None;
    }
    let subcommand = texts(subcommand).iter().find(|text| is_subcommand(text))?;
    let program = texts(program).iter().find(|name| is_subcommand(name) && !tool_options::is_known(name))?;
    Some(format!(
        "does not match {program:?} with an option before {subcommand:?}: the options of {program:?} are not known; write \"**\" \
         before {subcommand:?}, or name them in `skip`"
    ))
}

/// Words that no command has, and a rule that is never asked.
fn never_matches(source: &RuleSource, gates: Gates) -> Option<String> {
    let program = source.argv.first().map(texts).unwrap_or_default();
    if let Some(name) = program.iter().find(|name| name.contains([' ', '\t']) && !name.contains('/')) {
        return Some(format!(
            "matches nothing: {name:?} is one word; write each word of a command by itself"
        ));
    }
    let operator = |text: &&String| ["&&", "||", "2>&1"].contains(&text.as_str());
    if let Some(operator) = source.argv.iter().flat_map(texts).find(operator) {
        return Some(format!(
            "matches nothing: each command of a line is judged by itself, without {operator:?}"
        ));
    }
    let is_of_tree = source.at == Some(RuleAt::Tree) && source.decision == Decision::Allow;
    (is_of_tree && gates == Gates::None)
        .then(|| "matches nothing: it is about what commands start, and no profile has a gate".to_owned())
}

/// A stricter rule that catches everything that this one matches.
fn shadow(rule: &WrittenRule<'_>, rules: &[WrittenRule<'_>]) -> Option<String> {
    if rules.len() > COMPARED_RULES_MAX {
        return None;
    }
    let covers = |other: &&WrittenRule<'_>| {
        let (by, of) = (other.source, rule.source);
        by.decision > of.decision
            && other.mode == RuleMode::Enforce
            // After a yes, the effects of all rules count.
            && (by.decision == Decision::Deny || of.effects == Default::default())
            && by.flags.is_empty()
            && by.skip == Default::default()
            && by.when == Default::default()
            && (by.at.is_none() || by.at == of.at)
            && by.argv.len().max(of.argv.len()) <= COMPARED_WORDS_MAX
            && covers_all(&by.argv, &of.argv)
    };
    let by = rules.iter().find(covers)?.source;
    let what = match by.decision {
        Decision::Deny => "denies",
        Decision::Ask | Decision::Allow => "asks about",
    };
    Some(format!("decides nothing: rule {:?} {what} everything that it matches", by.id))
}

/// Whether a pattern matches everything that another one matches. False where that is not plain to see.
fn covers_all(by: &[WordSource], of: &[WordSource]) -> bool {
    match (by.split_first(), of.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((word, rest)), _) if is_rest(word) && rest.is_empty() => true,
        (Some((word, rest)), _) if is_rest(word) => {
            covers_all(rest, of) || of.split_first().is_some_and(|(_, of)| covers_all(by, of))
        }
        (Some(_), None) => false,
        (Some((word, rest)), Some((other, others))) => {
            !is_rest(other) && covers_word(word, other) && covers_all(rest, others)
        }
    }
}

fn covers_word(by: &WordSource, of: &WordSource) -> bool {
    let is_anything = |word: &WordSource| texts(word).iter().any(|text| text == "*");
    let all = texts(of);
    by == of || is_anything(by) || (!all.is_empty() && all.iter().all(|text| texts(by).contains(text)))
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

/// Whether a word is a plain name, as those of programs and subcommands are.
fn is_subcommand(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::super::set::PolicySet;

    /// The warnings about a policy: id, subject and line.
    fn warnings(rules: &str) -> Vec<(&'static str, String, usize)> {
        let text = format!("default_profile = 'a'\n[profile.a]\ngate.enabled = true\n{rules}");
        let policy = PolicySet::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let warnings = policy.warnings().iter();
        warnings
            .map(|one| (one.id.name(), one.subject.clone(), one.location.as_ref().unwrap().line))
            .collect()
    }

    #[test]
    fn a_rule_that_an_option_gets_round_is_warned_of() {
        let warned = |rule: &str| warnings(&format!("[[rule]]\nid = 'r'\n{rule}"));
        let expected = [("unknown-options", "r".to_owned(), 4)];
        assert_eq!(warned("decision = 'deny'\nargv = ['mytool', 'publish', '**']"), expected);
        assert_eq!(
            warned("decision = 'ask'\nargv = [['git', 'mytool'], ['push', 'publish'], '**']").len(),
            1
        );
        for quiet in [
            "decision = 'allow'\nargv = ['mytool', 'publish', '**']",
            "decision = 'deny'\nargv = ['git', 'push', '**']",
            "decision = 'deny'\nargv = ['mytool', '**', 'publish', '**']",
            "decision = 'deny'\nargv = ['mytool', 'publish']\nskip = { flags = ['-q'] }",
            "decision = 'deny'\nargv = ['rm', '-rf', '**']",
            "decision = 'deny'\nargv = ['cat', '/etc/*']",
            "decision = 'deny'\nargv = ['mytool']",
        ] {
            assert_eq!(warned(quiet), [], "{quiet}");
        }
    }

    #[test]
    fn a_rule_that_no_command_can_match_is_warned_of() {
        let warned = |rule: &str| !warnings(&format!("[[rule]]\nid = 'r'\n{rule}")).is_empty();
        assert!(warned("decision = 'allow'\nargv = ['git status']"));
        assert!(warned("decision = 'deny'\nargv = ['cd', '*', '&&', 'rm', '**']"));
        assert!(!warned("decision = 'allow'\nargv = ['/opt/My Tool/run']"));
        assert!(!warned("decision = 'allow'\nargv = ['git', 'commit', '-m', 'a b']"));
        assert!(!warned("decision = 'allow'\nargv = ['cc']\nat = 'tree'"));
        let without = "default_profile = 'a'\n[profile.a]\n[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['cc']\nat = 'tree'";
        let policy = PolicySet::parse("p.toml", without).unwrap();
        assert_eq!(policy.warnings()[0].id.name(), "never-matches");
    }

    #[test]
    fn a_rule_that_a_stricter_one_covers_is_warned_of_and_one_that_decides_something_is_not() {
        let warned = |strict: &str, other: &str| {
            let rules = format!(
                "[[rule]]\nid = 'strict'\n{strict}\n[[rule]]\nid = 'other'\ndecision = 'allow'\nargv = {other}\n"
            );
            warnings(&rules).iter().any(|(id, subject, _)| *id == "shadowed" && subject == "other")
        };
        let deny = |argv: &str| format!("decision = 'deny'\nargv = {argv}");
        for (strict, other) in [
            ("['git', '**']", "['git', 'status']"),
            ("['git', '**']", "['git', ['status', 'log'], '**']"),
            ("[['git', 'hg'], '*']", "['git', 'status']"),
            ("['**']", "['git', '**']"),
            ("['git', '**', '-f']", "['git', 'push', '-f']"),
            ("['git', '**', '-f']", "['git', '**', 'x', '-f']"),
        ] {
            assert!(warned(&deny(strict), other), "{strict} {other}");
        }
        for (strict, other) in [
            ("['git', 'push']", "['git', '**']"),
            ("['git', 'push', '**']", "['git', ['push', 'log'], '**']"),
            ("['git', '*']", "['git', '**']"),
            ("['git', 's*']", "['git', 'status']"),
            ("['git', '**', '-f']", "['git', 'push']"),
        ] {
            assert!(!warned(&deny(strict), other), "{strict} {other}");
        }
        for condition in ["when.cwd = ['/x']", "flags = ['-f']", "mode = 'observe'", "at = 'tree'"] {
            assert!(
                !warned(&format!("{}\n{condition}", deny("['git', '**']")), "['git', 'x']"),
                "{condition}"
            );
        }
        assert!(warned("decision = 'ask'\nargv = ['git', '**']", "['git', 'x']"));
        let with_effects = "['git', 'x']\neffects.time_limit = '5s'";
        assert!(!warned("decision = 'ask'\nargv = ['git', '**']", with_effects));
        assert!(warned(&deny("['git', '**']"), with_effects));
    }

    #[test]
    fn a_warning_is_silenced_in_the_file_and_one_of_another_name_is_refused() {
        let rule = "[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['git status']\n[[rule]]\nid = 'd'\ndecision = 'deny'\nargv = ['x']\n";
        let with = |silence: &str| {
            let text = format!("default_profile = 'a'\nsilence = {silence}\n[profile.a]\n{rule}");
            PolicySet::parse("p.toml", &text)
                .map(|policy| policy.warnings().iter().map(|one| one.id.name()).collect::<Vec<_>>())
        };
        assert_eq!(with("[]").unwrap(), ["never-matches", "no-gate"]);
        assert_eq!(with("['no-gate']").unwrap(), ["never-matches"]);
        assert_eq!(with("['no-gate:a', 'never-matches:r']").unwrap(), [""; 0]);
        assert_eq!(with("['no-gate:b']").unwrap().len(), 2);
        let refused = with("['nothing']").unwrap_err();
        assert_eq!((refused.line, refused.problem.contains("silence")), (2, true), "{refused}");
    }
}
