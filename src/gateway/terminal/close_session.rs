//! Closing a session: by its caller, with its owner's process, or with the gateway.
//!
//! The order is the same for all: the session accepts nothing new, its terminals are stopped and released, its sandboxes
//! are shut down, what they have written to kept caches is kept, its id is forgotten.

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
    session::{Closing, Session, Sessions},
    sys::async_fd,
    terminal::{
        audit::session_records, context::TerminalContext, counters::CloseReason, release,
        run_to_completion::run_to_completion, state::workspace,
    },
};

/// How long the sandbox of a session may take to stop what is left in it.
const SANDBOX_GRACE: Duration = Duration::from_secs(1);

/// Closes a session. Answers when nothing of it is left, and goes on when nobody waits for the answer any more.
/// `grace`: between TERM and KILL; absent: each terminal's own.
pub async fn close(
    context: &Arc<TerminalContext>,
    sessions: &Arc<Sessions>,
    session: &Arc<Session>,
    reason: CloseReason,
    grace: Option<Duration>,
) {
    let (context, sessions, session) = (context.clone(), sessions.clone(), session.clone());
    let closing = async move {
        match session.begin_close().await {
            Closing::AlreadyUnderWay => session.wait_closed().await,
            Closing::Yours => {
                failpoint::reach("close.begun");
                release::release_all(context.registry(), context.recorder(), &session, grace).await;
                failpoint::reach("close.released");
                session.fetch_files().await;
                session.sandboxes.shut_down(grace.unwrap_or(SANDBOX_GRACE).min(SANDBOX_GRACE)).await;
                failpoint::reach("close.shut_down");
                for report in session.keep_caches(context.launch_context()).await {
                    context.recorder().record_best_effort(&session_records::cache_kept(&session, &report));
                }
                workspace::finish(&session, context.workspaces()).await;
                context.logs().remove(session.id);
                context.launch_context().nets.authorities().remove(&session.id.to_string());
                workspace::forget(&session, context.workspaces());
                sessions.remove(&session);
                failpoint::reach("close.forgotten");
                context.counters().sessions_closed.inc(reason);
                context
                    .recorder()
                    .record_best_effort(&session_records::session_closed(&session, reason.label()));
                session.mark_closed();
            }
        }
    };
    run_to_completion(closing, |()| async {}).await;
}

/// Closes a session when the process that opened it has ended.
pub fn end_with_process(
    context: Arc<TerminalContext>,
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    process: &OwnedFd,
) -> io::Result<()> {
    let process = async_fd::register(process.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    tokio::spawn(async move {
        tokio::select! {
            // A pidfd is readable when its process has ended: pidfd_open(2).
            _ = process.readable() => {
                tracing::info!(session.id = %session.id, "owner's process has ended");
                close(&context, &sessions, &session, CloseReason::OwnerExited, None).await;
            }
            () = session.wait_closed() => {}
        }
    });
    Ok(())
}
