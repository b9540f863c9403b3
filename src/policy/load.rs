//! Loads a policy from the texts of its files: parses them, merges them, checks the values, compiles the rules.
//!
//! One mistake refuses the whole policy and is reported with its line. This file reads no files.
//!
//! Policies that write rules and no profile get the built-in profiles. A file that a cut-short write has left still parses, and a rule
//! without its last lines may allow more than the whole one: such a file is found by comparison with the one before. A file that loses
//! whole tables at its end is taken as an edit. Warnings about the policy are collected here, without those that its files silence.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use sha2::Digest as _;
use toml::{Spanned, Table, Value};

use crate::{
    check::{InvalidValue, check_profile},
    command::{
        self,
        examples::{self, ExampleBudget},
        pattern::{PatternError, Regexes},
        rule::{ClaimedField, Decision, Rule, RuleError, RuleMode, RuleSource},
    },
    connect::{ConnectRule, ConnectRuleError, ConnectSource, TlsHandling},
    diagnostics::{PolicyFileError, PolicyWarning, RuleLocation, Silenced, WarningId},
    environment::EnvEntry,
    network::http_request::Scheme,
    profile::{Filesystem, Profile, ProfileName},
    rule_warnings::{self, Gates, WrittenRule},
    set::{self, Digest, PolicySet, PolicyText, SecretSource},
};

/// The most rules that a policy may have.
pub(crate) const MAX_RULES: usize = 10_000;

/// What is said of files that would deny everything.
const NO_RULE: &str = "there is no rule, so nothing would run: a write may have been cut short; a policy that means to deny everything \
                       has a rule that says so: [[rule]] id = \"nothing\" decision = \"deny\" argv = [\"**\"]";

/// The longest chain of profiles of which each extends the next.
const MAX_EXTENDS_DEPTH: usize = 16;

type SecretMap = BTreeMap<String, SecretSource>;

/// One policy file, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    default_profile: Option<Spanned<String>>,
    /// The mode of the rules of this file that do not give one.
    #[serde(default)]
    mode: RuleMode,
    /// Warnings that are not shown.
    #[serde(default)]
    silence: Vec<Spanned<String>>,
    #[serde(default)]
    secrets: BTreeMap<String, Spanned<SecretSource>>,
    #[serde(default)]
    profile: BTreeMap<String, Spanned<Profile>>,
    #[serde(default)]
    rule: Vec<Spanned<RuleSource>>,
    #[serde(default)]
    connect: Vec<Spanned<ConnectSource>>,
}

struct ParsedFile<'a> {
    name: &'a str,
    text: &'a str,
    file: PolicyFile,
    raw: Table,
    /// Where each line ends.
    line_ends: Vec<usize>,
}

impl ParsedFile<'_> {
    fn default_profile(&self) -> Option<&Spanned<String>> {
        self.file.default_profile.as_ref()
    }

    fn to_text(&self) -> PolicyText {
        PolicyText { name: self.name.to_owned(), text: self.text.to_owned() }
    }

    /// The 1-based line of a place in the text.
    fn line_at(&self, place: usize) -> usize {
        self.line_ends.partition_point(|end| *end < place) + 1
    }

    fn error(&self, range: Range<usize>, problem: impl Into<String>) -> PolicyFileError {
        PolicyFileError::at(self.name, self.text, range, problem)
    }
}

impl PolicySet {
    /// The policy that is compiled in: `policies/default.toml`.
    pub fn compiled_in() -> Self {
        Self::parse(BUILT_IN_NAME, BUILT_IN_TEXT)
            .expect("the policy that is compiled in is valid: a unit test loads it")
    }

    /// Reads a policy from the text of one file, which may have profiles alone.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyFileError> {
        load(&[(file, text)])
    }

    /// Reads a policy from the names and texts of its files, as one whole. Their order means nothing.
    ///
    /// # Errors
    /// Files without a rule among them are refused like any other mistake: nobody writes them to deny everything, and a write
    /// that was cut short leaves them.
    pub fn load(files: &[(&str, &str)]) -> Result<Self, PolicyFileError> {
        let set = load(files)?;
        match (set.rules.is_empty() && set.connect_rules.is_empty(), set.texts.first()) {
            (true, Some(first)) => Err(PolicyFileError::at(&first.name, &first.text, 0..0, NO_RULE)),
            _ => Ok(set),
        }
    }

    /// Where a file of `after` ends in the middle of what it says in this policy, as a write that was cut short leaves it.
    pub fn cut_short(&self, after: &Self) -> Option<PolicyFileError> {
        find_cut_short(&self.texts, &after.texts)
    }
}

fn load(files: &[(&str, &str)]) -> Result<PolicySet, PolicyFileError> {
    let mut files: Vec<ParsedFile<'_>> =
        files.iter().map(|(name, text)| parse(name, text)).collect::<Result<_, _>>()?;
    files.sort_by(|a, b| a.name.cmp(b.name));
    let secrets = load_secrets(&files)?;
    let built_in = built_in_profiles(&files)?;
    let with_profiles: Vec<&ParsedFile<'_>> = files.iter().chain(&built_in).collect();
    let profiles = load_profiles(&with_profiles, &secrets)?;
    let default = choose_default(&files, built_in.as_ref(), &profiles)?;
    let regexes = Regexes::default();
    let (rules, mut origins) = load_rules(&files, &profiles, &secrets, &regexes)?;
    let connect_rules = load_connect_rules(&files, &profiles, &secrets, &mut origins)?;
    Ok(PolicySet {
        generation: 1,
        known_directories: Arc::default(),
        default,
        confinements: Arc::new(
            profiles.iter().map(|(name, profile)| (name.clone(), hash(profile))).collect(),
        ),
        warnings: find_warnings(&files, &profiles, &origins, &regexes)?.into(),
        has_built_in_profiles: built_in.is_some(),
        profiles,
        rules: rules.into(),
        connect_rules: connect_rules.into(),
        rule_locations: Arc::new(origins),
        files: files.iter().map(|file| file.name.to_owned()).collect(),
        texts: files.iter().map(ParsedFile::to_text).collect(),
        secrets: Arc::new(secrets),
        digest: digest(&files),
    })
}

fn parse<'a>(name: &'a str, text: &'a str) -> Result<ParsedFile<'a>, PolicyFileError> {
    let at = |error: toml::de::Error| {
        PolicyFileError::at(name, text, error.span().unwrap_or(0..0), error.message())
    };
    let file = toml::from_str(text).map_err(at)?;
    let raw: Table = toml::from_str(text).map_err(at)?;
    if raw.is_empty() {
        let problem =
            "the file says nothing: it is empty or has nothing but comments; a write may have been cut short";
        return Err(PolicyFileError::at(name, text, 0..0, problem));
    }
    let line_ends = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    Ok(ParsedFile { name, text, file, raw, line_ends })
}

fn load_secrets(files: &[ParsedFile<'_>]) -> Result<SecretMap, PolicyFileError> {
    let mut secrets = SecretMap::new();
    for file in files {
        for (name, spanned) in &file.file.secrets {
            let wrong = |problem: String| file.error(spanned.span(), format!("secrets: {problem}"));
            set::check_secret(name, spanned.get_ref()).map_err(wrong)?;
            if secrets.insert(name.clone(), spanned.get_ref().clone()).is_some() {
                return Err(wrong(format!("{name:?} is in another file, too")));
            }
        }
    }
    Ok(secrets)
}

fn load_profiles(
    files: &[&ParsedFile<'_>],
    secrets: &SecretMap,
) -> Result<BTreeMap<ProfileName, Arc<Profile>>, PolicyFileError> {
    let mut owners: BTreeMap<&str, (&ParsedFile<'_>, &Spanned<Profile>)> = BTreeMap::new();
    for file in files {
        for (name, profile) in &file.file.profile {
            if let Some((other, _)) = owners.insert(name, (file, profile)) {
                let problem = format!("profile: {name:?} is in {}, too", other.name);
                return Err(file.error(profile.span(), problem));
            }
        }
    }
    let mut profiles = BTreeMap::new();
    for (name, (file, spanned)) in &owners {
        let table = spanned.span();
        let problem_at = |InvalidValue { key, problem }: InvalidValue| {
            file.error(find_key(file.text, table.clone(), key), format!("{key}: {problem}"))
        };
        let profile = resolve_extends(name, &owners).map_err(problem_at)?;
        check_profile(name, &profile).map_err(problem_at)?;
        check_secrets(&profile.secrets, &profile.environment.set, secrets)
            .map_err(|problem| problem_at(InvalidValue { key: "secrets", problem }))?;
        profiles.insert(ProfileName((*name).into()), Arc::new(profile));
    }
    Ok(profiles)
}

/// Merges a profile with those that it extends: tables key by key, lists of protections add up, every other value replaces
/// the one of the profile below.
fn resolve_extends(
    name: &str,
    owners: &BTreeMap<&str, (&ParsedFile<'_>, &Spanned<Profile>)>,
) -> Result<Profile, InvalidValue> {
    let wrong = |problem: String| InvalidValue { key: "extends", problem };
    let mut chain = vec![name];
    while let Some((_, profile)) = chain.last().and_then(|last| owners.get(last))
        && let Some(base) = &profile.get_ref().extends
    {
        if !owners.contains_key(base.as_str()) {
            return Err(wrong(format!("there is no [profile.{base}]")));
        }
        if chain.contains(&base.as_str()) {
            return Err(wrong(format!("goes in a circle: {} -> {base}", chain.join(" -> "))));
        }
        if chain.len() >= MAX_EXTENDS_DEPTH {
            return Err(wrong(format!("a chain of more than {MAX_EXTENDS_DEPTH} profiles")));
        }
        chain.push(base);
    }
    let mut merged = Table::new();
    let mut tables = Vec::new();
    for link in chain.iter().rev() {
        let table = owners
            .get(link)
            .and_then(|(file, _)| file.raw.get("profile")?.get(link)?.as_table())
            .ok_or_else(|| wrong(format!("[profile.{link}] is no table")))?;
        // A description is not inherited.
        merged.remove("description");
        merge_tables(&mut merged, table);
        tables.push(table);
    }
    let mut profile: Profile =
        Profile::deserialize(Value::Table(merged)).map_err(|error| wrong(error.message().to_owned()))?;
    merge_lists(&mut profile, &tables)?;
    Ok(profile)
}

fn merge_tables(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge_tables(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

fn choose_default(
    files: &[ParsedFile<'_>],
    built_in: Option<&ParsedFile<'_>>,
    profiles: &BTreeMap<ProfileName, Arc<Profile>>,
) -> Result<ProfileName, PolicyFileError> {
    let given_in = |file| Some((file, ParsedFile::default_profile(file)?));
    let mut given = files.iter().filter_map(given_in);
    let Some((file, wanted)) = given.next().or_else(|| built_in.and_then(given_in)) else {
        let problem = "default_profile: no file says which profile is the default";
        return Err(match files.first() {
            Some(file) => file.error(0..0, problem),
            None => PolicyFileError::at("policies", "", 0..0, "there is no policy file"),
        });
    };
    if let Some((second, again)) = given.next() {
        let problem = format!("default_profile: {} has said it already", file.name);
        return Err(second.error(again.span(), problem));
    }
    let default = ProfileName(wanted.get_ref().as_str().into());
    if !profiles.contains_key(&default) {
        let problem = format!("default_profile: there is no [profile.{default}]");
        return Err(file.error(wanted.span(), problem));
    }
    Ok(default)
}

fn load_rules(
    files: &[ParsedFile<'_>],
    profiles: &BTreeMap<ProfileName, Arc<Profile>>,
    secrets: &SecretMap,
    regexes: &Regexes,
) -> Result<(Vec<Rule>, BTreeMap<String, RuleLocation>), PolicyFileError> {
    let examples_left = ExampleBudget::default();
    let mut rules = Vec::new();
    let mut locations: BTreeMap<String, RuleLocation> = BTreeMap::new();
    for file in files {
        for (source, place) in placed(file, &file.file.rule) {
            place.take_id(&source.id, rules.len(), &mut locations, "rules")?;
            let rule_error = |error: RuleError| match &error {
                RuleError::Examples { .. } => {
                    place.wrong("matches", format!("rule {:?}: {error}", source.id))
                }
                RuleError::Pattern {
                    field,
                    cause: PatternError::RegexTooLarge { pattern } | PatternError::RegexesTooLarge { pattern },
                } => {
                    let problem = format!("rule {:?}: {error}", source.id);
                    place.wrong_text(Some(pattern), last_key(field), problem)
                }
                RuleError::Id(_) => place.wrong("id", error.to_string()),
                RuleError::Pattern { field, .. } => place.wrong(last_key(field), error.to_string()),
                RuleError::Claimed(ClaimedField::Labels) => place.wrong("labels", error.to_string()),
                RuleError::Claimed(ClaimedField::Env) => place.wrong("env", error.to_string()),
                RuleError::EffectsOfDeny => place.wrong("effects", error.to_string()),
                RuleError::StartsOfDeny => place.wrong("starts", error.to_string()),
                RuleError::ExampleMissed(line) => place.wrong_text(Some(line), "matches", error.to_string()),
                RuleError::ExampleCaught(line) => place.wrong_text(Some(line), "rejects", error.to_string()),
            };
            let rule = Rule::compile(source, file.file.mode, regexes).map_err(rule_error)?;
            examples::check(source, &rule, &examples_left).map_err(rule_error)?;
            check_effects(source, profiles).map_err(|(key, problem)| place.wrong(key, problem))?;
            check_secrets(&source.effects.secrets, &source.effects.environment, secrets)
                .map_err(|problem| place.wrong("secrets", format!("effects.secrets: {problem}")))?;
            rules.push(rule);
        }
    }
    Ok((rules, locations))
}

/// Checks that every named secret exists and that no variable has the name of one.
fn check_secrets(
    given: &[String],
    set: &BTreeMap<String, String>,
    secrets: &SecretMap,
) -> Result<(), String> {
    if let Some(name) = given.iter().find(|name| !secrets.contains_key(*name)) {
        return Err(format!("there is no [secrets.{name}]"));
    }
    match set.keys().find(|name| secrets.contains_key(*name)) {
        Some(name) => Err(format!("{name:?} is the name of a secret, and cannot be set")),
        None => Ok(()),
    }
}

/// A number that differs when anything in the profile differs.
fn hash(profile: &Profile) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{profile:?}").hash(&mut hasher);
    hasher.finish()
}

fn last_key(field: &'static str) -> &'static str {
    field.rsplit('.').next().unwrap_or(field)
}

fn digest(files: &[ParsedFile<'_>]) -> Digest {
    let mut hash = sha2::Sha256::new();
    for part in files.iter().flat_map(|file| [file.name, file.text]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    Digest(hash.finalize().into())
}

/// Finds a text as a TOML string, in a part of a file.
fn find_text(text: &str, part: Range<usize>, wanted: &str) -> Option<Range<usize>> {
    let within = text.get(part.clone())?;
    let basic = format!("{wanted:?}");
    let literal = format!("'{wanted}'");
    [basic, literal].iter().find_map(|quoted| {
        within.rfind(quoted.as_str()).map(|at| part.start + at..part.start + at + quoted.len())
    })
}

/// Finds a key in the part of the text that begins with its table; the head of the table where it is not found. The
/// parser keeps no places of keys, so this searches for the word.
fn find_key(text: &str, table: Range<usize>, key: &str) -> Range<usize> {
    let start = table.start.min(text.len());
    let rest = text.get(start..).unwrap_or_default();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut from = 0;
    while let Some(at) = rest[from..].find(key).map(|at| from + at) {
        let end = at + key.len();
        let alone = !rest[..at].ends_with(word) && !rest[end..].starts_with(word);
        let line = rest[..at].rsplit('\n').next().unwrap_or_default();
        // Neither in a comment nor in a text.
        let written = !line.contains('#') && line.matches('"').count() % 2 == 0;
        if alone && written {
            return start + at..start + end;
        }
        from = end;
    }
    let head = rest.find('\n').map_or(text.len(), |at| start + at);
    start..table.end.min(head).max(start)
}

/// The name of the built-in policy in errors.
const BUILT_IN_NAME: &str = "policies/default.toml";

/// The built-in policy, as it stands in `policies/default.toml`.
pub const BUILT_IN_TEXT: &str = include_str!("policies/default.toml");

/// The profiles of the built-in policy, without its rules, where no file has a profile. None where one has, or where there is no file.
fn built_in_profiles(files: &[ParsedFile<'_>]) -> Result<Option<ParsedFile<'static>>, PolicyFileError> {
    if files.is_empty() || files.iter().any(|file| !file.file.profile.is_empty()) {
        return Ok(None);
    }
    let mut built_in = parse(BUILT_IN_NAME, BUILT_IN_TEXT)?;
    built_in.file.rule.clear();
    built_in.file.connect.clear();
    built_in.file.secrets.clear();
    Ok(Some(built_in))
}

/// Compiles the rules of all files.
fn load_connect_rules(
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

/// What is said of such a file.
const CUT: &str = "the file ends here, in the middle of what it says in the policy in force: a write may have been cut short; a reload that \
                   is asked for (`provost policy reload`, or SIGHUP) loads the file as it is";

/// The first file that ends within a table, or a line, of the same file as it was.
fn find_cut_short(before: &[PolicyText], after: &[PolicyText]) -> Option<PolicyFileError> {
    after.iter().find_map(|file| {
        let old = before.iter().find(|old| old.name == file.name)?;
        let end = file.text.len()..file.text.len();
        is_cut(&old.text, &file.text).then(|| PolicyFileError::at(&file.name, &file.text, end, CUT))
    })
}

fn is_cut(old: &str, new: &str) -> bool {
    let Some(lost) = old.strip_prefix(new).filter(|lost| !lost.is_empty()) else { return false };
    if !new.ends_with('\n') && !lost.trim_start_matches('\r').starts_with('\n') {
        return true;
    }
    // What follows is a part of the last table, unless it begins with the head of one.
    let mut lines = lost.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| !line.starts_with('['))
}

/// The error has the key that is wrong, and what is wrong with it.
fn check_effects(
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

/// Merges the lists of protections of a profile: the shipped list, then what each profile of the chain adds, and without what one
/// of them drops by name. `tables` are those of the profiles that it extends, the farthest first, then its own.
///
/// Works on the tables as they are written, because a list that a table leaves out must change nothing.
pub(super) fn merge_lists(profile: &mut Profile, tables: &[&Table]) -> Result<(), InvalidValue> {
    let shipped = Filesystem::default();
    let (mut protected, mut reserved) = (shipped.protected, shipped.reserved);
    let (mut deny, mut drop): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for table in tables {
        for dropped in texts(table, "filesystem", "drop") {
            let is_other = |path: &PathBuf| path != Path::new(dropped);
            let before = protected.len() + reserved.len();
            protected.retain(is_other);
            reserved.retain(is_other);
            if protected.len() + reserved.len() == before {
                let problem = format!("{dropped:?} is not among the protected and reserved paths");
                return Err(InvalidValue { key: "drop", problem });
            }
        }
        add_missing(&mut protected, texts(table, "filesystem", "protected").map(PathBuf::from));
        add_missing(&mut reserved, texts(table, "filesystem", "reserved").map(PathBuf::from));
        // What a profile denies again is no longer dropped.
        let denied: Vec<String> = texts(table, "environment", "deny").map(str::to_owned).collect();
        drop.retain(|dropped| !denied.contains(dropped));
        add_missing(&mut drop, texts(table, "environment", "drop").map(str::to_owned));
        add_missing(&mut deny, denied);
    }
    (profile.filesystem.protected, profile.filesystem.reserved) = (protected, reserved);
    (profile.environment.deny, profile.environment.drop) = (deny, drop);
    Ok(())
}

fn texts<'a>(table: &'a Table, part: &str, key: &str) -> impl Iterator<Item = &'a str> {
    let list = table.get(part).and_then(|part| part.get(key)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Adds the items that the list does not have.
fn add_missing<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

/// The table of one rule.
struct RulePlace<'a> {
    file: &'a ParsedFile<'a>,
    table: Range<usize>,
}

/// The rules of one kind in a file, each with its place. A table reaches to the next one of its kind.
fn placed<'a, T>(
    file: &'a ParsedFile<'a>,
    rules: &'a [Spanned<T>],
) -> impl Iterator<Item = (&'a T, RulePlace<'a>)> {
    rules.iter().enumerate().map(move |(at, rule)| {
        let start = rule.span().start;
        let end = rules.get(at + 1).map_or(file.text.len(), |next| next.span().start);
        (rule.get_ref(), RulePlace { file, table: start..end.max(start) })
    })
}

impl RulePlace<'_> {
    /// An error at a key of the rule.
    fn wrong(&self, key: &str, problem: impl Into<String>) -> PolicyFileError {
        self.file.error(find_key(self.file.text, self.table.clone(), key), problem)
    }

    /// An error at a text in the rule, or at a key where the text is not found.
    fn wrong_text(&self, text: Option<&str>, key: &str, problem: String) -> PolicyFileError {
        match text.and_then(|text| find_text(self.file.text, self.table.clone(), text)) {
            Some(range) => self.file.error(range, problem),
            None => self.wrong(key, problem),
        }
    }

    /// Takes the id for this rule, of which there are `count` of its kind before it.
    ///
    /// # Errors
    /// Another rule of any kind has the id, or there are as many rules as there may be.
    fn take_id(
        &self,
        id: &str,
        count: usize,
        locations: &mut BTreeMap<String, RuleLocation>,
        kind: &str,
    ) -> Result<(), PolicyFileError> {
        if let Some(origin) = locations.get(id) {
            return Err(self.wrong("id", format!("id: {id:?} is taken by {}:{}", origin.file, origin.line)));
        }
        if count >= MAX_RULES {
            return Err(self.wrong("id", format!("more than {MAX_RULES} {kind}")));
        }
        let line = self.file.line_at(self.table.start);
        locations.insert(id.to_owned(), RuleLocation { file: self.file.name.to_owned(), line });
        Ok(())
    }
}

/// A directory for secrets that no shipped profile shows.
const SECRETS_PLACE: &str = "/var/lib/provost-secrets";

/// Finds them, in the order of files and lines. An error for a file that silences what there is not.
fn find_warnings(
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

#[cfg(test)]
mod tests;
