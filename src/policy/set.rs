//! A policy as loaded: its generation, its profiles and the default one, its rules.
//!
//! `load` makes one from the texts of files. A set is valid as a whole or does not exist.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{
    command::{known_directories::KnownDirectories, rule::Rule},
    connect::ConnectRule,
    digest::Digest,
    profile::{Profile, ProfileName, Requirement},
    secret::{SecretGrant, SecretSource},
    warning::{PolicyWarning, RuleLocation},
};

/// A whole policy.
#[derive(Debug, Clone)]
pub struct PolicySet {
    pub(super) generation: u64,
    pub(super) default: ProfileName,
    pub(super) profiles: BTreeMap<ProfileName, Arc<Profile>>,
    pub(super) confinements: Arc<BTreeMap<ProfileName, u64>>,
    pub(super) rules: Arc<[Rule]>,
    pub(super) connect_rules: Arc<[ConnectRule]>,
    pub(super) rule_locations: Arc<BTreeMap<String, RuleLocation>>,
    pub(super) warnings: Arc<[PolicyWarning]>,
    /// Whether no file has a profile, so that the built-in ones are meant.
    pub(super) has_built_in_profiles: bool,
    pub(super) files: Arc<[String]>,
    pub(super) texts: Arc<[PolicyText]>,
    pub(super) secrets: Arc<BTreeMap<String, SecretSource>>,
    pub(super) digest: Digest,
    pub(super) known_directories: Arc<KnownDirectories>,
}

/// A file of a policy, as it was given to the loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyText {
    /// Its name.
    pub name: String,
    /// What it says.
    pub text: String,
}

impl PolicySet {
    /// The same policy with resource limits preferred instead of required: for a gateway of one caller, who may
    /// have no delegated cgroup.
    #[must_use]
    pub fn preferring_limits(mut self) -> Self {
        for profile in self.profiles.values_mut() {
            Arc::make_mut(profile).limits.requirement = Requirement::Prefer;
        }
        self
    }

    /// The same policy with another generation.
    #[must_use]
    pub fn with_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// The same policy with what is known of the directories of its rules.
    #[must_use]
    pub fn knowing(self, known_directories: Arc<KnownDirectories>) -> Self {
        Self { known_directories, ..self }
    }

    /// What the directories of its rules are.
    pub fn known_directories(&self) -> &Arc<KnownDirectories> {
        &self.known_directories
    }

    /// Whether a rule depends on the working directory.
    pub fn reads_directories(&self) -> bool {
        self.rules().iter().any(Rule::reads_directory)
    }

    /// Counts up with every load. A permit names the generation that it was made under.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The digest of the names and texts of all files.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its files, as they were named to the loader, in the order of their names.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The files from which the same policy is loaded elsewhere.
    pub fn texts(&self) -> &[PolicyText] {
        &self.texts
    }

    /// The profile of that name, or the default one.
    pub fn profile(&self, name: Option<&str>) -> Option<(&ProfileName, &Arc<Profile>)> {
        match name {
            None => self.profiles.get_key_value(&self.default),
            Some(name) => self.profiles.get_key_value(&ProfileName(name.into())),
        }
    }

    /// Tells apart profiles of one name in two policies: a sandbox of one is not used for the other.
    pub(super) fn confinement(&self, name: &ProfileName) -> u64 {
        self.confinements.get(name).copied().unwrap_or_default()
    }

    /// All profiles, by name.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &Arc<Profile>)> {
        self.profiles.iter()
    }

    /// Whether a profile has caches that outlive their sessions.
    pub fn keeps_caches(&self) -> bool {
        self.profiles.values().any(|profile| !profile.kept_caches.names.is_empty())
    }

    /// The files that hold the secrets' values.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        self.secrets.values().map(|source| source.file.as_path())
    }

    /// The files by whose certificates servers are verified.
    pub fn ca_files(&self) -> impl Iterator<Item = &Path> {
        self.connect_rules().iter().filter_map(|rule| rule.ca.as_ref()).map(super::AbsPath::as_path)
    }

    /// Whether a variable of this name is a secret. No caller may set it.
    pub fn is_secret(&self, name: &str) -> bool {
        self.secrets.contains_key(name)
    }

    /// A secret, by its name.
    pub fn secret_grant(&self, name: &str) -> Option<SecretGrant> {
        Some(SecretGrant { name: name.to_owned(), file: self.secrets.get(name)?.file.clone() })
    }

    /// All rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// All rules about connections.
    pub fn connect_rules(&self) -> &[ConnectRule] {
        &self.connect_rules
    }

    /// What is valid and perhaps not what its author means, without what the files silence.
    pub fn warnings(&self) -> &[PolicyWarning] {
        &self.warnings
    }

    /// Whether its files have no profile, so that the built-in ones are meant.
    pub fn has_built_in_profiles(&self) -> bool {
        self.has_built_in_profiles
    }

    /// Where a rule stands.
    pub fn rule_location(&self, rule: &str) -> Option<&RuleLocation> {
        self.rule_locations.get(rule)
    }
}
