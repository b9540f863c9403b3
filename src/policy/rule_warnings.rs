//! Warns of rules that do not catch what they seem to: a policy with such a rule is valid.

use super::{
    command::{
        pattern::WordSource,
        rule::{Decision, RuleSource},
        tool_options,
    },
    set::{PolicySet, RuleLocation},
};

/// What is odd about a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWarning {
    /// The rule.
    pub rule: String,
    /// Where it stands.
    pub location: Option<RuleLocation>,
    /// What it misses.
    pub problem: String,
}

impl PolicySet {
    /// Rules that do not catch what they seem to.
    pub fn warnings(&self) -> Vec<RuleWarning> {
        let warning = |(rule, problem): &(String, String)| RuleWarning {
            rule: rule.clone(),
            location: self.rule_location(rule).cloned(),
            problem: problem.clone(),
        };
        self.warnings.iter().map(warning).collect()
    }
}

/// What is odd about a rule: options that stand before its subcommand get round it, where nobody knows the tool's options.
pub(super) fn check(source: &RuleSource) -> Option<String> {
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
    use super::*;

    #[test]
    fn a_rule_that_an_option_gets_round_is_warned_of() {
        let warned = |rule: &str| {
            let text = format!("default_profile = 'a'\n[profile.a]\n[[rule]]\nid = 'r'\n{rule}");
            let policy = PolicySet::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            policy
                .warnings()
                .into_iter()
                .map(|warning| (warning.rule, warning.location.unwrap().line))
                .collect::<Vec<_>>()
        };
        assert_eq!(warned("decision = 'deny'\nargv = ['mytool', 'publish', '**']"), [("r".to_owned(), 3)]);
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
}
