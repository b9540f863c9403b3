//! Asks a sandbox's supervisor for what it has in common with the other sandboxes of its session.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use super::{connection::ControlError, handle::Sandbox};
use crate::{
    proto::supervisor::{
        GetSessionFiles, GetSessionNetwork, SessionNetwork, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::spec::{SessionFiles, SharedHostId},
};

/// How long a supervisor may take for them.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);

impl Sandbox {
    /// Whether its supervisor has its session's network for this gateway.
    pub fn has_session_network(&self) -> bool {
        self.has_session_network
    }

    /// The network namespace that it shares, and the user namespace to which that belongs if it is not this gateway's.
    ///
    /// # Errors
    /// When the supervisor does not answer, or with something else.
    pub async fn session_network(&self) -> Result<Vec<OwnedFd>, ControlError> {
        let request = self.control().request(Request::GetSessionNetwork(GetSessionNetwork {}));
        let answer = tokio::time::timeout(FILES_TIMEOUT, request).await;
        let answer = answer.map_err(|_| ControlError::TimedOut)??;
        match (answer.message, answer.descriptors.len()) {
            (Message::SessionNetwork(SessionNetwork {}), 1 | 2) => Ok(answer.descriptors),
            _ => Err(ControlError::UnexpectedMessage),
        }
    }

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
