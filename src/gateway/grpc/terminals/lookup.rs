//! Finds the terminals and sessions that a request names: the caller's own, and no others.

use std::sync::Arc;

use tonic::Status;

use super::TerminalsService;
use crate::{
    grpc::{
        errors::{self, ResourceKind},
        request,
    },
    proto::v1::CreateTerminalRequest,
    session::{Peer, Session},
    terminal::Terminal,
};

impl TerminalsService {
    /// The terminal of this id, of this session when one is named.
    pub(super) fn find(&self, peer: &Peer, id: &str, session: &str) -> Result<Arc<Terminal>, Status> {
        self.terminals
            .find(peer.principal, id, session)
            .ok_or_else(|| errors::not_found(ResourceKind::Terminal))
    }

    /// The session of this id.
    pub(super) fn find_session(&self, peer: &Peer, id: &str) -> Result<Arc<Session>, Status> {
        self.sessions.find(peer.principal, id).ok_or_else(|| errors::not_found(ResourceKind::Session))
    }

    /// The session in which a command is to run, by its id or its name. `prefix` leads to the request in its message.
    pub(super) fn session_of(
        &self,
        peer: &Peer,
        prefix: &str,
        request: &CreateTerminalRequest,
    ) -> Result<Arc<Session>, Status> {
        match (request.session_id.as_str(), request.session_name.as_str()) {
            (id, "") => self.find_session(peer, id),
            ("", name) => self
                .sessions
                .find_named(peer.principal, name)
                .ok_or_else(|| errors::not_found(ResourceKind::Session)),
            (_, _) => Err(errors::bad_field(request::session_named_twice(prefix))),
        }
    }
}
