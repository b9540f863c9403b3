//! The signals that ask `provost` to stop.
//!
//! Counts nothing and stops nothing: it only says that the next one has come, and which.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP from now on; their default actions no longer happen.
#[derive(Debug)]
pub(in crate::cli) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl TerminationSignals {
    /// Takes the signals over.
    pub(in crate::cli) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. May be dropped and called again without losing any.
    pub(in crate::cli) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        }
    }
}
