//! Collects the warnings about a policy, without those that its files silence.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use super::ParsedFile;
use crate::network::http_request::Scheme;
use crate::{
    PolicyFileError, ProfileName,
    command::{
        pattern::Regexes,
        rule::{Decision, RuleSource},
    },
    connect::{ConnectSource, TlsHandling},
    profile::Profile,
    rule_warnings::{self, Gates, WrittenRule},
    warning::{PolicyWarning, RuleLocation, Silenced, WarningId},
};

/// A directory for secrets that no shipped profile shows.
const SECRETS_PLACE: &str = "/var/lib/provost-secrets";

/// Finds them, in the order of files and lines. An error for a file that silences what there is not.
pub(super) fn find(
    files: &[ParsedFile<'_>],
    profiles: &BTreeMap<ProfileName, Arc<Profile>>,
    locations: &BTreeMap<String, RuleLocation>,
    regexes: &Regexes,
) -> Result<Vec<PolicyWarning>, PolicyFileError> {
    let gates = match profiles.values().any(|profile| profile.gate.enabled) {
        true => Gates::Some,
        false => Gates::None,
    };
    let mut rules: Vec<WrittenRule<'_>> = Vec::new();
    for file in files {
        let sources = file.file.rule.iter().map(|rule| rule.get_ref());
        let mode = |source: &RuleSource| source.mode.unwrap_or(file.file.mode);
        rules.extend(sources.map(|source| WrittenRule { source, mode: mode(source) }));
    }
    let about_rules =
        rule_warnings::check(&rules, gates, regexes).into_iter().filter_map(|(at, id, problem)| {
            let subject = rules.get(at)?.source.id.clone();
            Some(PolicyWarning { id, location: locations.get(&subject).cloned(), subject, problem })
        });
    let opened: HashSet<&str> = files
        .iter()
        .flat_map(|file| &file.file.connect)
        .filter(|rule| rule.get_ref().tls == TlsHandling::Terminate)
        .flat_map(|rule| rule.get_ref().host.iter().map(String::as_str))
        .collect();
    let about_connections = files.iter().flat_map(|file| &file.file.connect).filter_map(|rule| {
        let rule = rule.get_ref();
        let problem = hidden_requests(rule, &opened)?;
        let (id, subject) = (WarningId::HiddenRequests, rule.id.clone());
        Some(PolicyWarning { id, location: locations.get(&subject).cloned(), subject, problem })
    });
    let judges = rules.iter().any(|rule| rule.source.decision != Decision::Allow);
    let about_profiles = files.iter().flat_map(|file| without_gate(file, profiles)).filter(|_| judges);
    let about_secrets = files.iter().flat_map(|file| shown_secrets(file, profiles));
    let mut silenced: Vec<(&str, Silenced)> = Vec::new();
    for file in files {
        for item in &file.file.silence {
            let wrong = |problem| file.error(item.span(), format!("silence: {problem}"));
            silenced.push((file.name, Silenced::parse(item.get_ref()).map_err(wrong)?));
        }
    }
    let is_shown = |warning: &PolicyWarning| {
        let file = warning.location.as_ref().map(|location| location.file.as_str());
        !silenced.iter().any(|(of, item)| file == Some(*of) && item.covers(warning))
    };
    let all = about_rules.chain(about_connections).chain(about_profiles).chain(about_secrets);
    Ok(all.filter(is_shown).collect())
}

/// Secrets of a file that lie in what a profile shows, by their paths.
fn shown_secrets<'a>(
    file: &'a ParsedFile<'_>,
    profiles: &'a BTreeMap<ProfileName, Arc<Profile>>,
) -> impl Iterator<Item = PolicyWarning> + 'a {
    file.file.secrets.iter().filter_map(|(name, written)| {
        let secret = &written.get_ref().file;
        let (profile, directory, is_covered) = profiles.iter().find_map(|(profile, shown)| {
            let files = &shown.filesystem;
            let holds = |paths: &'a [PathBuf]| paths.iter().find(|path| secret.starts_with(path));
            let extra = || holds(&files.read_only).or_else(|| holds(&files.writable));
            let system = holds(&files.system).map(|directory| (profile, directory, true));
            system.or_else(|| Some((profile, extra()?, false)))
        })?;
        let becomes = match is_covered {
            true => {
                "sandboxes see an empty place there, but may see a file that is put in its place next to files that are no secrets"
            }
            false => "a gateway refuses that",
        };
        Some(PolicyWarning {
            id: WarningId::ShownSecret,
            subject: name.clone(),
            location: Some(RuleLocation { file: file.name.to_owned(), line: file.line_at(written.span().start) }),
            problem: format!(
                "lies in {}, which the profile {profile} shows: {becomes}; keep it where no profile shows anything, as in {SECRETS_PLACE}",
                crate::printable::path(directory)
            ),
        })
    })
}

/// 1-based.
/// A rule about requests of the port of HTTPS, where no rule opens TLS to one of its hosts.
fn hidden_requests(rule: &ConnectSource, opened: &HashSet<&str>) -> Option<String> {
    let is_about_requests = !rule.method.is_empty() || !rule.path.is_empty();
    let is_opened = rule.host.iter().any(|host| opened.contains(host.as_str()));
    (is_about_requests && rule.port.contains(&Scheme::Https.port()) && !is_opened).then(|| {
        "is about requests that come in TLS, which is refused then: `tls = \"terminate\"` in a rule that allows them opens it".to_owned()
    })
}

/// Profiles of a file under which only the commands of requests are judged.
fn without_gate<'a>(
    file: &'a ParsedFile<'_>,
    profiles: &'a BTreeMap<ProfileName, Arc<Profile>>,
) -> impl Iterator<Item = PolicyWarning> + 'a {
    let named = file.file.profile.iter();
    named.filter_map(|(name, written)| {
        let profile = profiles.get(&ProfileName::from_recorded(name))?;
        let line = file.line_at(written.span().start);
        (!profile.gate.enabled).then(|| PolicyWarning {
            id: WarningId::NoGate,
            subject: name.clone(),
            location: Some(RuleLocation { file: file.name.to_owned(), line }),
            problem: "judges the commands of requests, and nothing that these start: `gate = { enabled = true }` does".to_owned(),
        })
    })
}
