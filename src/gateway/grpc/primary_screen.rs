//! The stream of the screen of a session's primary terminal, whichever that is.
//!
//! When another terminal becomes primary, its snapshot comes next. The stream ends when the session is closed.

use std::{sync::Arc, time::Duration};

use futures_util::stream::unfold;
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Code, Status};

use super::{
    screen_response::{self, Styles},
    screen_stream::Watcher,
};
use crate::{
    proto::v1::{WatchScreenResponse, watch_screen_response::Event},
    session::Session,
    terminal::{TerminalId, Terminals},
};

/// Who watches.
struct PrimaryWatcher {
    terminals: Arc<Terminals>,
    session: Arc<Session>,
    interval: Duration,
    styles: Styles,
    changes: watch::Receiver<()>,
    shown: Shown,
}

/// What was shown last.
enum Shown {
    /// Nothing yet.
    Nothing,
    /// That there is no primary terminal.
    NoTerminal,
    /// This one.
    Terminal(TerminalId, Box<Watcher>),
    /// The end of this one.
    EndOf(TerminalId),
}

impl Shown {
    /// Says which terminal it shows, where anything was shown.
    fn terminal(&self) -> Option<Option<TerminalId>> {
        match self {
            Self::Nothing => None,
            Self::NoTerminal => Some(None),
            Self::Terminal(id, _) | Self::EndOf(id) => Some(Some(*id)),
        }
    }
}

/// A snapshot, and then what changes, until the session is closed.
pub(super) fn watch(
    terminals: Arc<Terminals>,
    session: Arc<Session>,
    interval: Duration,
    styles: Styles,
) -> impl Stream<Item = Result<WatchScreenResponse, Status>> + Send {
    let changes = terminals.registry().primary_changes();
    let watcher = PrimaryWatcher { terminals, session, interval, styles, changes, shown: Shown::Nothing };
    unfold(Some(watcher), |watcher| async move {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(None) => None,
            Ok(Some(response)) => Some((Ok(response), Some(watcher))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl PrimaryWatcher {
    /// `None`: the session is closing.
    async fn next(&mut self) -> Result<Option<WatchScreenResponse>, Status> {
        let session = self.session.clone();
        tokio::select! {
            biased;
            () = session.wait_closing() => Ok(None),
            next = self.next_while_open() => next.map(Some),
        }
    }

    async fn next_while_open(&mut self) -> Result<WatchScreenResponse, Status> {
        loop {
            self.changes.borrow_and_update();
            let primary = self.terminals.registry().primary(self.session.id);
            if self.shown.terminal() != Some(primary) {
                if let Some(response) = self.turn_to(primary) {
                    return Ok(response);
                }
                continue;
            }
            let (terminals, session) = (self.terminals.clone(), self.session.id);
            let mut changes = self.changes.clone();
            let another = async move {
                // The sender lives as long as the terminals do.
                while changes.changed().await.is_ok() && terminals.registry().primary(session) == primary {}
            };
            let Shown::Terminal(id, watcher) = &mut self.shown else {
                another.await;
                continue;
            };
            let id = *id;
            let event = tokio::select! {
                event = watcher.next() => event,
                () = another => continue,
            };
            match event {
                Ok(event) => {
                    if matches!(event, Event::Ended(_)) {
                        self.shown = Shown::EndOf(id);
                    }
                    return Ok(WatchScreenResponse { event: Some(event), terminal_id: id.to_string() });
                }
                // It was released.
                Err(status) if status.code() == Code::NotFound => self.shown = Shown::EndOf(id),
                Err(status) => return Err(status),
            }
        }
    }

    /// Shows another one. What there is to be said at once: that there is none.
    fn turn_to(&mut self, primary: Option<TerminalId>) -> Option<WatchScreenResponse> {
        let Some(id) = primary else {
            self.shown = Shown::NoTerminal;
            let event = Some(Event::Snapshot(screen_response::empty()));
            return Some(WatchScreenResponse { event, terminal_id: String::new() });
        };
        let session = self.session.id.to_string();
        self.shown = match self.terminals.registry().find(self.session.principal, &id.to_string(), &session) {
            Some(terminal) => {
                let watcher = Watcher::new(self.terminals.clone(), &terminal, self.interval, self.styles);
                Shown::Terminal(id, Box::new(watcher))
            }
            // It was released at this moment; the change is told.
            None => Shown::EndOf(id),
        };
        None
    }
}
