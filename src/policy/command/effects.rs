//! Effects of the rules on the commands of one request, put together.
//!
//! A request runs in one sandbox with one environment, so that what a rule gives to one of its commands (a profile, variables,
//! secrets) would reach the others. It is given only where there are no others, or where they have the same or do nothing by
//! themselves; else it is refused, not chosen. Limits and times only ever get tighter, for the whole request.

use std::collections::BTreeSet;

use super::{
    rule::{Effects, Rule},
    shell::Word,
};
use crate::profile::lower_limit;

/// The longest part of a command that an error text repeats.
const COMMAND_SHOWN_BYTES: usize = 120;

/// Why the effects of a request's rules cannot be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectsConflict {
    /// Two rules about one command name different profiles, or values of one variable.
    #[error("rules {0:?} and {1:?} have effects that exclude each other")]
    Rules(String, String),
    /// What a rule gives to one command would reach another command of the line.
    #[error(
        "rule {rule:?} gives {what} to {given}, and in one line {other} would have it, too: run them as commands of their own"
    )]
    Commands {
        /// The rule.
        rule: String,
        /// What it gives.
        what: String,
        /// The command that it is about.
        given: String,
        /// A command that it is not about.
        other: String,
    },
}

impl EffectsConflict {
    /// The rule that the refusal is attributed to.
    pub fn rule(&self) -> &str {
        match self {
            Self::Rules(rule, _) | Self::Commands { rule, .. } => rule,
        }
    }
}

/// What a command does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnWork {
    /// Something, or nobody knows.
    Some,
    /// Nothing: a builtin of the shell, a function, a wrapper whose inner command is another one.
    None {
        /// Whether it might write values of variables somewhere.
        may_show_variables: bool,
    },
}

impl OwnWork {
    /// The own work of a builtin, function or wrapper: what a builtin writes is known where all of its words are.
    pub(super) fn of_transparent(words: &[Word], is_builtin: bool) -> Self {
        let mut literals = words.iter().map(Word::literal);
        let name = literals.next().flatten().unwrap_or_default();
        let is_quiet = match name {
            ":" | "true" | "false" | "cd" | "echo" | "printf" | "test" | "[" | "exit" | "return"
            | "umask" | "wait" | "shift" | "unset" | "read" | "exec" | "command" | "kill" => true,
            "export" | "readonly" => {
                words.len() > 1 && literals.clone().flatten().all(|word| !word.starts_with('-'))
            }
            "set" => {
                words.len() > 1 && literals.clone().flatten().all(|word| ["-e", "-u", "-eu"].contains(&word))
            }
            _ => !is_builtin,
        };
        let is_seen = !is_builtin || literals.all(|word| word.is_some());
        Self::None { may_show_variables: !(is_quiet && is_seen) }
    }
}

/// The effects on one command: of the rules about it, and of those about the commands that run it.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandEffects {
    /// The rules, by id.
    pub(super) rules: Vec<String>,
    /// Their effects, put together.
    pub(super) effects: Effects,
}

impl CommandEffects {
    /// Adds the effects of more rules.
    pub(super) fn add<'r>(&mut self, rules: impl Iterator<Item = &'r Rule>) -> Result<(), EffectsConflict> {
        let mut rules: Vec<&Rule> = rules.filter(|rule| rule.effects != Effects::default()).collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        for rule in rules {
            if merge(&mut self.effects, &rule.effects).is_err() {
                let other = self.rules.last().cloned().unwrap_or_default();
                return Err(EffectsConflict::Rules(other, rule.id.clone()));
            }
            self.rules.push(rule.id.clone());
        }
        Ok(())
    }
}

/// One command of a request, as its effects see it.
#[derive(Debug)]
pub(super) struct AffectedCommand {
    /// Its place among the units.
    pub(super) unit: usize,
    /// What it is instead of a unit: a redirection, which the shell does.
    pub(super) redirection: Option<String>,
    /// What it does by itself.
    pub(super) work: OwnWork,
    /// The effects on it.
    pub(super) on: CommandEffects,
}

/// The effects on a whole request. `own_profile` is what commands run under that no rule gives a profile; `text` shows the command of
/// a unit.
pub(super) fn of_request(
    commands: &[AffectedCommand],
    text: &dyn Fn(usize) -> String,
    own_profile: &str,
) -> Result<Effects, EffectsConflict> {
    let mut all = Effects::default();
    let is_working = |command: &&AffectedCommand| command.work == OwnWork::Some;
    if let Some(first) = commands.iter().find(is_working) {
        for other in commands {
            let reaches = match other.work {
                OwnWork::Some => {
                    Grants::of(first, own_profile).differs(&Grants::of(other, own_profile), own_profile)
                }
                OwnWork::None { may_show_variables } => {
                    let (has, own) = (Grants::of(first, own_profile), Grants::of(other, own_profile));
                    let shown = may_show_variables.then(|| has.secrets_beyond(&own)).flatten();
                    let named = other.on.effects.profile.as_deref().filter(|named| *named != has.profile);
                    let profile = named.map(|named| format!("profile {named:?}"));
                    profile.or_else(|| own.values_beyond(&has)).map(Reach::Back).or(shown.map(Reach::On))
                }
            };
            if let Some(reach) = reaches {
                return Err(reach.refused(first, other, text));
            }
        }
    }
    let mut last: Option<&String> = None;
    for command in commands {
        if merge(&mut all, &command.on.effects).is_err() {
            let rule = |rule: Option<&String>| rule.cloned().unwrap_or_default();
            return Err(EffectsConflict::Rules(rule(last), rule(command.on.rules.last())));
        }
        last = command.on.rules.last().or(last);
    }
    Ok(all)
}

/// Which of two commands has what the other must not have.
enum Reach {
    /// The first one.
    On(String),
    /// The other one.
    Back(String),
}

impl Reach {
    fn refused(
        self,
        first: &AffectedCommand,
        other: &AffectedCommand,
        text: &dyn Fn(usize) -> String,
    ) -> EffectsConflict {
        let (what, given, other) = match self {
            Self::On(what) => (what, first, other),
            Self::Back(what) => (what, other, first),
        };
        let text = |command: &AffectedCommand| {
            let text = command.redirection.clone().unwrap_or_else(|| text(command.unit));
            format!("`{}`", crate::printable::bounded(&text, COMMAND_SHOWN_BYTES))
        };
        let rule = given.on.rules.last().cloned().unwrap_or_default();
        EffectsConflict::Commands { rule, what, given: text(given), other: text(other) }
    }
}

/// What rules give to a command beyond what the request has.
struct Grants<'a> {
    profile: &'a str,
    variables: BTreeSet<(&'a str, &'a str)>,
    secrets: BTreeSet<&'a str>,
}

impl<'a> Grants<'a> {
    fn of(command: &'a AffectedCommand, own_profile: &'a str) -> Self {
        let effects = &command.on.effects;
        Self {
            profile: effects.profile.as_deref().unwrap_or(own_profile),
            variables: effects
                .environment
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
            secrets: effects.secrets.iter().map(String::as_str).collect(),
        }
    }

    fn differs(&self, other: &Self, own_profile: &str) -> Option<Reach> {
        if self.profile != other.profile {
            // The profile that a rule has named is what is said, and not the command's own.
            return Some(match self.profile == own_profile {
                true => Reach::Back(format!("profile {:?}", other.profile)),
                false => Reach::On(format!("profile {:?}", self.profile)),
            });
        }
        let on = self.values_beyond(other).map(Reach::On);
        on.or_else(|| other.values_beyond(self).map(Reach::Back))
    }

    fn values_beyond(&self, other: &Self) -> Option<String> {
        let variable = self.variables.difference(&other.variables).next();
        let variable = variable.map(|(name, _)| format!("the variable {name:?}"));
        variable.or_else(|| self.secrets_beyond(other))
    }

    fn secrets_beyond(&self, other: &Self) -> Option<String> {
        self.secrets.difference(&other.secrets).next().map(|name| format!("the secret {name:?}"))
    }
}

/// Two rules ask for effects that exclude one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Excluded;

/// Adds effects; `Err` where both name a profile, or a value of one variable, and they differ.
fn merge(effects: &mut Effects, more: &Effects) -> Result<(), Excluded> {
    match (&effects.profile, &more.profile) {
        (Some(a), Some(b)) if a != b => return Err(Excluded),
        (None, Some(b)) => effects.profile = Some(b.clone()),
        _ => {}
    }
    for (name, value) in &more.environment {
        if effects.environment.insert(name.clone(), value.clone()).is_some_and(|before| before != *value) {
            return Err(Excluded);
        }
    }
    effects.secrets.extend(more.secrets.iter().cloned());
    effects.time_limit = lower_limit(effects.time_limit, more.time_limit);
    effects.idle_limit = lower_limit(effects.idle_limit, more.idle_limit);
    effects.limits = effects.limits.lowered_by(more.limits);
    Ok(())
}
