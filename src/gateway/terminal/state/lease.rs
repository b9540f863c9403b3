//! The last steps of a command: running in its sandbox, exited, released.

use std::{sync::Arc, time::Duration};

use crate::{
    proto::v1::Outcome,
    sandbox::{handle::Sandbox, spec::Sharing},
    terminal::id::TerminalId,
};

/// Where a command runs, and whether the place ends with it.
#[derive(Debug)]
pub(in crate::terminal) struct SandboxLease {
    pub sandbox: Arc<Sandbox>,
    pub sharing: Sharing,
}

impl SandboxLease {
    /// Leaves nothing of a sandbox that was the terminal's own.
    pub(in crate::terminal) async fn shut_down_if_sole(self, grace: Duration) {
        match self.sharing {
            Sharing::Shared => {}
            Sharing::Exclusive => self.sandbox.shut_down(grace).await,
        }
    }
}

/// Exec has succeeded: the supervisor holds the process.
#[derive(Debug)]
pub(in crate::terminal) struct Running {
    pub lease: SandboxLease,
}

impl Running {
    /// A command that a gateway before this one has started: that one held the permit.
    pub(in crate::terminal) fn adopted(sandbox: Arc<Sandbox>, sharing: Sharing) -> Self {
        Self { lease: SandboxLease { sandbox, sharing } }
    }

    /// The end, as it came to be known.
    pub(in crate::terminal) fn exited(self, outcome: Outcome) -> Exited {
        Exited { lease: Some(self.lease), outcome: Arc::new(outcome) }
    }
}

/// Ended, with its outcome. The output is still here, unless its sandbox ended while no gateway was there.
#[derive(Debug)]
pub(in crate::terminal) struct Exited {
    lease: Option<SandboxLease>,
    outcome: Arc<Outcome>,
}

impl Exited {
    /// The end of a command whose sandbox was gone before this gateway came.
    pub(in crate::terminal) fn without_sandbox(outcome: Outcome) -> Self {
        Self { lease: None, outcome: Arc::new(outcome) }
    }

    /// What every waiter gets.
    pub(in crate::terminal) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// Frees what the supervisor keeps, and the sandbox when it was the terminal's own.
    pub(in crate::terminal) async fn release(self, id: TerminalId) -> Released {
        match self.lease {
            None => {}
            Some(place) if place.sharing == Sharing::Exclusive => {
                place.shut_down_if_sole(Duration::ZERO).await
            }
            // A sandbox that has gone has nothing to forget.
            Some(place) => drop(place.sandbox.release(id.to_string()).await),
        }
        Released { outcome: self.outcome }
    }
}

/// Nothing is left but how it ended.
#[derive(Debug)]
pub(in crate::terminal) struct Released {
    pub outcome: Arc<Outcome>,
}
