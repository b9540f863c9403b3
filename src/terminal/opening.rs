//! How sessions begin: judged, entered in the table, and written down before anybody is told of them.

use std::sync::Arc;

use super::{Recorder, Unrecorded, records};
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

/// Opens a session for the caller. One that the journal does not take is none.
pub async fn open(
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
