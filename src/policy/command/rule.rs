//! Rules: what a policy file says about commands, compiled, and matched against one command at a time.
//!
//! A rule knows nothing of other rules; how several are weighed is in [`super::verdict`]. A rule that does not
//! hold on its own examples is not accepted.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{duration, profile::CgroupLimits};
use super::{
    pattern::{Element, Flags, Match, PatternError, Text, WordSource, match_arguments},
    program::{Found, Programs},
    shell::{Place, Word},
};

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It may run.
    Allow,
    /// A person must say yes first.
    Ask,
    /// It may not run.
    Deny,
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

/// Whether a rule decides or only watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// What it would have decided is recorded.
    Observe,
}

/// A rule as a policy file writes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSource {
    /// Unique among all files.
    pub id: String,
    /// What it decides.
    pub decision: Decision,
    /// The argument vector, program first.
    pub argv: Vec<WordSource>,
    /// Only when one of these options is given, wherever it stands.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Options that may stand anywhere and are left out before `argv` is compared.
    #[serde(default)]
    pub skip: SkipSource,
    /// Only under these conditions.
    #[serde(default)]
    pub when: WhenSource,
    /// What it changes about a command that it allows.
    #[serde(default)]
    pub effects: Effects,
    /// Given to the caller, word for word.
    #[serde(default)]
    pub reason: Option<String>,
    /// Lines that it must match.
    #[serde(default)]
    pub matches: Vec<String>,
    /// Lines that it must not match.
    #[serde(default)]
    pub rejects: Vec<String>,
    /// Whether it decides or only watches.
    #[serde(default)]
    pub mode: Option<Mode>,
}

/// Options that stand between the words that a rule is about: `git -C DIR push`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SkipSource {
    /// Options without a value.
    pub flags: Vec<String>,
    /// Options whose value is attached with `=` or is the next word.
    pub with_value: Vec<String>,
}

/// Conditions; all that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhenSource {
    /// Patterns, one of which the principal must match.
    pub principal: Vec<String>,
    /// Labels of the session: name to pattern.
    pub labels: BTreeMap<String, String>,
    /// Patterns, one of which the working folder must match: a folder and all below it, or a glob.
    pub cwd: Vec<String>,
    /// Variables of the command's environment: name to pattern.
    pub env: BTreeMap<String, String>,
}

/// What an allowing rule changes about the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Effects {
    /// The profile to run under.
    pub profile: Option<String>,
    /// Variables to set.
    pub environment: BTreeMap<String, String>,
    /// Names of secrets to give it, each as a variable.
    pub secrets: Vec<String>,
    /// A time limit, if it is shorter than the command's.
    #[serde(deserialize_with = "duration::optional::deserialize")]
    #[schemars(with = "Option<String>")]
    pub time_limit: Option<Duration>,
    /// An idle limit, likewise.
    #[serde(deserialize_with = "duration::optional::deserialize")]
    #[schemars(with = "Option<String>")]
    pub idle_limit: Option<Duration>,
    /// Limits, where they are lower than the profile's.
    pub limits: CgroupLimits,
}

/// Why a rule is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The id is empty or has characters that would not survive a log line.
    #[error("id {0:?} must be made of letters, digits, '-', '_' and '.'")]
    Id(String),
    /// A pattern in the named field is wrong.
    #[error("{field}: {cause}")]
    Pattern {
        /// The field.
        field: &'static str,
        /// What is wrong.
        #[source]
        cause: PatternError,
    },
    /// Effects on a rule that lets nothing run.
    #[error("effects: only an allowing or asking rule can have effects")]
    EffectsOfDeny,
    /// The rule misses one of its `matches`.
    #[error("matches: the rule does not match its own example {0:?}")]
    ExampleMissed(String),
    /// The rule catches one of its `rejects`.
    #[error("rejects: the rule matches {0:?}, which it says it rejects")]
    ExampleCaught(String),
}

/// One command to be matched: a program with its arguments, in its circumstances.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The command word and the arguments.
    pub words: &'a [Word],
    /// The file that the command word names.
    pub file: &'a Found,
    /// The file is what the trusted path says of its name, or a builtin of the shell.
    pub is_itself: bool,
    /// Where it runs, relative to `circumstances.cwd`.
    pub place: &'a Place,
    /// What it runs in.
    pub circumstances: &'a Circumstances,
}

/// Who runs a command, and in what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// The principal.
    pub principal: String,
    /// The session's labels.
    pub labels: BTreeMap<String, String>,
    /// The working folder that was asked for.
    pub cwd: String,
    /// The environment that the command would have.
    pub env: BTreeMap<String, String>,
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// What it decides.
    pub decision: Decision,
    /// Whether it decides or only watches.
    pub mode: Mode,
    /// For the caller.
    pub reason: Option<String>,
    /// What it changes about a command that it lets run.
    pub effects: Effects,
    /// Lines that it says it matches, and does.
    pub examples: Vec<String>,
    program: ProgramPattern,
    arguments: Vec<Element>,
    flags: Option<Flags>,
    skip: SkipSource,
    when: When,
}

#[derive(Debug, Clone)]
enum ProgramPattern {
    Any,
    OneOf(Vec<Text>),
}

#[derive(Debug, Clone, Default)]
struct When {
    principal: Vec<Text>,
    labels: Vec<(String, Text)>,
    cwd: Vec<Text>,
    env: Vec<(String, Text)>,
}

impl Rule {
    /// Compiles a rule. Its examples are checked by [`super::examples::check`], which needs the judge.
    pub fn compile(source: &RuleSource, file_mode: Mode) -> Result<Self, RuleError> {
        let id_is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if source.id.is_empty() || !source.id.chars().all(id_is_plain) {
            return Err(RuleError::Id(source.id.clone()));
        }
        if source.decision == Decision::Deny && source.effects != Effects::default() {
            return Err(RuleError::EffectsOfDeny);
        }
        let in_field = |field| move |cause| RuleError::Pattern { field, cause };
        let (first, rest) = source
            .argv
            .split_first()
            .ok_or(RuleError::Pattern { field: "argv", cause: PatternError::Empty })?;
        let mut arguments: Vec<Element> =
            rest.iter().map(Element::compile).collect::<Result<_, _>>().map_err(in_field("argv"))?;
        let program = match Element::compile(first).map_err(in_field("argv"))? {
            Element::OneOf(texts) => ProgramPattern::OneOf(texts),
            Element::Rest => {
                arguments.insert(0, Element::Rest);
                ProgramPattern::Any
            }
        };
        let flags = match source.flags.as_slice() {
            [] => None,
            some => Some(Flags::compile(some).map_err(in_field("flags"))?),
        };
        Flags::compile(&source.skip.flags).map_err(in_field("skip.flags"))?;
        Flags::compile(&source.skip.with_value).map_err(in_field("skip.with_value"))?;
        Ok(Self {
            id: source.id.clone(),
            decision: source.decision,
            mode: source.mode.unwrap_or(file_mode),
            reason: source.reason.clone(),
            effects: source.effects.clone(),
            examples: source.matches.clone(),
            program,
            arguments,
            flags,
            skip: source.skip.clone(),
            when: When::compile(&source.when).map_err(in_field("when"))?,
        })
    }

    /// Whether the rule matches a command.
    pub fn matches(&self, subject: &Subject<'_>, programs: &dyn Programs) -> Match {
        let Some((command, arguments)) = subject.words.split_first() else { return Match::No };
        let program = self.match_program(command, subject, programs);
        if program == Match::No {
            return Match::No;
        }
        let flags = match (&self.flags, self.decision) {
            (None, _) => Match::Yes,
            (Some(flags), Decision::Allow) => flags.surely_any(arguments),
            (Some(flags), Decision::Ask | Decision::Deny) => flags.any(arguments),
        };
        if flags == Match::No {
            return Match::No;
        }
        let arguments = match self.skip == SkipSource::default() {
            true => match_arguments(&self.arguments, arguments),
            false => match_arguments(&self.arguments, &self.without_skipped(arguments)),
        };
        // How many words there are is not known either when the command word is not.
        let arguments = match command.literal() {
            None if self.arguments_take_anything() => Match::Yes,
            None => Match::Perhaps,
            Some(_) => arguments,
        };
        program.and(flags).and(arguments).and(self.when.holds(subject.circumstances, subject.place))
    }

    /// Whether the rule is about every command there is.
    pub fn is_about_everything(&self) -> bool {
        matches!(self.program, ProgramPattern::Any) && self.arguments_take_anything()
    }

    fn arguments_take_anything(&self) -> bool {
        self.flags.is_none() && self.arguments.iter().all(|element| matches!(element, Element::Rest))
    }

    /// A rule that allows means the very file that the trusted path names. One that denies or asks also means
    /// whatever calls itself so, and the trusted file under another name.
    fn match_program(&self, command: &Word, subject: &Subject<'_>, programs: &dyn Programs) -> Match {
        let texts = match &self.program {
            ProgramPattern::Any => return Match::Yes,
            ProgramPattern::OneOf(texts) => texts,
        };
        let Some(given) = command.literal() else { return Match::Perhaps };
        let base = base_name(given);
        let file = subject.file;
        let allows = |text: &Text| {
            if !is_about_paths(text) {
                // What does not exist does not run, and then the caller hears just that.
                let is_nothing = *file == Found::Missing && base == given;
                return text.accepts(base) && (subject.is_itself || is_nothing);
            }
            file.path().is_some_and(|path| text.accepts(path))
                || (is_relative(text) && text.accepts(given) && matches!(file, Found::File(_)))
        };
        let catches = |text: &Text| {
            let real = file.path().filter(|path| !is_many_programs(base_name(path)));
            if is_about_paths(text) {
                return text.accepts(given) || file.path().is_some_and(|path| text.accepts(path));
            }
            text.accepts(base)
                || real.is_some_and(|path| {
                    text.accepts(base_name(path))
                        || matches!(text, Text::Literal(name) if programs.is_named(file, name))
                })
        };
        match self.decision {
            Decision::Allow => Match::of(texts.iter().any(allows)),
            Decision::Ask | Decision::Deny if texts.iter().any(catches) => Match::Yes,
            // It may be a link to anything.
            Decision::Ask | Decision::Deny if *file == Found::Unknown => Match::Perhaps,
            Decision::Ask | Decision::Deny => Match::No,
        }
    }

    fn without_skipped(&self, arguments: &[Word]) -> Vec<Word> {
        let mut kept = Vec::with_capacity(arguments.len());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.literal() {
                Some("--") => {
                    kept.push(word.clone());
                    kept.extend(words.by_ref().cloned());
                }
                Some(text) if self.skip.flags.iter().any(|flag| flag == text) => {}
                Some(text) if self.skip.with_value.iter().any(|flag| flag == text) => {
                    // A value that is not known may turn out to be several words.
                    kept.extend(words.next().filter(|value| value.literal().is_none()).cloned());
                }
                Some(text)
                    if self.skip.with_value.iter().any(|flag| {
                        text.strip_prefix(flag.as_str()).is_some_and(|rest| {
                            rest.starts_with('=') || (!flag.starts_with("--") && !rest.is_empty())
                        })
                    }) => {}
                _ => kept.push(word.clone()),
            }
        }
        kept
    }
}

/// The last part of a path, or the name itself.
pub fn base_name(given: &str) -> &str {
    given.rsplit('/').next().unwrap_or(given)
}

fn is_about_paths(text: &Text) -> bool {
    match text {
        Text::Literal(literal) => literal.contains('/'),
        Text::Expression(regex) => regex.as_str().contains('/'),
    }
}

fn is_relative(text: &Text) -> bool {
    match text {
        Text::Literal(literal) => literal.starts_with("./") || literal.starts_with("../"),
        Text::Expression(regex) => regex.as_str().contains("^\\./") || regex.as_str().contains("^\\.\\./"),
    }
}

/// Files that are many programs, and choose by the name they are run under.
fn is_many_programs(real_name: &str) -> bool {
    matches!(real_name, "busybox" | "toybox" | "coreutils" | "rustup" | "systemctl")
}

impl When {
    fn compile(source: &WhenSource) -> Result<Self, PatternError> {
        let list = |texts: &[String]| texts.iter().map(|t| Text::compile(t)).collect::<Result<Vec<_>, _>>();
        let map = |texts: &BTreeMap<String, String>| {
            texts
                .iter()
                .map(|(k, t)| Ok((k.clone(), Text::compile(t)?)))
                .collect::<Result<Vec<_>, PatternError>>()
        };
        Ok(Self {
            principal: list(&source.principal)?,
            labels: map(&source.labels)?,
            cwd: list(&source.cwd)?,
            env: map(&source.env)?,
        })
    }

    fn holds(&self, circumstances: &Circumstances, place: &Place) -> Match {
        let principal =
            self.principal.is_empty() || self.principal.iter().any(|t| t.accepts(&circumstances.principal));
        let named = |wanted: &[(String, Text)], given: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, text)| given.get(name).is_some_and(|value| text.accepts(value)))
        };
        Match::of(
            principal && named(&self.labels, &circumstances.labels) && named(&self.env, &circumstances.env),
        )
        .and(self.cwd_holds(circumstances, place))
    }

    fn cwd_holds(&self, circumstances: &Circumstances, place: &Place) -> Match {
        if self.cwd.is_empty() {
            return Match::Yes;
        }
        let Some(cwd) = resolve_place(&circumstances.cwd, place) else { return Match::Perhaps };
        // A folder's pattern holds for what is below it, too.
        let mut above = Some(cwd.as_str());
        while let Some(folder) = above {
            if self.cwd.iter().any(|text| text.accepts(if folder.is_empty() { "/" } else { folder })) {
                return Match::Yes;
            }
            above = folder.rfind('/').map(|at| &folder[..at]);
        }
        Match::No
    }
}

/// The absolute folder of a place, with `.` and `..` taken out by their letters; `None` where it is not known.
pub fn resolve_place(cwd: &str, place: &Place) -> Option<String> {
    let joined = match place {
        Place::Unknown => return None,
        Place::Start => cwd.to_owned(),
        Place::After(target) if target.starts_with('/') => target.clone(),
        Place::After(target) => format!("{cwd}/{target}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}
