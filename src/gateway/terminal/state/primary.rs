//! The primary terminal of each session: the pseudo-terminal that is shown for it.
//!
//! The one that a caller has chosen, else the oldest. A session without pseudo-terminals has none, and no entry.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard},
};

use tokio::sync::watch;

use super::terminal::Terminal;
use crate::{session::SessionId, terminal::id::TerminalId};

/// The pseudo-terminals of all sessions. As many as there are terminals, which quotas bound.
#[derive(Debug, Default)]
pub(super) struct PrimaryTerminals {
    sessions: Mutex<HashMap<SessionId, Candidates>>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Candidates {
    /// By age.
    ptys: BTreeSet<TerminalId>,
    chosen: Option<TerminalId>,
}

impl PrimaryTerminals {
    /// A terminal is there.
    pub(super) fn insert(&self, terminal: &Terminal) {
        if terminal.pty_size().is_some() {
            self.lock().entry(terminal.session.id).or_default().ptys.insert(terminal.id);
            self.changes.send_replace(());
        }
    }

    /// A terminal is gone.
    pub(super) fn remove(&self, terminal: &Terminal) {
        {
            let mut sessions = self.lock();
            let Some(candidates) = sessions.get_mut(&terminal.session.id) else { return };
            candidates.ptys.remove(&terminal.id);
            candidates.chosen.take_if(|chosen| *chosen == terminal.id);
            if candidates.ptys.is_empty() {
                sessions.remove(&terminal.session.id);
            }
        }
        self.changes.send_replace(());
    }

    /// Chooses a pseudo-terminal that is there.
    pub(super) fn choose(&self, terminal: &Terminal) {
        if let Some(candidates) = self.lock().get_mut(&terminal.session.id)
            && candidates.ptys.contains(&terminal.id)
        {
            candidates.chosen = Some(terminal.id);
        }
        self.changes.send_replace(());
    }

    /// The primary terminal of a session.
    pub(super) fn of(&self, session: SessionId) -> Option<TerminalId> {
        let sessions = self.lock();
        let candidates = sessions.get(&session)?;
        candidates.chosen.or_else(|| candidates.ptys.first().copied())
    }

    /// Told after each change of any session's.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Candidates>> {
        self.sessions.lock().expect("no code panics while it holds the primary terminals")
    }
}
