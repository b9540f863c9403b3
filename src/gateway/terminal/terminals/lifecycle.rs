//! What a gateway does with sessions and all their terminals: opens and closes sessions, restores what the last gateway left, and
//! ends what it must not leave itself.

use std::{collections::HashSet, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{
    sandbox::adopt::AdoptableSandbox,
    session::{NewSession, Peer, Session, Sessions},
    terminal::{
        adopt::{AdoptError, SandboxStatuses},
        audit::recorder::RecordedExits,
        close_session,
        counters::CloseReason,
        errors::OpenSessionError,
        open_session, release, shutdown,
        state::terminal_log::TerminalLogError,
        terminals::Terminals,
    },
};

impl Terminals {
    /// Opens a session for the caller, and counts it.
    pub async fn open_session(
        &self,
        sessions: &Arc<Sessions>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Arc<Session>, OpenSessionError> {
        open_session::open(sessions, &self.context, peer, new).await
    }

    /// Closes a session. Answers when nothing of it is left, and goes on when nobody waits for the answer any more.
    /// `grace`: between TERM and KILL; absent: each terminal's own.
    pub async fn close_session(
        &self,
        sessions: &Arc<Sessions>,
        session: &Arc<Session>,
        reason: CloseReason,
        grace: Option<Duration>,
    ) {
        close_session::close(&self.context, sessions, session, reason, grace).await;
    }

    /// Closes a session when the process that opened it has ended.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub fn end_session_with_process(
        &self,
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        process: &OwnedFd,
    ) -> io::Result<()> {
        close_session::end_with_process(self.context.clone(), sessions, session, process)
    }

    /// Adopts a sandbox of a session, with all its terminals. Answers with their number.
    ///
    /// # Errors
    /// [`AdoptError`]: nothing was adopted.
    pub fn adopt(
        &self,
        session: &Arc<Session>,
        found: AdoptableSandbox,
        recorded_exits: &mut RecordedExits,
    ) -> Result<usize, AdoptError> {
        self.context.adopt(session, found, recorded_exits)
    }

    /// Reads which terminals a session had, before any of its sandboxes is adopted.
    ///
    /// # Errors
    /// [`TerminalLogError`]: some may be missing. The file was put aside.
    pub fn restore_log(&self, session: &Session) -> Result<(), TerminalLogError> {
        self.context.restore_log(session)
    }

    /// Removes the terminal logs of sessions that are not among these. The names of those that were put aside as damaged.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn remove_stale_logs(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        self.context.remove_stale_logs(sessions)
    }

    /// Settles what stands in a session's terminal log and was not found in a sandbox, after all sandboxes were looked at.
    /// How many commands have ended with their sandboxes.
    pub fn settle_log(
        &self,
        session: &Arc<Session>,
        statuses: &SandboxStatuses,
        recorded_exits: &mut RecordedExits,
    ) -> usize {
        self.context.settle_log(session, statuses, recorded_exits)
    }

    /// Releases finished terminals that nobody has released for that long.
    pub async fn collect_finished(&self, finished_for: Duration) {
        let (registry, recorder) = (self.context.registry(), self.context.recorder());
        release::collect_finished(registry, recorder, self.context.counters(), finished_for).await;
    }

    /// Lets no new terminal begin.
    pub fn drain(&self) {
        self.context.drain();
    }

    /// Whether new terminals are refused.
    pub fn is_draining(&self) -> bool {
        self.context.is_draining()
    }

    /// Commands that wait for their readers go on waiting when this gateway ends.
    pub fn leave_holds(&self) {
        shutdown::leave_holds(self.context.registry());
    }

    /// Ends what was run for one call each: its caller cannot come back to it. Answers when all of it is gone.
    pub async fn end_runs(&self) {
        shutdown::end_runs(self.context.registry(), self.context.recorder()).await;
    }

    /// How many commands run.
    pub fn live_count(&self) -> u64 {
        shutdown::live_count(self.context.registry())
    }
}
