//! Loads a policy from the texts of its files: parses them, merges them, checks the values, compiles the rules.
//!
//! One mistake refuses the whole policy and is reported with its line. This file reads no files.

mod built_in;
mod connect_rules;
mod cut_short;
mod effects;
mod rule_place;
mod warnings;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde::Deserialize;
use sha2::Digest as _;
use toml::{Spanned, Table, Value};

pub use self::built_in::TEXT as BUILT_IN_TEXT;
use self::rule_place::placed;
use super::{
    check::{InvalidValue, check_profile},
    command::{
        examples::{self, ExampleBudget},
        pattern::{PatternError, Regexes},
        rule::{ClaimedField, Rule, RuleError, RuleMode, RuleSource},
    },
    connect::ConnectSource,
    digest::Digest,
    file_error::PolicyFileError,
    profile::{Profile, ProfileName},
    secret::{self, SecretSource},
    set::{PolicySet, PolicyText},
    warning::RuleLocation,
};

/// The most rules that a policy may have.
pub const MAX_RULES: usize = 10_000;

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
        Self::parse(built_in::NAME, built_in::TEXT)
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
        cut_short::find(&self.texts, &after.texts)
    }
}

fn load(files: &[(&str, &str)]) -> Result<PolicySet, PolicyFileError> {
    let mut files: Vec<ParsedFile<'_>> =
        files.iter().map(|(name, text)| parse(name, text)).collect::<Result<_, _>>()?;
    files.sort_by(|a, b| a.name.cmp(b.name));
    let secrets = load_secrets(&files)?;
    let built_in = built_in::where_none_is_written(&files)?;
    let with_profiles: Vec<&ParsedFile<'_>> = files.iter().chain(&built_in).collect();
    let profiles = load_profiles(&with_profiles, &secrets)?;
    let default = choose_default(&files, built_in.as_ref(), &profiles)?;
    let regexes = Regexes::default();
    let (rules, mut origins) = load_rules(&files, &profiles, &secrets, &regexes)?;
    let connect_rules = connect_rules::load(&files, &profiles, &secrets, &mut origins)?;
    Ok(PolicySet {
        generation: 1,
        known_directories: Arc::default(),
        default,
        confinements: Arc::new(
            profiles.iter().map(|(name, profile)| (name.clone(), hash(profile))).collect(),
        ),
        warnings: warnings::find(&files, &profiles, &origins, &regexes)?.into(),
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
            secret::check(name, spanned.get_ref()).map_err(wrong)?;
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
    super::protection_lists::merge_lists(&mut profile, &tables)?;
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
            effects::check_effects(source, profiles).map_err(|(key, problem)| place.wrong(key, problem))?;
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

#[cfg(test)]
mod tests;
