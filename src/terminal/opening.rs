//! How sessions begin: judged, entered in the table, and written down before anybody is told of them.

use std::sync::Arc;

use super::{Limit, NotOpened, Recorder, Terminals, Unrecorded, records};
use crate::{
    policy::PolicySet,
    session::{NewSession, OpenError, Opened, Peer, Sessions},
};

/// Why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// It may not be, or cannot be.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal did not take the record of it.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
}

/// Opens a session for the caller, and counts it. One that the journal does not take is none.
pub async fn open(
    sessions: &Arc<Sessions>,
    terminals: &Terminals,
    policy: &PolicySet,
    peer: &Peer,
    new: NewSession,
) -> Result<Opened, OpeningError> {
    let opened = open_recorded(sessions, terminals.recorder(), policy, peer, new).await;
    let counters = terminals.counters();
    match &opened {
        Ok(Opened::New(_)) => counters.sessions_opened.one(),
        Ok(Opened::Before(_)) => {}
        Err(error) => {
            counters.sessions_not_opened.one(NotOpened::from(error));
            if let OpeningError::Open(OpenError::TooMany(_)) = error {
                counters.limits.one(Limit::Sessions);
            }
        }
    }
    opened
}

async fn open_recorded(
    sessions: &Arc<Sessions>,
    recorder: &Recorder,
    policy: &PolicySet,
    peer: &Peer,
    new: NewSession,
) -> Result<Opened, OpeningError> {
    let opened = sessions.open(policy, peer, new)?;
    if let Opened::New(session) = &opened
        && let Err(unrecorded) = recorder.record(&records::session_opened(session)).await
    {
        sessions.remove(session);
        return Err(unrecorded.into());
    }
    Ok(opened)
}
