//! What `provost run` and its kind ask of a gateway about the command that they stay with, and what each signal to them does to it.

use std::time::Duration;

use tokio::signal::unix::SignalKind;

use crate::{
    cli::{
        console::{error::CliError, signals::TerminationSignals},
        gateway_link::{connection::Terminals, reconnect::until_answered},
    },
    proto::v1,
    signal,
};

/// A step, or the interrupt that came first.
pub(in crate::cli) async fn unless_interrupted<T>(
    signals: &mut TerminationSignals,
    step: impl Future<Output = T>,
) -> Result<T, SignalKind> {
    tokio::select! {
        result = step => Ok(result),
        signal = signals.next() => Err(signal),
    }
}

/// Passes a signal on to the command's process group, as a terminal does.
pub(in crate::cli) fn pass_on(terminals: Terminals, terminal_id: String, signal: SignalKind) {
    let signal = signal::name(signal.as_raw_value());
    tokio::spawn(async move {
        let request = v1::SignalTerminalRequest { terminal_id, session_id: String::new(), signal };
        // Sent twice, it is as Ctrl-C pressed twice.
        if let Err(status) = until_answered(|| {
            let (mut terminals, request) = (terminals.clone(), request.clone());
            async move { terminals.signal_terminal(request).await }
        }).await
            // It has ended meanwhile.
            && !is_end_of_reader(status.code())
        {
            CliError::from(status).print();
        }
    });
}

/// Asks the gateway to stop the command; the end comes by the stream of events.
pub(in crate::cli) fn stop(terminals: Terminals, terminal_id: String, grace: Option<Duration>) {
    tokio::spawn(async move {
        let grace = grace.and_then(|grace| grace.try_into().ok());
        let request = v1::KillTerminalRequest { terminal_id, session_id: String::new(), grace };
        if let Err(status) = until_answered(|| {
            let (mut terminals, request) = (terminals.clone(), request.clone());
            async move { terminals.kill_terminal(request).await }
        }).await
            // It ended by itself meanwhile.
            && status.code() != tonic::Code::NotFound
        {
            CliError::from(status).print();
        }
    });
}

/// Whether the command has ended, or has closed its stdin, or the gateway of this process has ended.
pub(super) fn is_end_of_reader(code: tonic::Code) -> bool {
    matches!(code, tonic::Code::NotFound | tonic::Code::FailedPrecondition | tonic::Code::Cancelled)
}

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
