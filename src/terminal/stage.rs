//! Where a terminal is in its life. The steps only go forward.

use std::sync::Arc;

use crate::proto::v1::Outcome;

/// Where a terminal is in its life.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Permitted, not yet started.
    Created,
    /// Exec has succeeded.
    Running,
    /// Ended, with an outcome that does not change any more.
    Finished(Arc<Outcome>),
    /// Gone. Without an outcome when it was never started.
    Released(Option<Arc<Outcome>>),
}

impl Stage {
    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        match self {
            Self::Created | Self::Running => None,
            Self::Finished(outcome) => Some(outcome),
            Self::Released(outcome) => outcome.as_ref(),
        }
    }

    /// Whether the command has ended, or never was.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Created | Self::Running => false,
            Self::Finished(_) | Self::Released(_) => true,
        }
    }
}
