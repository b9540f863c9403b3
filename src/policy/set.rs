//! A policy as loaded: its generation, its profiles, and which one is the default.
//!
//! Takes the text of a file, never the file. A text with an unknown key, or with a value that cannot mean
//! anything, is refused as a whole.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use serde::Deserialize;
use toml::Spanned;

use super::{
    PolicyFileError,
    environment::Entry,
    profile::{Demand, Profile},
};

/// The names of setrlimit(2) that a profile may set, without their prefix.
const RLIMIT_NAMES: [&str; 11] =
    ["as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nofile", "nproc", "sigpending", "stack"];

/// A profile's name: letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileName(Arc<str>);

impl ProfileName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole policy.
#[derive(Debug, Clone)]
pub struct PolicySet {
    generation: u64,
    default: ProfileName,
    profiles: BTreeMap<ProfileName, Arc<Profile>>,
}

impl PolicySet {
    /// The policy that is compiled in: `policies/default.toml`.
    pub fn compiled_in() -> Self {
        Self::parse("policies/default.toml", include_str!("../../policies/default.toml"))
            .expect("the policy that is compiled in is valid: a unit test loads it")
    }

    /// Reads a policy from the text of one file.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyFileError> {
        let parsed: PolicyFile = toml::from_str(text).map_err(|error| {
            PolicyFileError::at(file, text, error.span().unwrap_or(0..0), error.message())
        })?;
        let mut profiles = BTreeMap::new();
        for (name, profile) in parsed.profile {
            let table = profile.span();
            check_profile(&name, profile.get_ref()).map_err(|Wrong { key, problem }| {
                PolicyFileError::at(file, text, find_key(text, table, key), format!("{key}: {problem}"))
            })?;
            profiles.insert(ProfileName(name.into()), Arc::new(profile.into_inner()));
        }
        let wanted = parsed.default_profile;
        let default = ProfileName(wanted.get_ref().as_str().into());
        if !profiles.contains_key(&default) {
            let problem = format!("default_profile: there is no [profile.{default}]");
            return Err(PolicyFileError::at(file, text, wanted.span(), problem));
        }
        Ok(Self { generation: 1, default, profiles })
    }

    /// The same policy with resource limits preferred instead of required: for a gateway of one caller, who may
    /// have no delegated cgroup.
    #[must_use]
    pub fn preferring_limits(mut self) -> Self {
        for profile in self.profiles.values_mut() {
            Arc::make_mut(profile).limits.demand = Demand::Prefer;
        }
        self
    }

    /// Counts up with every load; a permit names the one that it was made under.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The profile of that name, or the default one.
    pub fn profile(&self, name: Option<&str>) -> Option<(&ProfileName, &Arc<Profile>)> {
        match name {
            None => self.profiles.get_key_value(&self.default),
            Some(name) => self.profiles.get_key_value(&ProfileName(name.into())),
        }
    }

    /// All profiles, by name.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &Arc<Profile>)> {
        self.profiles.iter()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    default_profile: Spanned<String>,
    profile: BTreeMap<String, Spanned<Profile>>,
}

/// A key of a profile whose value cannot mean anything.
struct Wrong {
    key: &'static str,
    problem: String,
}

fn wrong(key: &'static str, problem: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong { key, problem: problem.into() })
}

fn check_profile(name: &str, profile: &Profile) -> Result<(), Wrong> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(named) {
        return wrong(
            "profile",
            format!("the name {name:?} must be 1 to 64 of a-z, A-Z, 0-9, \"-\" and \"_\""),
        );
    }
    check_paths(profile)?;
    check_network(profile)?;
    check_identity(profile)?;
    check_limits(profile)?;
    check_environment(profile)?;
    check_times(profile)?;
    if profile.output.default_bytes > profile.output.ceiling_bytes {
        return wrong("default_bytes", "must not be above ceiling_bytes");
    }
    Ok(())
}

fn check_paths(profile: &Profile) -> Result<(), Wrong> {
    let files = &profile.filesystem;
    let lists = [
        ("system", &files.system),
        ("read_only", &files.read_only),
        ("writable", &files.writable),
        ("path", &profile.path),
    ];
    for (key, list) in lists {
        if let Some(path) = list.iter().find(|path| !is_plain_absolute(path)) {
            return wrong(key, format!("{} must be absolute, without \"..\"", path.display()));
        }
    }
    for (key, path) in [("shell", &profile.shell), ("home", &profile.identity.home)] {
        if !is_plain_absolute(path) {
            return wrong(key, format!("{} must be absolute, without \"..\"", path.display()));
        }
    }
    if let Some(path) = profile.path.iter().find(|path| path.to_string_lossy().contains(':')) {
        return wrong("path", format!("{} must not hold \":\"", path.display()));
    }
    if profile.path.is_empty() {
        return wrong("path", "must name at least one folder");
    }
    if files.tmp_bytes == 0 {
        return wrong("tmp_bytes", "must not be 0");
    }
    if files.tmp_inodes == 0 {
        return wrong("tmp_inodes", "must not be 0");
    }
    Ok(())
}

fn is_plain_absolute(path: &Path) -> bool {
    path.to_str().is_some_and(|text| super::AbsPath::parse(text).is_ok())
}

fn check_network(profile: &Profile) -> Result<(), Wrong> {
    if profile.network.choices.contains(&profile.network.default) {
        Ok(())
    } else {
        wrong("network", "default must be one of choices")
    }
}

fn check_identity(profile: &Profile) -> Result<(), Wrong> {
    let identity = &profile.identity;
    if identity.uid == 0 || identity.gid == 0 {
        return wrong("identity", "uid and gid must not be 0: no command is ever root");
    }
    let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if identity.user.is_empty() || identity.user.len() > 31 || !identity.user.chars().all(named) {
        return wrong("user", "must be 1 to 31 of a-z, 0-9, \"-\" and \"_\"");
    }
    Ok(())
}

fn check_limits(profile: &Profile) -> Result<(), Wrong> {
    for limits in [&profile.limits.terminal, &profile.limits.session] {
        for (key, value) in
            [("memory_bytes", limits.memory_bytes), ("pids", limits.pids), ("cpu_millis", limits.cpu_millis)]
        {
            if value == Some(0) {
                return wrong(key, "must not be 0");
            }
        }
    }
    match profile.limits.rlimits.keys().find(|name| !RLIMIT_NAMES.contains(&name.as_str())) {
        Some(name) => wrong("rlimits", format!("{name:?} is not one of {}", RLIMIT_NAMES.join(", "))),
        None => Ok(()),
    }
}

fn check_environment(profile: &Profile) -> Result<(), Wrong> {
    let rule = &profile.environment;
    for (name, value) in &rule.set {
        if let Err(error) = Entry::new(name.clone(), value.clone()) {
            return wrong("set", format!("{name:?}: {error}"));
        }
    }
    for (key, patterns) in [("allow", &rule.allow), ("deny", &rule.deny)] {
        let bad = |pattern: &&String| {
            pattern.is_empty()
                || pattern.trim_end_matches('*').contains(['*', '=', '\0'])
                || pattern.ends_with("**")
        };
        if let Some(pattern) = patterns.iter().find(bad) {
            return wrong(key, format!("{pattern:?} must be a name, or a beginning and one \"*\""));
        }
    }
    Ok(())
}

fn check_times(profile: &Profile) -> Result<(), Wrong> {
    let times = &profile.times;
    for (key, value) in [("limit", times.limit), ("ceiling", times.ceiling), ("idle", times.idle)] {
        if value.is_some_and(|value| value.is_zero()) {
            return wrong(key, "must not be 0: leave it out for none");
        }
    }
    if let (Some(limit), Some(ceiling)) = (times.limit, times.ceiling)
        && limit > ceiling
    {
        return wrong("limit", "must not be above ceiling");
    }
    Ok(())
}

/// Where a key stands, in the part of the text that begins with its table. The parser keeps the places of syntax,
/// not those of meaning, so that this looks for the key's word; it falls back to the table's head.
fn find_key(text: &str, table: std::ops::Range<usize>, key: &str) -> std::ops::Range<usize> {
    let start = table.start.min(text.len());
    let rest = text.get(start..).unwrap_or_default();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut from = 0;
    while let Some(at) = rest[from..].find(key).map(|at| from + at) {
        let end = at + key.len();
        let alone = !rest[..at].ends_with(word) && !rest[end..].starts_with(word);
        let commented = rest[..at].rsplit('\n').next().is_some_and(|line| line.contains('#'));
        if alone && !commented {
            return start + at..start + end;
        }
        from = end;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "default_profile = \"a\"\n[profile.a]\n";

    fn error(rest: &str) -> PolicyFileError {
        PolicySet::parse("p.toml", &format!("{HEAD}{rest}")).expect_err(rest)
    }

    #[test]
    fn the_compiled_in_policy_loads_and_denies_the_loaders_hooks() {
        let policy = PolicySet::compiled_in();
        let (_, profile) = policy.profile(None).unwrap();
        for name in ["LD_PRELOAD", "BASH_ENV", "BASH_FUNC_ls%%", "NODE_OPTIONS", "GIT_SSH_COMMAND", "IFS"] {
            assert!(super::super::environment::judge_name(&profile.environment, name).is_err(), "{name}");
        }
        assert_eq!(profile.limits.demand, Demand::Require);
        let preferring = PolicySet::compiled_in().preferring_limits();
        assert_eq!(preferring.profile(None).unwrap().1.limits.demand, Demand::Prefer);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place() {
        let error = error("netwrok = { default = \"none\" }\n");
        assert_eq!((error.file.as_str(), error.line, error.column), ("p.toml", 3, 1));
        assert!(error.to_string().ends_with("^^^^^^^"), "{error}");
        assert!(PolicySet::parse("p.toml", "[[rule]]\nid = \"x\"\n").is_err());
    }

    #[test]
    fn a_default_profile_that_does_not_exist_is_refused() {
        let error = PolicySet::parse("p.toml", "default_profile = \"b\"\n[profile.a]\n").unwrap_err();
        assert_eq!((error.line, error.column), (1, 19));
    }

    #[test]
    fn values_that_cannot_mean_anything_are_refused_where_they_stand() {
        for (text, line) in [
            ("shell = \"sh\"\n", 3),
            ("\npath = [\"bin\"]\n", 4),
            ("path = []\n", 3),
            ("network = { default = \"host\", choices = [\"none\"] }\n", 3),
            ("identity = { uid = 0 }\n", 3),
            ("[profile.a.limits.terminal]\npids = 0\n", 4),
            ("[profile.a.limits.rlimits]\nno_such = 1\n", 3),
            ("environment.deny = [\"A*B\"]\n", 3),
            ("environment.set = { \"A=\" = \"x\" }\n", 3),
            ("times = { limit = \"2s\", ceiling = \"1s\" }\n", 3),
            ("output = { default_bytes = 2, ceiling_bytes = 1 }\n", 3),
            ("times = { grace = \"5\" }\n", 3),
        ] {
            assert_eq!(error(text).line, line, "{text}: {}", error(text));
        }
    }
}
