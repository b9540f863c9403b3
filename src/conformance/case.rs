//! What a case is: a number that never changes its meaning, a rule and where it stands, and the steps that test it.

use std::{fmt, future::Future, pin::Pin};

use super::{context::TestContext, fault::Fault};

/// How binding a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The specification demands it, or agents go wrong without it: the suite fails.
    Must,
    /// Practice or good sense asks for it: reported, and the suite does not fail.
    Should,
}

impl Level {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
        }
    }
}

/// What a case has to have in its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The agent's side only: such a case runs inside any editor.
    Agent,
    /// The editor's side too, and so a backend that stands between the two.
    BothSides,
}

/// One numbered case.
pub struct Case {
    /// Its number. A number that was given is never given to another case.
    pub number: u16,
    /// How binding its rule is.
    pub level: Level,
    /// What it needs.
    pub needs: Needs,
    /// The rule, as a sentence.
    pub rule: &'static str,
    /// Where the rule stands.
    pub source: &'static str,
    pub(super) steps: Steps,
}

/// The steps of a case.
pub(super) type Steps = fn(TestContext) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

impl Case {
    /// `TC-007`.
    pub fn id(&self) -> String {
        format!("TC-{:03}", self.number)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.rule)
    }
}

/// A list of cases: number, level, needs, where the rule stands, the rule, the steps.
macro_rules! cases {
    ($($number:literal $level:ident $needs:ident $source:literal: $rule:literal => $steps:path;)+) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[$(
            $crate::case::Case {
                number: $number,
                level: $crate::case::Level::$level,
                needs: $crate::case::Needs::$needs,
                rule: $rule,
                source: $source,
                steps: |stage| Box::pin($steps(stage)),
            },
        )+];
    };
}

pub(super) use cases;
