//! The signals that ask `provost` to stop.
//!
//! Counts nothing and stops nothing: it only says that the next one has come, and which. What nohup(1) and a
//! script's background make a program ignore stays ignored, and asks for nothing: SIGHUP and SIGINT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::sys::signals;

/// SIGTERM from now on, and SIGINT and SIGHUP unless they are ignored; their default actions no longer happen.
#[derive(Debug)]
pub(in crate::cli) struct TerminationSignals {
    interrupt: Option<Signal>,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl TerminationSignals {
    /// Takes the signals over.
    pub(in crate::cli) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: take_over(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: take_over(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. May be dropped and called again without losing any.
    pub(in crate::cli) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = received(&mut self.interrupt) => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = received(&mut self.hangup) => SignalKind::hangup(),
        }
    }
}

fn take_over(kind: SignalKind) -> io::Result<Option<Signal>> {
    match signals::is_ignored(kind.as_raw_value()) {
        true => Ok(None),
        false => signal(kind).map(Some),
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
