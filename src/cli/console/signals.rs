//! The signals that ask `provost` to stop, and those that it passes on to a command.
//!
//! Counts nothing and stops nothing: it only says that the next one has come, and which. What nohup(1) and a
//! script's background make a program ignore stays ignored, and asks for nothing: SIGHUP, SIGINT and SIGQUIT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::sys::signals;

/// SIGTERM from now on, and SIGINT and SIGHUP unless they are ignored; their default actions no longer happen.
#[derive(Debug)]
pub(in crate::cli) struct TerminationSignals {
    interrupt: Option<Signal>,
    terminate: Signal,
    hangup: Option<Signal>,
    /// Those that are passed on.
    quit: Option<Signal>,
    user_1: Option<Signal>,
    user_2: Option<Signal>,
}

impl TerminationSignals {
    /// Takes over those that ask to stop.
    pub(in crate::cli) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: take_over(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: take_over(SignalKind::hangup())?,
            quit: None,
            user_1: None,
            user_2: None,
        })
    }

    /// Takes over those, and the ones that a command may treat as it likes: see [`is_passed_on`].
    pub(in crate::cli) fn install_for_command() -> io::Result<Self> {
        Ok(Self {
            quit: take_over(SignalKind::quit())?,
            user_1: take_over(SignalKind::user_defined1())?,
            user_2: take_over(SignalKind::user_defined2())?,
            ..Self::install()?
        })
    }

    /// Waits for the next one. May be dropped and called again without losing any.
    pub(in crate::cli) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = received(&mut self.interrupt) => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = received(&mut self.hangup) => SignalKind::hangup(),
            _ = received(&mut self.quit) => SignalKind::quit(),
            _ = received(&mut self.user_1) => SignalKind::user_defined1(),
            _ = received(&mut self.user_2) => SignalKind::user_defined2(),
        }
    }
}

/// Whether a signal is the command's alone: it says nothing about how long this process stays with it.
pub(in crate::cli) fn is_passed_on(signal: SignalKind) -> bool {
    [SignalKind::quit(), SignalKind::user_defined1(), SignalKind::user_defined2()].contains(&signal)
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
