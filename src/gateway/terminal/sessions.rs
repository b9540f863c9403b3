//! Opens and closes sessions.
//!
//! A session is judged, added to the table, and recorded before its caller gets the id. It is closed by its caller, with its owner's
//! process, or with the gateway, in the same order for all: the session accepts nothing new, its terminals are stopped and released, its
//! sandboxes are shut down, what they have written to kept caches is kept, its id is forgotten.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use tokio::io::Interest;

use crate::{
    counters::Label as _,
    failpoint,
    reason::Reason,
    session::{
        Closing, DescriptorQuotaReached, Lifetime, NewSession, OpenError, Opened, Peer, Session, Sessions,
    },
    sys::async_fd,
    terminal::{
        counters::{CloseReason, TerminalCounters},
        errors::OpenSessionError,
        quotas::LimitName,
        records,
        terminals::{Terminals, run_to_completion},
        workspace,
    },
};

/// How long the sandbox of a session may take to stop what is left in it.
const SANDBOX_GRACE: Duration = Duration::from_secs(1);

impl Terminals {
    /// Opens a session for the caller, and counts it. One that the journal does not take is none. Once begun, it is done
    /// even when the caller goes away: it is then open for who sends the same request again, or closed.
    pub(crate) async fn open_session(
        self: &Arc<Self>,
        sessions: &Arc<Sessions>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Arc<Session>, OpenSessionError> {
        let can_come_again = new.request_id.is_some();
        let (undo, undo_in) = (self.clone(), sessions.clone());
        let (this, sessions, peer) = (self.clone(), sessions.clone(), peer.clone());
        let work = async move {
            let opened = this.open_watched(&sessions, &peer, new).await;
            count(&this.counters, &opened);
            opened
        };
        let opened = run_to_completion(work, move |opened| async move {
            if let Ok(Opened::New(session)) = opened
                && !can_come_again
            {
                undo.close_session(&undo_in, &session, CloseReason::CallerDisconnected, None).await;
            }
        });
        match opened.await? {
            Opened::New(session) | Opened::Existing(session) => Ok(session),
        }
    }

    /// A session that is to end with its owner's process is watched before anybody has it.
    async fn open_watched(
        self: &Arc<Self>,
        sessions: &Arc<Sessions>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Opened, OpenSessionError> {
        let is_owner_named = new.owner_process.is_some();
        let opened = self.open_recorded(sessions, peer, new).await?;
        if let Opened::New(session) = &opened
            && session.lifetime == Lifetime::OwnerProcess
        {
            let owner = match (is_owner_named, &peer.process) {
                (false, Some(process)) => process.try_clone(),
                (true, _) | (false, None) => session
                    .reopen_owner()
                    .and_then(|owner| owner.ok_or_else(|| io::ErrorKind::NotFound.into())),
            };
            let watched = owner
                .and_then(|owner| self.end_session_with_process(sessions.clone(), session.clone(), &owner));
            if let Err(error) = watched {
                tracing::error!(session.id = %session.id, error = %error, "cannot watch the owner's process");
                self.close_session(sessions, session, CloseReason::OwnerExited, None).await;
                return Err(OpenError::NoOwnerProcess.into());
            }
        }
        Ok(opened)
    }

    async fn open_recorded(
        &self,
        sessions: &Arc<Sessions>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Opened, OpenSessionError> {
        let (policy, recorder) = (self.policy.current(), &self.recorder);
        if let Err(reached) = recorder.check_share(peer.principal, 1) {
            // What cannot be written is refused all the same.
            let limit = reached.limit.label();
            let refused = records::quota_refused(peer.principal, None, limit, reached.max);
            let _ = recorder.record_denial(&refused).await;
            return Err(reached.into());
        }
        // The next one of several requests with one id finds a session that is recorded, or none.
        let _creation_lock = match new.request_id.as_ref().or(new.name.as_ref()) {
            Some(_) => Some(sessions.creation_lock(peer.principal).await),
            None => None,
        };
        let opened = match sessions.open(&policy, peer, new).await {
            Err(OpenError::TooMany(most)) => {
                // What cannot be written is refused all the same.
                let refused =
                    records::quota_refused(peer.principal, None, LimitName::Sessions.label(), most.into());
                let _ = recorder.record_denial(&refused).await;
                return Err(OpenError::TooMany(most).into());
            }
            Err(OpenError::Descriptors(DescriptorQuotaReached(most))) => {
                let refused =
                    records::quota_refused(peer.principal, None, LimitName::Descriptors.label(), most);
                let _ = recorder.record_denial(&refused).await;
                return Err(OpenError::Descriptors(DescriptorQuotaReached(most)).into());
            }
            opened => opened?,
        };
        if let Opened::New(session) = &opened
            && let Err(unrecorded) = recorder.record(&records::session_opened(session)).await
        {
            sessions.remove(session);
            return Err(unrecorded.into());
        }
        Ok(opened)
    }

    /// Closes a session. Answers when nothing of it is left, and goes on when nobody waits for the answer any more.
    /// `grace`: between TERM and KILL; absent: each terminal's own.
    pub(crate) async fn close_session(
        self: &Arc<Self>,
        sessions: &Arc<Sessions>,
        session: &Arc<Session>,
        reason: CloseReason,
        grace: Option<Duration>,
    ) {
        let (this, sessions, session) = (self.clone(), sessions.clone(), session.clone());
        let closing = async move {
            match session.begin_close().await {
                Closing::AlreadyUnderWay => session.wait_closed().await,
                Closing::Yours => this.close_claimed(&sessions, &session, reason, grace).await,
            }
        };
        run_to_completion(closing, |()| async {}).await;
    }

    async fn close_claimed(
        self: &Arc<Self>,
        sessions: &Sessions,
        session: &Arc<Session>,
        reason: CloseReason,
        grace: Option<Duration>,
    ) {
        failpoint::reach("close.begun");
        self.release_session(session, grace).await;
        failpoint::reach("close.released");
        session.fetch_files().await;
        session.sandboxes.shut_down(grace.unwrap_or(SANDBOX_GRACE).min(SANDBOX_GRACE)).await;
        failpoint::reach("close.shut_down");
        for report in session.keep_caches(&self.launch_context).await {
            self.recorder.record_best_effort(&records::cache_kept(session, &report));
        }
        workspace::finish(session, &self.workspaces).await;
        self.logs.remove(session.id);
        self.launch_context.nets.authorities().remove(&session.id.to_string());
        workspace::forget(session, &self.workspaces);
        sessions.remove(session);
        failpoint::reach("close.forgotten");
        self.counters.sessions_closed.inc(reason);
        self.recorder.record_best_effort(&records::session_closed(session, reason.label()));
        session.mark_closed();
    }

    /// Closes a session when the process that opened it has ended.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub(crate) fn end_session_with_process(
        self: &Arc<Self>,
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        process: &OwnedFd,
    ) -> io::Result<()> {
        let process = async_fd::register(process.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        let this = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                // A pidfd is readable when its process has ended: pidfd_open(2).
                _ = process.readable() => {
                    tracing::info!(session.id = %session.id, "owner's process has ended");
                    this.close_session(&sessions, &session, CloseReason::OwnerExited, None).await;
                }
                () = session.wait_closed() => {}
            }
        });
        Ok(())
    }
}

fn count(counters: &TerminalCounters, opened: &Result<Opened, OpenSessionError>) {
    match opened {
        Ok(Opened::New(_)) => counters.sessions_opened.inc(),
        Ok(Opened::Existing(_)) => {}
        Err(error) => {
            counters.session_refusals.inc(Reason::from(error));
            match error {
                OpenSessionError::Open(OpenError::TooMany(_)) => {
                    counters.limits_reached.inc(LimitName::Sessions)
                }
                OpenSessionError::Open(OpenError::Descriptors(_)) => {
                    counters.limits_reached.inc(LimitName::Descriptors)
                }
                OpenSessionError::JournalShare(_) => counters.limits_reached.inc(LimitName::Journal),
                OpenSessionError::Open(_) | OpenSessionError::Unrecorded(_) => {}
            }
        }
    }
}
