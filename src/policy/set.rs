//! A policy as loaded: its generation and digest, its profiles and the default one, its rules, and its secrets by name.
//!
//! `load` makes one from the texts of files. A set is valid as a whole or does not exist. Policy never has the value of a secret: it
//! evaluates, explains and hashes the name, and the gateway reads the file when a command is started.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    command::{changes_lookup, known_directories::KnownDirectories, rule::Rule},
    connect::ConnectRule,
    diagnostics::{PolicyWarning, RuleLocation},
    environment::EnvEntry,
    profile::{Profile, ProfileName, Requirement},
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

/// A SHA-256 digest: of a request in its normal form, or of the files of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub(super) [u8; 32]);

impl Digest {
    /// The 32 bytes.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// A digest that was read back from a file.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Variables that every command has anyway.
const RESERVED_NAMES: [&str; 4] = ["PATH", "HOME", "USER", "LOGNAME"];

/// A secret as a policy file writes it: `[secrets.NAME]`. The name is that of the variable which holds it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretSource {
    /// The file that holds the value: absolute, not readable by everybody. One newline at its end is no part of it.
    pub file: PathBuf,
}

/// A secret that a command is given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretGrant {
    /// The variable.
    pub name: String,
    /// The file that holds the value.
    pub file: PathBuf,
}

/// Checks a secret and its name. The error says what is wrong.
pub(super) fn check_secret(name: &str, source: &SecretSource) -> Result<(), String> {
    let mut letters = name.bytes();
    let is_name = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        && name.len() <= MAX_NAME_BYTES;
    if !is_name {
        return Err(format!("{name:?} must be 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9 and \"_\""));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(format!("{name:?} is given to every command with a value of its own"));
    }
    if changes_lookup(name) {
        return Err(format!("{name:?} changes what names in command lines mean"));
    }
    let is_plain = source.file.to_str().is_some_and(|text| super::AbsPath::parse(text).is_ok());
    if !is_plain {
        return Err(format!(
            "file: {} must be absolute, without \"..\"",
            crate::printable::path(&source.file)
        ));
    }
    EnvEntry::new(name.to_owned(), String::new()).map(drop).map_err(|error| error.to_string())
}
