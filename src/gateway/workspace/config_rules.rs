//! The rules by which an entry of git's configuration is dangerous: `policies/data/git-config.toml`, by section. Pure.
//!
//! A configuration can have hundreds of thousands of entries: rules are found by the section, and comparing them with an
//! entry allocates nothing but for an alias.

use std::{collections::HashMap, sync::LazyLock};

use serde::Deserialize;

/// The kind of a configuration file, which decides which keys are dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigKind {
    /// A repository's configuration.
    Repository,
    /// `.gitmodules`.
    Modules,
    /// The options of an interrupted cherry-pick or revert.
    Sequencer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    plain_commands: Vec<String>,
    running_options: Vec<String>,
    plain_short_options: String,
    strategy_commands: Vec<String>,
    strategies: Vec<String>,
    key: Vec<KeyRule>,
    sequencer: Vec<KeyRule>,
    modules: Vec<KeyRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRule {
    name: String,
    #[serde(default)]
    starts: Vec<String>,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    safe: Vec<String>,
    #[serde(default)]
    below: Option<String>,
    #[serde(default)]
    joins: Option<String>,
    /// An alias: dangerous but for a plain command with plain options.
    #[serde(default)]
    alias: bool,
    /// The name of a strategy of merges: dangerous but for git's own.
    #[serde(default)]
    strategy: bool,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

/// The rules of each section.
type RulesBySection = HashMap<String, Vec<ConfigRule>>;

struct ConfigRules {
    plain_commands: Vec<String>,
    running_options: Vec<String>,
    plain_short_options: String,
    strategy_commands: Vec<String>,
    strategies: Vec<String>,
    repository: RulesBySection,
    sequencer: RulesBySection,
    modules: RulesBySection,
}

static CONFIG_RULES: LazyLock<ConfigRules> = LazyLock::new(|| {
    let text = include_str!("../policies/data/git-config.toml");
    let file: RulesFile =
        toml::from_str(text).expect("the data file is part of the build, and a test reads it");
    ConfigRules {
        plain_commands: file.plain_commands,
        running_options: file.running_options,
        plain_short_options: file.plain_short_options,
        strategy_commands: file.strategy_commands,
        strategies: file.strategies,
        repository: by_section(file.key),
        sequencer: by_section(file.sequencer),
        modules: by_section(file.modules),
    }
});

fn by_section(rules: Vec<KeyRule>) -> RulesBySection {
    let mut found = RulesBySection::new();
    for rule in rules {
        let section = rule.name.split('.').next().unwrap_or_default().to_owned();
        found.entry(section).or_default().push(ConfigRule::new(rule));
    }
    found
}

/// The rules for the entries of a section, whose name is in small letters, and subsection.
pub(super) fn rules_of<'a>(
    kind: ConfigKind,
    section: &[u8],
    subsection: Option<&'a [u8]>,
) -> impl Iterator<Item = &'static ConfigRule> + use<'a> {
    let rules = match kind {
        ConfigKind::Repository => &CONFIG_RULES.repository,
        ConfigKind::Modules => &CONFIG_RULES.modules,
        ConfigKind::Sequencer => &CONFIG_RULES.sequencer,
    };
    // All names of sections in rules are text.
    let rules = std::str::from_utf8(section).ok().and_then(|section| rules.get(section));
    rules.into_iter().flatten().filter(move |rule| rule.is_about_subsection(subsection))
}

/// Whether git runs no other program than its own for a strategy of merges of this name.
pub(super) fn is_own_strategy(name: &[u8]) -> bool {
    name.is_empty() || CONFIG_RULES.strategies.iter().any(|own| own.as_bytes() == name)
}

/// Which subsections a rule is about.
#[derive(Debug)]
enum SubsectionPattern {
    /// The section itself.
    Absent,
    /// Every subsection.
    Any,
    /// The ones that start so.
    Starts(String),
    /// This one.
    Named(String),
}

impl SubsectionPattern {
    fn matches(&self, subsection: Option<&[u8]>) -> bool {
        match (self, subsection) {
            (Self::Absent, subsection) => subsection.is_none(),
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::Starts(start), Some(subsection)) => starts_with(subsection, start),
            (Self::Named(name), Some(subsection)) => subsection.eq_ignore_ascii_case(name.as_bytes()),
        }
    }
}

/// A rule about the entries of one section.
#[derive(Debug)]
pub(super) struct ConfigRule {
    subsection: SubsectionPattern,
    /// `None` for any. With `*` before it, any that ends so.
    variable: Option<String>,
    key: KeyRule,
}

impl ConfigRule {
    /// `section.variable`, `section.subsection.variable`: with a `*` for any subsection, any rest of one, or any variable.
    fn new(key: KeyRule) -> Self {
        let rest = key.name.split_once('.').map_or("", |(_, rest)| rest);
        let (subsection, variable) = match rest.rsplit_once('.') {
            None => (SubsectionPattern::Absent, rest),
            Some(("*", variable)) => (SubsectionPattern::Any, variable),
            Some((subsection, variable)) => {
                let pattern = match subsection.strip_suffix('*') {
                    Some(start) => SubsectionPattern::Starts(start.to_owned()),
                    None => SubsectionPattern::Named(subsection.to_owned()),
                };
                (pattern, variable)
            }
        };
        let variable = (variable != "*").then(|| variable.to_owned());
        Self { subsection, variable, key }
    }

    fn is_about_subsection(&self, subsection: Option<&[u8]>) -> bool {
        let name = subsection.unwrap_or_default();
        self.subsection.matches(subsection)
            && self.key.below.as_ref().is_none_or(|below| starts_with(name, below))
            && self.key.joins.as_ref().is_none_or(|whole| joins(name, whole))
    }

    /// Whether it is about entries of this name, which is in small letters.
    pub(super) fn is_about(&self, variable: &[u8]) -> bool {
        self.variable.as_ref().is_none_or(|wanted| match wanted.strip_prefix('*') {
            Some(end) => variable.ends_with(end.as_bytes()),
            None => wanted.as_bytes() == variable,
        })
    }

    /// Whether an entry that it is about makes git run code with this value.
    pub(super) fn is_dangerous(&self, value: &[u8]) -> bool {
        let key = &self.key;
        let trimmed = value.trim_ascii_start();
        (key.starts.is_empty() || key.starts.iter().any(|start| starts_with(trimmed, start)))
            && (key.contains.is_empty() || key.contains.iter().any(|part| contains(value, part)))
            && !key.safe.iter().any(|safe| value.eq_ignore_ascii_case(safe.as_bytes()))
            && !(key.strategy && is_own_strategy(value))
            && !(key.alias && is_plain_alias(value))
    }
}

/// Whether a text starts so, in small or capital letters.
fn starts_with(text: &[u8], start: &str) -> bool {
    text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start.as_bytes()))
}

fn contains(text: &[u8], part: &str) -> bool {
    (0..text.len()).any(|at| text.get(at..).is_some_and(|rest| starts_with(rest, part)))
}

/// Whether a text starts so, or becomes such a text when something is added to it.
fn joins(text: &[u8], whole: &str) -> bool {
    let length = text.len().min(whole.len());
    text.iter().take(length).eq(whole.as_bytes().iter().take(length))
}

/// Whether an alias stands for a command of git's that runs no other program by its options.
fn is_plain_alias(value: &[u8]) -> bool {
    const QUOTES: [char; 3] = ['"', '\'', '\\'];
    let mut value = String::from_utf8_lossy(value);
    if value.contains(QUOTES) {
        value = value.replace(QUOTES, "").into();
    }
    let mut words = value.split_whitespace();
    let Some(command) = words.next() else { return true };
    CONFIG_RULES.plain_commands.iter().any(|plain| plain == command)
        && words.all(|word| is_plain_word(command, word))
}

fn is_plain_word(command: &str, word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').unwrap_or((long, ""));
        // Options can be shortened.
        let is_running = |option: &String| option.starts_with(name) || name.starts_with(option.as_str());
        return name.is_empty()
            || !(CONFIG_RULES.running_options.iter().any(is_running) || is_transport_url(value));
    }
    if let Some(options) = word.strip_prefix('-') {
        return are_plain_options(command, options);
    }
    // A new worktree can be a directory outside, which then holds files of any name.
    let is_elsewhere = command == "worktree" && word.contains('/');
    !word.contains("::") && !is_transport_url(word) && !is_elsewhere
}

/// Whether short options, written as one word, run nothing.
fn are_plain_options(command: &str, options: &str) -> bool {
    // What follows an `X` is its value.
    let options = options.split('X').next().unwrap_or_default();
    let takes_strategy = CONFIG_RULES.strategy_commands.iter().any(|one| one == command);
    options
        .chars()
        .all(|option| CONFIG_RULES.plain_short_options.contains(option) && !(takes_strategy && option == 's'))
}

/// Whether a URL is one for a program: `ext:` with one or two colons, or another program's with two.
fn is_transport_url(url: &str) -> bool {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    url.trim_start_matches(is_scheme).starts_with("::") || starts_with(url.as_bytes(), "ext:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_about_the_keys_of_its_name() {
        let is_matched = |section: &str, subsection: Option<&str>, variable: &str| {
            let subsection = subsection.map(str::as_bytes);
            let mut rules = rules_of(ConfigKind::Repository, section.as_bytes(), subsection);
            rules.any(|rule| rule.is_about(variable.as_bytes()))
        };
        for (section, subsection, variable) in [
            ("core", None, "fsmonitor"),
            ("pager", None, "log"),
            ("pager", Some("a"), "b"),
            ("tig", Some("bind"), "main"),
            ("filter", Some(""), "clean"),
            ("filter", Some("a.b"), "clean"),
            ("gpg", Some("SSH"), "defaultkeycommand"),
            ("lfs", Some("customtransfer.x"), "path"),
        ] {
            assert!(is_matched(section, subsection, variable), "{section} {subsection:?} {variable}");
        }
        for (section, subsection, variable) in [
            ("core", Some("x"), "fsmonitor"),
            ("core", None, "bare"),
            ("filter", None, "clean"),
            ("filter", Some("clean"), "required"),
            ("lfs", Some("x"), "path"),
            ("Core", None, "fsmonitor"),
            ("", None, "fsmonitor"),
        ] {
            assert!(!is_matched(section, subsection, variable), "{section} {subsection:?} {variable}");
        }
    }

    #[test]
    fn everyday_aliases_are_plain_and_no_other_program_is_run_by_one() {
        for alias in [
            "",
            "status -sb",
            "log --graph --oneline -n 5 --format='%h::%s'",
            "commit -sv -S",
            "switch -c",
            "checkout -",
            "diff -M90% -U0 -w",
            "shortlog -sn",
            "rebase -iXtheirs --autosquash",
            "pull -X ours --rebase",
            "cherry-pick -s",
            "push -fu origin HEAD:main",
            "worktree list",
            "fetch -apt4",
        ] {
            assert!(is_plain_alias(alias.as_bytes()), "{alias}");
        }
        for alias in [
            "!x",
            "rebase -s x/e",
            "rebase -sx/e",
            "rebase -is x/e",
            "pull -rs x/e",
            "rebase '-'s x/e",
            "rebase -i/x",
            "rebase --strat x/e",
            "fetch ext://x",
            "fetch ext::x",
            "push --repo=ext::x",
            "push --repo=other::x",
            "worktree add /home/a/.config/autostart b",
            "grep -O./x y",
            "log -\u{e9}",
        ] {
            assert!(!is_plain_alias(alias.as_bytes()), "{alias}");
        }
    }

    #[test]
    fn only_a_start_of_the_whole_joins_it() {
        for text in ["", "e", "ext", "ext:", "ext::x"] {
            assert!(joins(text.as_bytes(), "ext:"), "{text}");
        }
        for text in ["x", "https://", "ex:", "file:"] {
            assert!(!joins(text.as_bytes(), "ext:"), "{text}");
        }
    }
}
