//! The commands' environment: what may be passed and what comes of it.
//!
//! Begins empty. Nothing of the gateway's own environment is ever in it. A name that a profile denies is refused
//! and never silently dropped: a caller that believes in a variable must learn that it is not there.

use std::collections::{BTreeMap, BTreeSet};

use super::profile::{EnvironmentRule, Profile};

/// The longest `NAME=value` that exec takes: MAX_ARG_STRLEN of execve(2), 32 pages, with the closing NUL.
pub const ENTRY_MAX_BYTES: usize = 131_071;

/// Why a name or value can be no part of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
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
pub struct Entry {
    name: String,
    value: String,
}

impl Entry {
    /// Checks a name and a value.
    pub fn new(name: String, value: String) -> Result<Self, EntryError> {
        if name.is_empty() {
            return Err(EntryError::EmptyName);
        }
        if name.contains('=') {
            return Err(EntryError::EqualsInName);
        }
        if name.contains('\0') {
            return Err(EntryError::NulInName);
        }
        if value.contains('\0') {
            return Err(EntryError::NulInValue);
        }
        if name.len() + 1 + value.len() >= ENTRY_MAX_BYTES {
            return Err(EntryError::TooLong);
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
) -> Result<Vec<Entry>, (usize, EntryError)> {
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for (index, (name, value)) in pairs.into_iter().enumerate() {
        let entry = Entry::new(name, value).map_err(|error| (index, error))?;
        if !names.insert(entry.name.clone()) {
            return Err((index, EntryError::Duplicate));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// A pattern of names: exact, or with one `*` at its end.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Why a variable may not be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused<'a> {
    /// This pattern of the profile denies it.
    Denied(&'a str),
    /// The profile lists what may be passed, and it is not among it.
    NotAllowed,
}

/// Judges one name.
pub fn judge_name<'a>(rule: &'a EnvironmentRule, name: &str) -> Result<(), Refused<'a>> {
    if let Some(pattern) = rule.deny.iter().find(|pattern| matches(pattern, name)) {
        return Err(Refused::Denied(pattern));
    }
    if !rule.allow.is_empty() && !rule.allow.iter().any(|pattern| matches(pattern, name)) {
        return Err(Refused::NotAllowed);
    }
    Ok(())
}

/// The environment of one command, in the order of the names: what the profile's other fields imply, its fixed
/// values, then the session's, then the caller's.
pub fn merged(profile: &Profile, session: &[Entry], caller: &[Entry]) -> BTreeMap<String, String> {
    let path = profile.path.iter().map(|folder| folder.to_string_lossy()).collect::<Vec<_>>().join(":");
    let user = &profile.identity.user;
    let implied = [
        ("PATH", path),
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

/// As [`merged`], each as `NAME=value`.
pub fn merge(profile: &Profile, session: &[Entry], caller: &[Entry]) -> Vec<bytes::Bytes> {
    merged(profile, session, caller)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}").into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &str) -> Entry {
        Entry::new(name.into(), value.into()).unwrap()
    }

    #[test]
    fn names_and_values_that_no_environment_can_hold_are_refused() {
        let refused = |name: &str, value: &str| Entry::new(name.into(), value.into()).unwrap_err();
        assert_eq!(refused("", "x"), EntryError::EmptyName);
        assert_eq!(refused("A=B", "x"), EntryError::EqualsInName);
        assert_eq!(refused("A\0", "x"), EntryError::NulInName);
        assert_eq!(refused("A", "x\0"), EntryError::NulInValue);
        assert_eq!(refused("A", &"x".repeat(ENTRY_MAX_BYTES)), EntryError::TooLong);
    }

    #[test]
    fn a_name_given_twice_is_refused_with_its_place() {
        let twice = [("A", "1"), ("B", "2"), ("A", "1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(parse_list(twice), Err((2, EntryError::Duplicate)));
    }

    #[test]
    fn a_star_stands_for_the_rest_of_a_name() {
        assert!(matches("LD_*", "LD_PRELOAD"));
        assert!(matches("*", "ANYTHING"));
        assert!(matches("ENV", "ENV"));
        assert!(!matches("ENV", "ENVIRONMENT"));
        assert!(!matches("LD_*", "OLD_PRELOAD"));
    }

    #[test]
    fn deny_wins_over_allow_and_an_allow_list_is_complete() {
        let rule = EnvironmentRule {
            allow: vec!["LD_*".into(), "MY_*".into()],
            deny: vec!["LD_*".into()],
            ..Default::default()
        };
        assert_eq!(judge_name(&rule, "LD_PRELOAD"), Err(Refused::Denied("LD_*")));
        assert_eq!(judge_name(&rule, "OTHER"), Err(Refused::NotAllowed));
        assert_eq!(judge_name(&rule, "MY_NAME"), Ok(()));
    }

    #[test]
    fn the_caller_wins_over_the_session_and_the_session_over_the_profile() {
        let mut profile = Profile::default();
        profile.environment.set.insert("LANG".into(), "C".into());
        profile.environment.set.insert("PAGER".into(), "cat".into());
        let merged = merge(&profile, &[entry("LANG", "de"), entry("A", "s")], &[entry("A", "c")]);
        let text: Vec<_> = merged.iter().map(|e| std::str::from_utf8(e).unwrap()).collect();
        assert!(text.contains(&"LANG=de") && text.contains(&"A=c") && text.contains(&"PAGER=cat"));
        assert!(text.contains(&"HOME=/home/agent"));
        assert_eq!(text.iter().filter(|e| e.starts_with("A=")).count(), 1);
    }
}
