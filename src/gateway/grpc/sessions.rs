//! The sessions service.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    caller, deadline,
    errors::{self, ResourceKind},
    pagination, request, response,
};
use crate::{
    proto::v1::{
        CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
        GetSessionRequest, GetSessionResponse, ListSessionsRequest, ListSessionsResponse,
        ReportBypassRequest, ReportBypassResponse, Session as SessionWord, SetPrimaryTerminalRequest,
        SetPrimaryTerminalResponse, sessions_server::Sessions as Service,
    },
    session::{OpenError, Peer, Session, SessionId, Sessions},
    terminal::{CloseReason, Terminals, records},
};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct SessionsService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals.
    pub terminals: Arc<Terminals>,
}

impl SessionsService {
    fn find(&self, peer: &Peer, id: &str) -> Result<Arc<Session>, Status> {
        self.sessions.find(peer.principal, id).ok_or_else(|| errors::not_found(ResourceKind::Session))
    }

    fn to_response(&self, session: &Session) -> SessionWord {
        response::session(
            session,
            self.terminals.quotas().session_usage(session.id),
            self.terminals.registry().primary(session.id),
        )
    }
}

#[tonic::async_trait]
impl Service for SessionsService {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let peer = caller(&request)?;
        if self.terminals.is_draining() {
            return Err(errors::session_error(&OpenError::Draining));
        }
        let limit = deadline::timeout_of(request.metadata());
        let new = request::new_session(request.into_inner()).map_err(errors::bad_field)?;
        let opened = deadline::within(limit, self.terminals.open_session(&self.sessions, &peer, new)).await?;
        let session = opened.map_err(|error| errors::open_session(&error))?;
        Ok(Response::new(CreateSessionResponse { session: Some(self.to_response(&session)) }))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        Ok(Response::new(GetSessionResponse { session: Some(self.to_response(&session)) }))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let peer = caller(&request)?;
        let ListSessionsRequest { page_size, page_token } = request.get_ref();
        let page =
            pagination::parse_page(*page_size, page_token, SessionId::parse).map_err(errors::bad_field)?;
        let mut sessions = self.sessions.list(peer.principal);
        sessions.retain(|session| page.after.is_none_or(|after| session.id > after));
        let (sessions, next_page_token) =
            page.fill(sessions, |session| self.to_response(session), |session| session.id.to_string());
        Ok(Response::new(ListSessionsResponse { sessions, next_page_token }))
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        let limit = deadline::timeout_of(request.metadata());
        let closed = self.terminals.close_session(&self.sessions, &session, CloseReason::Requested, None);
        deadline::within(limit, closed).await?;
        Ok(Response::new(CloseSessionResponse {}))
    }

    async fn set_primary_terminal(
        &self,
        request: Request<SetPrimaryTerminalRequest>,
    ) -> Result<Response<SetPrimaryTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let SetPrimaryTerminalRequest { session_id, terminal_id } = request.get_ref();
        let session = self.find(&peer, session_id)?;
        let terminal = self.terminals.registry().find(peer.principal, terminal_id, &session.id.to_string());
        let terminal = terminal.ok_or_else(|| errors::not_found(ResourceKind::Terminal))?;
        self.terminals.registry().set_primary(&terminal).map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(SetPrimaryTerminalResponse {}))
    }

    async fn report_bypass(
        &self,
        request: Request<ReportBypassRequest>,
    ) -> Result<Response<ReportBypassResponse>, Status> {
        let peer = caller(&request)?;
        let session = self.find(&peer, &request.get_ref().session_id)?;
        let report = request::bypass(request.get_ref().bypass).map_err(errors::bad_field)?;
        if !self.terminals.recorder().may_report(peer.principal) {
            return Err(errors::reports_too_often());
        }
        let limit = deadline::timeout_of(request.metadata());
        let record = records::bypass_reported(&session, report);
        let recorded = deadline::within(limit, self.terminals.recorder().record(&record)).await?;
        recorded.map_err(|error| errors::unrecorded(&error))?;
        Ok(Response::new(ReportBypassResponse {}))
    }
}
