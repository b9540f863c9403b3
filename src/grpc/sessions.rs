//! The sessions service.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    caller,
    errors::{self, Missing},
    fields, render,
};
use crate::{
    proto::v1::{
        CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, GetSessionRequest,
        ListSessionsRequest, ListSessionsResponse, ReportRequest, ReportResponse, Session as SessionWord,
        sessions_server::Sessions as Service,
    },
    session::{Lifetime, OpenError, Opened, Peer, Session, Sessions},
    terminal::{
        Terminals,
        closing::{self, Why},
        opening, records,
    },
};

/// The service.
#[derive(Debug, Clone)]
pub struct SessionsService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals.
    pub terminals: Arc<Terminals>,
}

impl SessionsService {
    fn find(&self, peer: &Peer, id: &str) -> Result<Arc<Session>, Status> {
        self.sessions.find(peer.principal, id).ok_or_else(|| errors::not_found(Missing::Session))
    }

    fn render(&self, session: &Session) -> SessionWord {
        render::session(session, self.terminals.counts(session.id))
    }

    /// A session that is to end with its owner's process is watched from its first moment on.
    fn watch_owner(&self, peer: &Peer, session: &Arc<Session>) -> Result<(), Status> {
        let (Lifetime::OwnerProcess, Some(process)) = (session.lifetime, &peer.process) else {
            return Ok(());
        };
        let watched = closing::end_with_process(
            self.terminals.clone(),
            self.sessions.clone(),
            session.clone(),
            process,
        );
        watched.map_err(|error| {
            tracing::error!(session.id = %session.id, error = %error, "cannot watch the owner's process");
            self.sessions.remove(session);
            errors::open(&OpenError::NoOwnerProcess)
        })
    }
}

#[tonic::async_trait]
impl Service for SessionsService {
    async fn create(&self, request: Request<CreateSessionRequest>) -> Result<Response<SessionWord>, Status> {
        let peer = caller(&request)?;
        if self.terminals.is_draining() {
            return Err(errors::open(&OpenError::Draining));
        }
        let new = fields::new_session(request.into_inner()).map_err(errors::bad_field)?;
        let policy = self.terminals.policy().current();
        let opened = opening::open(&self.sessions, &self.terminals, &policy, &peer, new).await;
        let session = match opened.map_err(|error| errors::opening(&error))? {
            Opened::New(session) => {
                self.watch_owner(&peer, &session)?;
                session
            }
            Opened::Before(session) => session,
        };
        Ok(Response::new(self.render(&session)))
    }

    async fn get(&self, request: Request<GetSessionRequest>) -> Result<Response<SessionWord>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        Ok(Response::new(self.render(&session)))
    }

    async fn list(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let peer = caller(&request)?;
        let sessions = self.sessions.list(peer.principal);
        let sessions = sessions.iter().map(|session| self.render(session)).collect();
        Ok(Response::new(ListSessionsResponse { sessions }))
    }

    async fn close(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        closing::close(&self.terminals, &self.sessions, &session, Why::Asked, None).await;
        Ok(Response::new(CloseSessionResponse {}))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        let sighting = fields::sighting(request.get_ref().sighting).map_err(errors::bad_field)?;
        let recorded = self.terminals.recorder().record(&records::reported(&session, sighting)).await;
        recorded.map_err(|error| errors::unrecorded(&error))?;
        Ok(Response::new(ReportResponse {}))
    }
}
