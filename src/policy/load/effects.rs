//! Checks the effects of a rule: the profile that they name, the variables, the numbers.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ProfileName,
    command::{self, rule::RuleSource},
    environment::EnvEntry,
    profile::Profile,
};

/// The error has the key that is wrong, and what is wrong with it.
pub(super) fn check_effects(
    source: &RuleSource,
    profiles: &BTreeMap<ProfileName, Arc<Profile>>,
) -> Result<(), (&'static str, String)> {
    let effects = &source.effects;
    if let Some(name) = &effects.profile
        && !profiles.contains_key(&ProfileName(name.as_str().into()))
    {
        return Err(("profile", format!("effects.profile: there is no [profile.{name}]")));
    }
    for (name, value) in &effects.environment {
        EnvEntry::new(name.clone(), value.clone())
            .map_err(|error| ("environment", format!("effects.environment: {name:?}: {error}")))?;
        // The rules have spoken on the names before they are given their environment.
        if command::changes_lookup(name) {
            let problem = "changes what names in command lines mean: a profile can set it";
            return Err(("environment", format!("effects.environment: {name:?}: {problem}")));
        }
    }
    for (key, time) in [("time_limit", effects.time_limit), ("idle_limit", effects.idle_limit)] {
        if time.is_some_and(|time| time.is_zero()) {
            return Err((key, format!("effects.{key}: must not be 0")));
        }
    }
    let limits = &effects.limits;
    let numbers =
        [("memory_bytes", limits.memory_bytes), ("pids", limits.pids), ("cpu_millis", limits.cpu_millis)];
    match numbers.into_iter().find(|(_, value)| *value == Some(0)) {
        Some((key, _)) => Err((key, format!("effects.limits.{key}: must not be 0"))),
        None => Ok(()),
    }
}
