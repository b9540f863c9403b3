//! Opens a session: it is judged, added to the table, and recorded before its caller gets the id.

use std::{io, sync::Arc};

use crate::{
    reason::Reason,
    session::{DescriptorQuotaReached, Lifetime, NewSession, OpenError, Opened, Peer, Session, Sessions},
    terminal::{
        audit::session_records,
        close_session,
        context::TerminalContext,
        counters::{CloseReason, TerminalCounters},
        errors::OpenSessionError,
        refusal::LimitName,
        run_to_completion::run_to_completion,
    },
};

/// Opens a session for the caller, and counts it. One that the journal does not take is none. Once begun, it is done
/// even when the caller goes away: it is then open for who sends the same request again, or closed.
pub async fn open(
    sessions: &Arc<Sessions>,
    context: &Arc<TerminalContext>,
    peer: &Peer,
    new: NewSession,
) -> Result<Arc<Session>, OpenSessionError> {
    let can_come_again = new.request_id.is_some();
    let (undo_in, undo) = (sessions.clone(), context.clone());
    let (sessions, context, peer) = (sessions.clone(), context.clone(), peer.clone());
    let work = async move {
        let opened = open_watched(&sessions, &context, &peer, new).await;
        count(context.counters(), &opened);
        opened
    };
    let opened = run_to_completion(work, move |opened| async move {
        if let Ok(Opened::New(session)) = opened
            && !can_come_again
        {
            close_session::close(&undo, &undo_in, &session, CloseReason::CallerDisconnected, None).await;
        }
    });
    match opened.await? {
        Opened::New(session) | Opened::Existing(session) => Ok(session),
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

/// A session that is to end with its owner's process is watched before anybody has it.
async fn open_watched(
    sessions: &Arc<Sessions>,
    context: &Arc<TerminalContext>,
    peer: &Peer,
    new: NewSession,
) -> Result<Opened, OpenSessionError> {
    let is_owner_named = new.owner_process.is_some();
    let opened = open_recorded(sessions, context, peer, new).await?;
    if let Opened::New(session) = &opened
        && session.lifetime == Lifetime::OwnerProcess
    {
        let (context_too, sessions_too) = (context.clone(), sessions.clone());
        let owner = match (is_owner_named, &peer.process) {
            (false, Some(process)) => process.try_clone(),
            (true, _) | (false, None) => {
                session.reopen_owner().and_then(|owner| owner.ok_or_else(|| io::ErrorKind::NotFound.into()))
            }
        };
        let watched = owner.and_then(|owner| {
            close_session::end_with_process(context_too, sessions_too, session.clone(), &owner)
        });
        if let Err(error) = watched {
            tracing::error!(session.id = %session.id, error = %error, "cannot watch the owner's process");
            close_session::close(context, sessions, session, CloseReason::OwnerExited, None).await;
            return Err(OpenError::NoOwnerProcess.into());
        }
    }
    Ok(opened)
}

async fn open_recorded(
    sessions: &Arc<Sessions>,
    context: &TerminalContext,
    peer: &Peer,
    new: NewSession,
) -> Result<Opened, OpenSessionError> {
    let (policy, recorder) = (context.policy().current(), context.recorder());
    if let Err(reached) = recorder.check_share(peer.principal, 1) {
        // What cannot be written is refused all the same.
        let _ =
            recorder.record_refusal(&session_records::journal_share_reached(peer.principal, &reached)).await;
        return Err(reached.into());
    }
    // Of requests with one id, the next one finds a session that is recorded, or none.
    let _creation_lock = match new.request_id.as_ref().or(new.name.as_ref()) {
        Some(_) => Some(sessions.creation_lock(peer.principal).await),
        None => None,
    };
    let opened = match sessions.open(&policy, peer, new).await {
        Err(OpenError::TooMany(most)) => {
            // What cannot be written is refused all the same.
            let refused =
                session_records::session_refused(peer.principal, "sessions_per_principal", most.into());
            let _ = recorder.record_refusal(&refused).await;
            return Err(OpenError::TooMany(most).into());
        }
        Err(OpenError::Descriptors(DescriptorQuotaReached(most))) => {
            let refused = session_records::session_refused(peer.principal, "descriptors_per_principal", most);
            let _ = recorder.record_refusal(&refused).await;
            return Err(OpenError::Descriptors(DescriptorQuotaReached(most)).into());
        }
        opened => opened?,
    };
    if let Opened::New(session) = &opened
        && let Err(unrecorded) = recorder.record(&session_records::session_opened(session)).await
    {
        sessions.remove(session);
        return Err(unrecorded.into());
    }
    Ok(opened)
}
