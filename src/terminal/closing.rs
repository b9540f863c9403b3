//! How sessions end: by their caller, with their owner's process, with the gateway.
//!
//! One order for all: nobody comes in any more, the terminals are stopped and released, the sandboxes are shut
//! down, the id is forgotten.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use tokio::io::Interest;

use super::{Terminals, records, uninterrupted::uninterrupted, workspace};
use crate::{
    failpoint,
    session::{Closing, Session, Sessions},
    sys::watched,
    tally::{Word as _, words},
};

/// How long the sandbox of a session may take to stop what is left in it.
const SANDBOX_GRACE: Duration = Duration::from_secs(1);

words! {
    /// Why a session ends.
    pub enum Why {
        /// Its owner asked for it.
        Asked = "asked",
        /// The process that it was to end with has ended.
        OwnerGone = "owner_gone",
        /// Its caller went away before it had its id.
        CallerGone = "caller_gone",
        /// The gateway ends.
        Shutdown = "shutdown",
    }
}

/// Closes a session. Answers when nothing of it is left, and goes on when nobody waits for the answer any more.
/// `grace`: between TERM and KILL; absent: each terminal's own.
pub async fn close(
    terminals: &Arc<Terminals>,
    sessions: &Arc<Sessions>,
    session: &Arc<Session>,
    why: Why,
    grace: Option<Duration>,
) {
    let (terminals, sessions, session) = (terminals.clone(), sessions.clone(), session.clone());
    let closing = async move {
        match session.shut_gate().await {
            Closing::AlreadyUnderWay => session.closed().await,
            Closing::Yours => {
                failpoint::reach("close.begun");
                terminals.release_all(&session, grace).await;
                failpoint::reach("close.released");
                session.sandboxes.shut_down(grace.unwrap_or(SANDBOX_GRACE).min(SANDBOX_GRACE)).await;
                failpoint::reach("close.shut_down");
                workspace::finish(&session, terminals.workspaces()).await;
                terminals.rolls().remove(session.id);
                workspace::forget(&session, terminals.workspaces());
                sessions.remove(&session);
                failpoint::reach("close.forgotten");
                terminals.counters().sessions_closed.one(why);
                terminals.recorder().note(&records::session_closed(&session, why.word()));
                session.mark_closed();
            }
        }
    };
    uninterrupted(closing, |()| async {}).await;
}

/// Closes a session when the process that opened it has ended.
pub fn end_with_process(
    terminals: Arc<Terminals>,
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    process: &OwnedFd,
) -> io::Result<()> {
    let process = watched::watch(process.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    tokio::spawn(async move {
        tokio::select! {
            // A pidfd is readable when its process has ended: pidfd_open(2).
            _ = process.readable() => {
                tracing::info!(session.id = %session.id, "owner's process has ended");
                close(&terminals, &sessions, &session, Why::OwnerGone, None).await;
            }
            () = session.closed() => {}
        }
    });
    Ok(())
}
