//! The environment of commands: which variables a caller may pass, and what the whole becomes.
//!
//! It starts empty and inherits nothing from the gateway. A denied variable refuses the request instead of being dropped,
//! so that no caller relies on a variable that the command does not have.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    command::{changes_lookup, verdict::AssignmentVerdict},
    profile::{EnvironmentRule, Profile},
    variables::{self, ListedVariable, OnAssignment, matches},
};
use crate::byte_text;

/// The longest `NAME=value` that exec takes: MAX_ARG_STRLEN of execve(2), 32 pages, with the closing NUL.
pub const ENV_VAR_MAX_BYTES: usize = 131_071;

/// Why a name or value cannot be in an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvVarError {
    /// Empty name.
    #[error("name must not be empty")]
    EmptyName,
    /// `=` in the name.
    #[error("name must not hold \"=\"")]
    EqualsInName,
    /// NUL in the name.
    #[error("name must not hold a NUL byte")]
    NulInName,
    /// NUL in the value.
    #[error("value must not hold a NUL byte")]
    NulInValue,
    /// Longer than exec takes.
    #[error("name and value together must be shorter than 131071 bytes")]
    TooLong,
    /// A name given twice in one list.
    #[error("name is given twice")]
    Duplicate,
}

/// One variable, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvEntry {
    name: String,
    value: String,
}

impl EnvEntry {
    /// Checks a name and a value.
    pub fn new(name: String, value: String) -> Result<Self, EnvVarError> {
        if name.is_empty() {
            return Err(EnvVarError::EmptyName);
        }
        if name.contains('=') {
            return Err(EnvVarError::EqualsInName);
        }
        if name.contains('\0') {
            return Err(EnvVarError::NulInName);
        }
        if value.contains('\0') {
            return Err(EnvVarError::NulInValue);
        }
        if byte_text::len(&name) + 1 + byte_text::len(&value) >= ENV_VAR_MAX_BYTES {
            return Err(EnvVarError::TooLong);
        }
        Ok(Self { name, value })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Checks a whole list, in which no name may stand twice. The error says which entry, 0-based.
pub fn parse_list(
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<EnvEntry>, (usize, EnvVarError)> {
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for (index, (name, value)) in pairs.into_iter().enumerate() {
        let entry = EnvEntry::new(name, value).map_err(|error| (index, error))?;
        if !names.insert(entry.name.clone()) {
            return Err((index, EnvVarError::Duplicate));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Why a variable may not be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableDenial<'a> {
    /// A pattern denies it.
    Denied {
        /// The pattern.
        pattern: &'a str,
        /// What such a variable does, where the shipped list says so.
        reason: Option<&'static str>,
        /// What a command line may do that sets it.
        on_assignment: OnAssignment,
    },
    /// The profile lists what may be passed, and it is not among it.
    NotAllowed,
}

/// Checks one variable that a caller passes, by its name and, where it is known, its value.
pub fn check_variable<'a>(
    rule: &'a EnvironmentRule,
    name: &'a str,
    value: Option<&'a str>,
) -> Result<(), VariableDenial<'a>> {
    let is_listed = rule.allow.is_empty() || rule.allow.iter().any(|pattern| matches(pattern, name));
    match denied(rule, name, value) {
        Some(VariableDenial::Denied { on_assignment: OnAssignment::Guarded, .. }) if !is_listed => {
            Err(VariableDenial::NotAllowed)
        }
        Some(denial) => Err(denial),
        None if is_listed => Ok(()),
        None => Err(VariableDenial::NotAllowed),
    }
}

/// The denial of a variable that changes what commands do, set by a caller or by a line.
pub fn denied<'a>(
    rule: &'a EnvironmentRule,
    name: &'a str,
    value: Option<&'a str>,
) -> Option<VariableDenial<'a>> {
    if let Some(pattern) = rule.deny.iter().find(|pattern| matches(pattern, name)) {
        return Some(VariableDenial::Denied { pattern, reason: None, on_assignment: OnAssignment::Denied });
    }
    let is_dropped = |variable: &ListedVariable| {
        let of_its_kind = |dropped: &str| {
            variable.on_assignment == OnAssignment::Loads && dropped.contains('*') && matches(dropped, name)
        };
        rule.drop
            .iter()
            .any(|dropped| *dropped == variable.pattern || dropped == name || of_its_kind(dropped))
    };
    let shipped = variables::matching(name, value).find(|variable| !is_dropped(variable));
    shipped.map(|variable| VariableDenial::Denied {
        pattern: &variable.pattern,
        reason: Some(&variable.reason),
        on_assignment: variable.on_assignment,
    })
}

/// What a command line may do that sets the variable. `allow` is for what callers pass: a line can do by another command whatever it
/// does by a variable that is not denied.
pub fn assignment_verdict(rule: &EnvironmentRule, name: &str, value: Option<&str>) -> AssignmentVerdict {
    match denied(rule, name, value) {
        Some(VariableDenial::Denied { on_assignment, .. }) => match on_assignment {
            OnAssignment::Guarded => AssignmentVerdict::Guarded,
            OnAssignment::Loads => AssignmentVerdict::Loads,
            OnAssignment::Denied => AssignmentVerdict::Denied,
        },
        Some(VariableDenial::NotAllowed) | None => AssignmentVerdict::Allowed,
    }
}

/// Whether program names in command lines are looked up in the profile's own `path`, in this environment.
pub fn keeps_lookup(profile: &Profile, env: &BTreeMap<String, String>) -> bool {
    env.iter().all(|(name, value)| match name.as_str() {
        "PATH" => *value == search_path(profile),
        name => !changes_lookup(name),
    })
}

fn search_path(profile: &Profile) -> String {
    profile.searched().iter().map(|directory| byte_text::from_path(directory)).collect::<Vec<_>>().join(":")
}

/// The environment of one command, in the order of the names: what the profile's other fields imply, its fixed
/// values, then the session's, then the caller's.
pub fn merge_variables(
    profile: &Profile,
    session: &[EnvEntry],
    caller: &[EnvEntry],
) -> BTreeMap<String, String> {
    let user = &profile.identity.user;
    let implied = [
        ("PATH", search_path(profile)),
        ("HOME", profile.identity.home.to_string_lossy().into_owned()),
        ("USER", user.clone()),
        ("LOGNAME", user.clone()),
    ];
    let mut merged: BTreeMap<String, String> =
        implied.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    merged.extend(profile.environment.set.clone());
    let given = session.iter().chain(caller);
    merged.extend(given.map(|entry| (entry.name.clone(), entry.value.clone())));
    merged
}

/// Where commands find the socket of the caller's SSH agent, under a profile that gives them something of it.
pub const SSH_AGENT_SOCKET: &str = "/run/provost/ssh-agent";

/// As [`merge_variables`], each as `NAME=value`, with what is implied unless it is set.
pub fn merge_to_list(
    profile: &Profile,
    implied: Vec<(String, String)>,
    session: &[EnvEntry],
    caller: &[EnvEntry],
) -> Vec<bytes::Bytes> {
    let mut merged = merge_variables(profile, session, caller);
    let agent =
        (!profile.ssh_agent.is_empty()).then(|| ("SSH_AUTH_SOCK".to_owned(), SSH_AGENT_SOCKET.to_owned()));
    for (name, value) in implied.into_iter().chain(agent) {
        merged.entry(name).or_insert(value);
    }
    let bytes = |text: String| byte_text::to_bytes(&text).into_owned().into();
    merged.into_iter().map(|(name, value)| bytes(format!("{name}={value}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &str) -> EnvEntry {
        EnvEntry::new(name.into(), value.into()).unwrap()
    }

    #[test]
    fn names_and_values_that_no_environment_can_hold_are_refused() {
        let refused = |name: &str, value: &str| EnvEntry::new(name.into(), value.into()).unwrap_err();
        assert_eq!(refused("", "x"), EnvVarError::EmptyName);
        assert_eq!(refused("A=B", "x"), EnvVarError::EqualsInName);
        assert_eq!(refused("A\0", "x"), EnvVarError::NulInName);
        assert_eq!(refused("A", "x\0"), EnvVarError::NulInValue);
        assert_eq!(refused("A", &"x".repeat(ENV_VAR_MAX_BYTES)), EnvVarError::TooLong);
    }

    #[test]
    fn a_name_given_twice_is_refused_with_its_place() {
        let twice = [("A", "1"), ("B", "2"), ("A", "1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(parse_list(twice), Err((2, EnvVarError::Duplicate)));
    }

    #[test]
    fn deny_wins_over_allow_and_an_allow_list_is_complete() {
        let rule = EnvironmentRule {
            allow: vec!["LD_*".into(), "MY_*".into(), "HOME".into()],
            deny: vec!["MY_OWN".into()],
            ..Default::default()
        };
        let denied = |name: &'static str| match check_variable(&rule, name, Some("x")) {
            Err(VariableDenial::Denied { pattern, on_assignment: in_lines, .. }) => {
                (pattern.to_owned(), in_lines)
            }
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(denied("LD_PRELOAD"), ("LD_*".to_owned(), OnAssignment::Denied));
        assert_eq!(denied("MY_OWN"), ("MY_OWN".to_owned(), OnAssignment::Denied));
        assert_eq!(denied("HOME"), ("HOME".to_owned(), OnAssignment::Guarded));
        assert_eq!(check_variable(&rule, "OTHER", None), Err(VariableDenial::NotAllowed));
        assert_eq!(check_variable(&rule, "PYTHONPATH", None), Err(VariableDenial::NotAllowed));
        assert_eq!(check_variable(&rule, "MY_NAME", None), Ok(()));
    }

    #[test]
    fn an_allow_list_says_nothing_about_what_a_line_sets_for_itself() {
        let rule =
            EnvironmentRule { allow: vec!["LANG".into()], deny: vec!["MY_OWN".into()], ..Default::default() };
        let setting = |name, value| assignment_verdict(&rule, name, value);
        for name in ["n", "f", "LANG", "MY_NAME"] {
            assert_eq!(setting(name, None), AssignmentVerdict::Allowed, "{name}");
        }
        assert_eq!(setting("MY_OWN", Some("x")), AssignmentVerdict::Denied);
        assert_eq!(setting("LD_PRELOAD", Some("x")), AssignmentVerdict::Denied);
        assert_eq!(setting("NODE_OPTIONS", Some("--require=x")), AssignmentVerdict::Loads);
        assert_eq!(setting("PYTHONPATH", Some("src")), AssignmentVerdict::Guarded);
    }

    #[test]
    fn a_pattern_is_dropped_by_its_text_and_one_name_by_itself() {
        let dropping = |names: &[&str]| EnvironmentRule {
            drop: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        let setting = |rule: &EnvironmentRule, name| assignment_verdict(rule, name, Some("x"));
        assert_eq!(setting(&dropping(&["npm_*"]), "npm_config_shell"), AssignmentVerdict::Allowed);
        let one = dropping(&["npm_config_registry", "LD_PRELOAD"]);
        assert_eq!(setting(&one, "npm_config_registry"), AssignmentVerdict::Allowed);
        assert_eq!(setting(&one, "npm_config_shell"), AssignmentVerdict::Guarded);
        assert_eq!(setting(&one, "LD_PRELOAD"), AssignmentVerdict::Allowed);
        assert_eq!(setting(&one, "LD_AUDIT"), AssignmentVerdict::Denied);
        let all = dropping(&["LD_*"]);
        assert_eq!(setting(&all, "LD_LIBRARY_PATH"), AssignmentVerdict::Allowed);
        assert_eq!(setting(&dropping(&["LD_LIBRARY_PATH"]), "LD_PRELOAD"), AssignmentVerdict::Denied);
        let denying = EnvironmentRule { deny: vec!["PATH".into()], ..dropping(&["PATH"]) };
        assert_eq!(setting(&denying, "PATH"), AssignmentVerdict::Denied);
    }

    #[test]
    fn the_caller_wins_over_the_session_and_the_session_over_the_profile() {
        let mut profile = Profile::default();
        profile.environment.set.insert("LANG".into(), "C".into());
        profile.environment.set.insert("PAGER".into(), "cat".into());
        let merged =
            merge_to_list(&profile, Vec::new(), &[entry("LANG", "de"), entry("A", "s")], &[entry("A", "c")]);
        let text: Vec<_> = merged.iter().map(|e| std::str::from_utf8(e).unwrap()).collect();
        assert!(text.contains(&"LANG=de") && text.contains(&"A=c") && text.contains(&"PAGER=cat"));
        assert!(text.contains(&"HOME=/home/agent"));
        assert_eq!(text.iter().filter(|e| e.starts_with("A=")).count(), 1);
    }
}
