//! What each signal to `provost run` does to its command.

use tokio::signal::unix::SignalKind;

/// How far the signals to this process have gone in ending the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    NotAsked,
    /// It was sent SIGINT, which it may treat as it likes.
    Interrupted,
    /// It was sent SIGHUP, and has a moment to end by itself.
    HungUp,
    /// Everything is stopped, with the grace period.
    Stopped,
    Killed,
    /// This process does not wait any longer.
    Left,
}

impl Ending {
    /// After one more signal. Only SIGINT leaves the decision to the command first. SIGHUP means that nobody is left: the command is
    /// stopped if it does not end of it.
    pub(in crate::cli) fn after(self, signal: SignalKind) -> Self {
        match self {
            Self::NotAsked if signal == SignalKind::interrupt() => Self::Interrupted,
            Self::NotAsked if signal == SignalKind::hangup() => Self::HungUp,
            Self::NotAsked | Self::Interrupted | Self::HungUp => Self::Stopped,
            Self::Stopped => Self::Killed,
            Self::Killed | Self::Left => Self::Left,
        }
    }
}
