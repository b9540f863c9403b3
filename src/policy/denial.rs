//! Why policy denies a request, with the rule that says so.

use super::{
    approval::{ApprovalQuestion, COMMAND_SHOWN_BYTES},
    command::{
        program::Resolved,
        rule::Decision,
        shell,
        verdict::{DecisionReason, EffectsConflict, RuleVerdict, Unit},
    },
    environment::{self, VariableDenial},
    path::AbsPath,
    profile::{Network, Profile, ProfileName},
    set::PolicySet,
};

/// Why policy does not permit a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is no such profile.
    #[error("there is no profile {0:?}")]
    UnknownProfile(String),
    /// The profile does not offer this network.
    #[error(
        "profile {profile:?} does not offer the network {:?}; a policy offers it that has in [profile.{profile}.network]: {}",
        network.name(),
        offering(offered, *network)
    )]
    NetworkNotOffered {
        /// The profile.
        profile: ProfileName,
        /// The network that was asked for.
        network: Network,
        /// What it offers.
        offered: Vec<Network>,
    },
    /// A pattern denies this variable.
    #[error(
        "environment variable {name:?} is denied by {pattern:?} of profile {profile:?}{}{}",
        reason_suffix(*reason),
        letting_in(*reason, profile, name)
    )]
    EnvironmentDenied {
        /// The profile.
        profile: ProfileName,
        /// The variable.
        name: String,
        /// The pattern that denies it.
        pattern: String,
        /// What such a variable does, where the shipped list denies it.
        reason: Option<&'static str>,
    },
    /// The variable is a secret, which the policy alone gives.
    #[error("environment variable {0:?} is a secret: only the policy gives it a value")]
    SecretVariable(String),
    /// The profile lists what may be passed, and this is not among it.
    #[error(
        "environment variable {name:?} is not among those that profile {profile:?} allows: `allow` in [profile.{profile}.environment] lists them"
    )]
    EnvironmentNotAllowed {
        /// The profile.
        profile: ProfileName,
        /// The variable.
        name: String,
    },
    /// A rule denies the command, or none allows it.
    #[error("{}", command_message(rule.as_deref(), command, reason.as_deref()))]
    CommandDenied {
        /// The rule; absent: none matched, and the default is to deny.
        rule: Option<String>,
        /// The command that it is about, in its normal form.
        command: String,
        /// The rule's own reason, verbatim.
        reason: Option<String>,
    },
    /// The line sets a variable that the profile denies.
    #[error(
        "profile {profile:?} denies the variable {name:?}, which the command line sets{}{}",
        reason_suffix(*reason),
        letting_in(*reason, profile, name)
    )]
    AssignmentDenied {
        /// The profile.
        profile: ProfileName,
        /// The variable.
        name: String,
        /// What such a variable does, where the shipped list denies it.
        reason: Option<&'static str>,
    },
    /// The effects of rules on parts of the request cannot be put together.
    #[error("{0}")]
    ConflictingEffects(EffectsConflict),
    /// A rule selects another profile, under which a rule selects a third.
    #[error("the rules of profile {0:?} select profile {1:?}, whose rules select another")]
    ProfileChain(ProfileName, ProfileName),
    /// A person must approve it first.
    #[error("{0}")]
    NeedsApproval(Box<ApprovalQuestion>),
    /// The working directory lies outside the session's roots.
    #[error("working directory {0} lies outside the session's roots")]
    CwdOutsideRoots(AbsPath),
    /// The program is one of 32 bits.
    #[error(
        "{} is a 32-bit program, and profile {profile:?} allows system calls of 64-bit programs only: its filter would end the program with SIGSYS",
        crate::printable::line(path)
    )]
    Program32Bit {
        /// The profile.
        profile: ProfileName,
        /// The program's file.
        path: String,
    },
}

/// The line of a profile that offers a network, next to what it offers already.
fn offering(offered: &[Network], network: Network) -> String {
    let names: Vec<String> =
        offered.iter().chain([&network]).map(|network| format!("{:?}", network.name())).collect();
    format!("choices = [{}]", names.join(", "))
}

impl Denial {
    /// The decision: ask or deny.
    pub fn decision(&self) -> Decision {
        match self {
            Self::NeedsApproval(_) => Decision::Ask,
            Self::UnknownProfile(_)
            | Self::NetworkNotOffered { .. }
            | Self::EnvironmentDenied { .. }
            | Self::EnvironmentNotAllowed { .. }
            | Self::SecretVariable(_)
            | Self::CommandDenied { .. }
            | Self::AssignmentDenied { .. }
            | Self::ConflictingEffects(..)
            | Self::ProfileChain(..)
            | Self::CwdOutsideRoots(_)
            | Self::Program32Bit { .. } => Decision::Deny,
        }
    }

    /// The name of the rule that denies. It is stable: programs compare it.
    pub fn rule(&self) -> String {
        match self {
            Self::UnknownProfile(_) => "profile.exists".to_owned(),
            Self::NetworkNotOffered { profile, .. } => format!("profile.{profile}.network.choices"),
            Self::EnvironmentDenied { profile, pattern, .. } => {
                format!("profile.{profile}.environment.deny:{pattern}")
            }
            Self::SecretVariable(name) => format!("secrets.{name}"),
            Self::EnvironmentNotAllowed { profile, .. } => format!("profile.{profile}.environment.allow"),
            Self::CommandDenied { rule, .. } => rule.clone().unwrap_or_else(|| "default".to_owned()),
            Self::AssignmentDenied { profile, .. } => format!("profile.{profile}.environment"),
            Self::ConflictingEffects(conflict) => conflict.rule().to_owned(),
            Self::ProfileChain(..) => "effects.profile".to_owned(),
            Self::NeedsApproval(question) => question.rule.clone(),
            Self::CwdOutsideRoots(_) => "session.roots".to_owned(),
            Self::Program32Bit { profile, .. } => format!("profile.{profile}.seccomp"),
        }
    }

    /// The denial of a request whose rules deny it.
    pub(super) fn from_verdict(
        policy: &PolicySet,
        (profile, used): (&ProfileName, &Profile),
        verdict: &RuleVerdict,
    ) -> Self {
        debug_assert_eq!(verdict.decision, Decision::Deny);
        let Some(unit) = verdict.cause() else {
            return Self::CommandDenied { rule: None, command: String::new(), reason: None };
        };
        let command = shell::print(&unit.words);
        match &unit.reason {
            DecisionReason::Variable(name) if policy.is_secret(name) => Self::SecretVariable(name.clone()),
            DecisionReason::Variable(name) => {
                let used = policy.profile(Some(profile.as_str())).map(|(_, profile)| profile);
                let denial = used.and_then(|used| environment::denied(&used.environment, name, None));
                let reason = match denial {
                    Some(VariableDenial::Denied { reason, .. }) => reason,
                    Some(VariableDenial::NotAllowed) | None => None,
                };
                Self::AssignmentDenied { profile: profile.clone(), name: name.clone(), reason }
            }
            DecisionReason::Conflict(conflict) => Self::ConflictingEffects(conflict.clone()),
            DecisionReason::Rule(id) => {
                let reason = policy.rules().iter().find(|rule| rule.id == *id).and_then(|r| r.reason.clone());
                Self::CommandDenied { rule: Some(id.clone()), command, reason }
            }
            DecisionReason::Default
            | DecisionReason::Transparent
            | DecisionReason::Interprets
            | DecisionReason::Started(_)
            | DecisionReason::Opaque(_)
            | DecisionReason::AtExec(_) => {
                let reason = shadow_of(used, unit);
                Self::CommandDenied { rule: None, command, reason }
            }
        }
    }
}

/// A program of the workspace that was found by a name, which rules that allow the name do not mean, and the rule that would.
fn shadow_of(profile: &Profile, unit: &Unit) -> Option<String> {
    let Resolved::File(file) = &unit.file else { return None };
    profile.is_found_in_workspace(&file.lookup_path).then(|| {
        let path = crate::printable::line(&file.lookup_path);
        format!(
            "that is {path} of the workspace, which a rule that allows the name does not mean; one with argv = [{path:?}, \"**\"] does"
        )
    })
}

fn reason_suffix(reason: Option<&'static str>) -> String {
    reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

/// The line of a profile that lets a variable in, where the shipped list denies it.
fn letting_in(reason: Option<&'static str>, profile: &ProfileName, name: &str) -> String {
    match reason {
        Some(_) => {
            format!("; a policy lets it in that has in [profile.{profile}.environment]: drop = [{name:?}]")
        }
        None => format!("; `deny` in [profile.{profile}.environment] names it"),
    }
}

fn command_message(rule: Option<&str>, command: &str, reason: Option<&str>) -> String {
    let command = crate::printable::bounded(command, COMMAND_SHOWN_BYTES);
    match (rule, reason) {
        (Some(rule), Some(reason)) => format!("{reason} (rule {rule:?} denies: {command})"),
        (Some(rule), None) => format!("rule {rule:?} denies: {command}"),
        (None, Some(reason)) => format!("no rule allows: {command} ({reason})"),
        (None, None) => format!("no rule allows: {command}"),
    }
}
