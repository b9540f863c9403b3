//! Asks a sandbox's supervisor for what it has in common with the other sandboxes of its session.

use std::{sync::Arc, time::Duration};

use super::{connection::ControlError, handle::Sandbox};
use crate::{
    proto::supervisor::{GetSessionFiles, from_supervisor::Message, to_supervisor::Request},
    sandbox::spec::{SessionFiles, SharedHostId},
};

/// How long a supervisor may take for them.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);

impl Sandbox {
    /// Whether it shares its session's directories.
    pub fn has_session_files(&self) -> bool {
        self.has_session_files
    }

    /// The session's directories and the commands' id, for the session's next sandbox.
    ///
    /// # Errors
    /// When the supervisor does not answer, or with something else.
    pub async fn session_files(&self) -> Result<SessionFiles, ControlError> {
        let request = self.control().request(Request::GetSessionFiles(GetSessionFiles {}));
        let answer = tokio::time::timeout(FILES_TIMEOUT, request).await;
        let answer = answer.map_err(|_| ControlError::TimedOut)??;
        let Message::SessionFiles(files) = answer.message else {
            return Err(ControlError::UnexpectedMessage);
        };
        let mut descriptors = answer.descriptors.into_iter().map(Arc::new);
        let named: Vec<_> = files.names.into_iter().zip(descriptors.by_ref()).collect();
        let command_id = match (files.command_host_id, descriptors.next()) {
            (0, None) => None,
            (id, Some(lock)) if id != 0 => Some(SharedHostId { id, lock }),
            (0, Some(_)) | (_, _) => return Err(ControlError::UnexpectedMessage),
        };
        Ok(SessionFiles { mounts: named.into_iter().collect(), command_id })
    }
}
