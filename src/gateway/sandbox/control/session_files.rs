//! Asks a sandbox's supervisor for what it has in common with the other sandboxes of its session.

use std::{os::fd::OwnedFd, sync::Arc};

use super::handle::Sandbox;
use crate::{
    link::{LinkError, Peer},
    proto::supervisor::{
        GetSessionFiles, GetSessionNetwork, SessionNetwork, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::spec::{SessionFiles, SharedHostId},
};

impl Sandbox {
    /// Whether its supervisor has its session's network for this gateway.
    pub(crate) fn has_session_network(&self) -> bool {
        self.has_session_network
    }

    /// The network namespace that it shares, and the user namespace to which that belongs if it is not this gateway's.
    ///
    /// # Errors
    /// When the supervisor does not answer, or with something else.
    pub(crate) async fn session_network(&self) -> Result<Vec<OwnedFd>, LinkError> {
        let request = Request::GetSessionNetwork(GetSessionNetwork {});
        let answer = self.control().request_in_time(request, &[]).await?;
        match (answer.message, answer.descriptors.len()) {
            (Message::SessionNetwork(SessionNetwork {}), 1 | 2) => Ok(answer.descriptors),
            _ => Err(LinkError::UnexpectedMessage(Peer::Supervisor)),
        }
    }

    /// Whether it shares its session's directories.
    pub(crate) fn has_session_files(&self) -> bool {
        self.has_session_files
    }

    /// The session's directories and the commands' id, for the session's next sandbox.
    ///
    /// # Errors
    /// When the supervisor does not answer, or with something else.
    pub(crate) async fn session_files(&self) -> Result<SessionFiles, LinkError> {
        let answer =
            self.control().request_in_time(Request::GetSessionFiles(GetSessionFiles {}), &[]).await?;
        let Message::SessionFiles(files) = answer.message else {
            return Err(LinkError::UnexpectedMessage(Peer::Supervisor));
        };
        let mut descriptors = answer.descriptors.into_iter().map(Arc::new);
        let named: Vec<_> = files.names.into_iter().zip(descriptors.by_ref()).collect();
        let command_id = match (files.command_host_id, descriptors.next()) {
            (0, None) => None,
            (id, Some(lock)) if id != 0 => Some(SharedHostId { id, lock }),
            (0, Some(_)) | (_, _) => return Err(LinkError::UnexpectedMessage(Peer::Supervisor)),
        };
        Ok(SessionFiles { mounts: named.into_iter().collect(), command_id })
    }
}
