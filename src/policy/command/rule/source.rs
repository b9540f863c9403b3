//! Rules as policy files write them: types only, read and written by serde.
//!
//! What is written reads as what was written. Whether a rule makes sense is not decided here.

use std::{collections::BTreeMap, time::Duration};

use provost_base::counters::Label;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    super::{duration, profile::CgroupLimits},
    pattern::{PatternError, WordSource},
};

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It may run.
    Allow,
    /// A person must say yes first.
    Ask,
    /// It may not run.
    Deny,
}

impl Label for Decision {
    const ALL: &'static [Self] = &[Self::Allow, Self::Ask, Self::Deny];

    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

/// Whether a rule decides or only watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleMode {
    /// It decides.
    #[default]
    Enforce,
    /// What it would have decided is recorded.
    Observe,
}

/// What a command that a rule allows may start, beyond what rules allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Starts {
    /// Whatever no rule matches. Rules that deny or ask still hold.
    Any,
}

/// Which of the two evaluations a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAt {
    /// The evaluation of a request.
    #[default]
    Request,
    /// The evaluation of each exec of a process that a request has started.
    Tree,
}

/// A rule as a policy file writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// `"any"`: processes of a terminal in which it has allowed a command may execute what no rule matches. For tools whose work is
    /// to start others. It has a meaning under profiles with a gate only.
    #[serde(default)]
    pub starts: Option<Starts>,
    /// `"request"`: it does not count when a process of a terminal executes something. `"tree"`: it counts only then. Absent: both.
    #[serde(default)]
    pub at: Option<RuleAt>,
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
    pub mode: Option<RuleMode>,
}

/// Options that stand between the words that a rule is about: `git -C DIR push`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SkipSource {
    /// Options without a value.
    pub flags: Vec<String>,
    /// Options whose value is attached with `=` or is the next word.
    pub with_value: Vec<String>,
}

/// Conditions; all that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhenSource {
    /// Patterns, one of which the principal must match.
    pub principal: Vec<String>,
    /// Labels of the session: name to pattern.
    pub labels: BTreeMap<String, String>,
    /// Patterns, one of which the working directory must match: a directory and all below it, or a glob.
    pub cwd: Vec<String>,
    /// Variables of the command's environment: name to pattern.
    pub env: BTreeMap<String, String>,
}

/// What an allowing rule changes about the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Effects {
    /// The profile to run under.
    pub profile: Option<String>,
    /// Variables to set.
    pub environment: BTreeMap<String, String>,
    /// Names of secrets to give it, each as a variable.
    pub secrets: Vec<String>,
    /// A time limit, if it is shorter than the command's.
    #[serde(with = "duration::optional")]
    #[schemars(with = "Option<String>")]
    pub time_limit: Option<Duration>,
    /// An idle limit, likewise.
    #[serde(with = "duration::optional")]
    #[schemars(with = "Option<String>")]
    pub idle_limit: Option<Duration>,
    /// Limits, where they are lower than the profile's.
    pub limits: CgroupLimits,
}

impl Effects {
    /// Whether they may give a command more than it has without them. Times and limits are only ever lowered.
    pub(super) fn grant_more(&self) -> bool {
        self.profile.is_some() || !self.environment.is_empty() || !self.secrets.is_empty()
    }
}

/// Which field of the conditions is one that the caller claims, and nobody has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimedField {
    /// Labels of the session.
    Labels,
    /// Variables.
    Env,
}

impl std::fmt::Display for ClaimedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Labels => "labels",
            Self::Env => "env",
        })
    }
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
    /// It gives something to a caller because of what the caller claims.
    #[error(
        "when.{0}: callers claim these, so that they can only restrict: a rule that allows, or whose effects give a profile, \
         variables or secrets, needs `principal`, too, and one that does not accept everybody"
    )]
    Claimed(ClaimedField),
    /// Effects on a rule that lets nothing run.
    #[error("effects: only an allowing or asking rule can have effects")]
    EffectsOfDeny,
    /// `starts` on a rule that lets nothing run.
    #[error("starts: only an allowing or asking rule can say what its command may start")]
    StartsOfDeny,
    /// With its examples, those of the policy are more than are tried.
    #[error(
        "with its examples, those of the policy are too much to try: the words of a rule times the bytes of its examples, of all rules \
         together, may be {} million",
        .work_max / 1_000_000
    )]
    Examples {
        /// Words times bytes.
        work_max: usize,
    },
    /// The rule misses one of its `matches`.
    #[error("matches: the rule does not match its own example {0:?}")]
    ExampleMissed(String),
    /// The rule catches one of its `rejects`.
    #[error("rejects: the rule matches {0:?}, which it says it rejects")]
    ExampleCaught(String),
}
