//! Loads the rules about connections, which share the ids of the other rules.

use std::collections::BTreeMap;

use super::{ParsedFile, SecretMap, rule_place::placed};
use crate::{
    connect::{ConnectRule, ConnectRuleError},
    file_error::PolicyFileError,
    profile::{Profile, ProfileName},
    warning::RuleLocation,
};

/// Compiles the rules of all files.
pub(super) fn load(
    files: &[ParsedFile<'_>],
    profiles: &BTreeMap<ProfileName, std::sync::Arc<Profile>>,
    secrets: &SecretMap,
    locations: &mut BTreeMap<String, RuleLocation>,
) -> Result<Vec<ConnectRule>, PolicyFileError> {
    let mut rules = Vec::new();
    for file in files {
        for (source, place) in placed(file, &file.file.connect) {
            place.take_id(&source.id, rules.len(), locations, "rules about connections")?;
            let unknown = source
                .when
                .profile
                .iter()
                .find(|name| !profiles.contains_key(&ProfileName(name.as_str().into())));
            if let Some(name) = unknown {
                return Err(place.wrong("profile", format!("when.profile: there is no [profile.{name}]")));
            }
            let rule_error =
                |error: ConnectRuleError| place.wrong_text(error.text(), error.key(), error.to_string());
            let named = source.credential.as_ref().map(|credential| &credential.secret);
            if let Some(name) = named.filter(|name| !secrets.contains_key(*name)) {
                let problem = format!("credential.secret: there is no [secrets.{name}]");
                return Err(place.wrong_text(Some(name), "credential", problem));
            }
            rules.push(ConnectRule::compile(source, file.file.mode).map_err(rule_error)?);
        }
    }
    Ok(rules)
}
