//! The stage of a terminal's life. Stages only go forward.

use std::sync::Arc;

use tokio::sync::watch;

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

    /// Publishes this stage, unless a later one was published already: who reports the end does not wait until the start
    /// was published.
    pub(in crate::terminal) fn publish(self, stages: &watch::Sender<Self>) {
        stages.send_if_modified(|now| {
            let is_later = self.rank() > now.rank();
            if is_later {
                *now = self;
            }
            is_later
        });
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Created => 0,
            Self::Running => 1,
            Self::Finished(_) => 2,
            Self::Released(_) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_is_published_late_does_not_take_the_place_of_a_later_one() {
        let outcome = Arc::new(Outcome::default());
        let stages = watch::Sender::new(Stage::Created);
        Stage::Finished(outcome.clone()).publish(&stages);
        Stage::Running.publish(&stages);
        assert!(matches!(*stages.borrow(), Stage::Finished(_)), "{stages:?}");
        Stage::Released(Some(outcome.clone())).publish(&stages);
        Stage::Finished(outcome).publish(&stages);
        assert!(matches!(*stages.borrow(), Stage::Released(Some(_))), "{stages:?}");
    }
}
