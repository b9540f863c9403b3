//! Warnings about a policy that is valid and perhaps not what its author means, and the list that silences them.

/// Where a rule stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLocation {
    /// The file, as it was named to the loader.
    pub file: String,
    /// 1-based.
    pub line: usize,
}

/// The kinds of warnings. Their names are stable: files silence warnings by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningId {
    /// An option before its subcommand gets round the rule.
    UnknownOptions,
    /// No command can match the rule.
    NeverMatches,
    /// A stricter rule catches everything that the rule matches.
    Shadowed,
    /// A rule finds several short options in one spelling only.
    ClusteredFlags,
    /// A profile has no exec gate: what commands start is not judged.
    NoGate,
    /// A rule is about requests of a port where they come in TLS, which it does not open.
    HiddenRequests,
    /// The file of a secret lies in a directory that a profile shows.
    ShownSecret,
}

impl WarningId {
    const ALL: [Self; 7] = [
        Self::UnknownOptions,
        Self::NeverMatches,
        Self::Shadowed,
        Self::ClusteredFlags,
        Self::NoGate,
        Self::HiddenRequests,
        Self::ShownSecret,
    ];

    /// As files and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownOptions => "unknown-options",
            Self::NeverMatches => "never-matches",
            Self::Shadowed => "shadowed",
            Self::ClusteredFlags => "clustered-flags",
            Self::NoGate => "no-gate",
            Self::HiddenRequests => "hidden-requests",
            Self::ShownSecret => "shown-secret",
        }
    }
}

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWarning {
    /// Its kind.
    pub id: WarningId,
    /// The rule, the profile or the secret, by its name.
    pub subject: String,
    /// Where it stands.
    pub location: Option<RuleLocation>,
    /// What is odd, as the rest of a sentence about the subject.
    pub problem: String,
}

/// One item of a file's `silence`: `"ID"`, or `"ID:NAME"` for one rule or profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Silenced {
    id: WarningId,
    subject: Option<String>,
}

impl Silenced {
    /// Reads an item; the error says what there is.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, subject) = match text.split_once(':') {
            Some((name, subject)) => (name, Some(subject.to_owned())),
            None => (text, None),
        };
        match WarningId::ALL.into_iter().find(|id| id.name() == name) {
            Some(id) => Ok(Self { id, subject }),
            None => {
                let known = WarningId::ALL.map(WarningId::name).join(", ");
                Err(format!("{name:?} is no warning; there are {known}"))
            }
        }
    }

    /// Whether the warning is not to be shown.
    pub(super) fn covers(&self, warning: &PolicyWarning) -> bool {
        self.id == warning.id && self.subject.as_ref().is_none_or(|subject| *subject == warning.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_silences_one_kind_or_one_subject_and_nothing_else() {
        let warning = |id, subject: &str| PolicyWarning {
            id,
            subject: subject.into(),
            location: None,
            problem: String::new(),
        };
        let all = Silenced::parse("shadowed").unwrap();
        let one = Silenced::parse("shadowed:push").unwrap();
        assert!(
            all.covers(&warning(WarningId::Shadowed, "x"))
                && all.covers(&warning(WarningId::Shadowed, "push"))
        );
        assert!(
            one.covers(&warning(WarningId::Shadowed, "push"))
                && !one.covers(&warning(WarningId::Shadowed, "x"))
        );
        assert!(!all.covers(&warning(WarningId::NoGate, "push")));
        assert!(Silenced::parse("everything").is_err_and(|problem| problem.contains("never-matches")));
    }
}
