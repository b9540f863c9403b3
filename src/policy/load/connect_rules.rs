//! Loads the rules about connections, which share the ids of the other rules.

use std::collections::BTreeMap;

use super::{MAX_RULES, ParsedFile, find_key, find_text};
use crate::policy::{
    connect::{ConnectRule, ConnectRuleError},
    file_error::PolicyFileError,
    profile::{Profile, ProfileName},
    set::RuleLocation,
};

/// Compiles the rules of all files.
pub(super) fn load(
    files: &[ParsedFile<'_>],
    profiles: &BTreeMap<ProfileName, std::sync::Arc<Profile>>,
    locations: &mut BTreeMap<String, RuleLocation>,
) -> Result<Vec<ConnectRule>, PolicyFileError> {
    let mut rules = Vec::new();
    for file in files {
        for (at, spanned) in file.file.connect.iter().enumerate() {
            let source = spanned.get_ref();
            let end = file.file.connect.get(at + 1).map_or(file.text.len(), |next| next.span().start);
            let span = spanned.span().start..end.max(spanned.span().start);
            let wrong =
                |key: &str, problem: String| file.error(find_key(file.text, span.clone(), key), problem);
            if let Some(origin) = locations.get(&source.id) {
                let problem = format!("id: {:?} is taken by {}:{}", source.id, origin.file, origin.line);
                return Err(wrong("id", problem));
            }
            if rules.len() >= MAX_RULES {
                return Err(wrong("id", format!("more than {MAX_RULES} rules about connections")));
            }
            let unknown = source
                .when
                .profile
                .iter()
                .find(|name| !profiles.contains_key(&ProfileName(name.as_str().into())));
            if let Some(name) = unknown {
                return Err(wrong("profile", format!("when.profile: there is no [profile.{name}]")));
            }
            let rule_error = |error: ConnectRuleError| {
                let written = error.text().and_then(|text| find_text(file.text, span.clone(), text));
                match written {
                    Some(range) => file.error(range, error.to_string()),
                    None => wrong(error.key(), error.to_string()),
                }
            };
            let rule = ConnectRule::compile(source, file.file.mode).map_err(rule_error)?;
            let line = file.text[..spanned.span().start.min(file.text.len())].matches('\n').count() + 1;
            locations.insert(source.id.clone(), RuleLocation { file: file.name.to_owned(), line });
            rules.push(rule);
        }
    }
    Ok(rules)
}
