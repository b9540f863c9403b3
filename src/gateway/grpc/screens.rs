//! The screens service.

use std::{pin::Pin, sync::Arc};

use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{
    caller, deadline,
    errors::{self, ResourceKind},
    primary_screen, screen_input, screen_response, screen_stream,
};
use crate::{
    display::size::ScreenSize,
    proto::v1::{
        ScrollbackRange, SendInputRequest, SendInputResponse, SnapshotScreenRequest, SnapshotScreenResponse,
        WatchScreenRequest, WatchScreenResponse, screens_server::Screens as Service,
    },
    session::{Peer, Session, Sessions},
    terminal::{EndOfInput, Terminal, Terminals},
    wire::screen::MAX_SCROLLBACK_ROWS,
};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct ScreensService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals.
    pub terminals: Arc<Terminals>,
}

impl ScreensService {
    fn find(&self, peer: &Peer, id: &str, session: &str) -> Result<Arc<Terminal>, Status> {
        let found = self.terminals.registry().find(peer.principal, id, session);
        found.ok_or_else(|| errors::not_found(ResourceKind::Terminal))
    }

    /// The session whose primary terminal a request is about. `None`: it names a terminal.
    fn session_of(&self, peer: &Peer, id: &str, session: &str) -> Result<Option<Arc<Session>>, Status> {
        if !id.is_empty() || session.is_empty() {
            return Ok(None);
        }
        let found = self.sessions.find(peer.principal, session);
        found.map(Some).ok_or_else(|| errors::not_found(ResourceKind::Session))
    }

    /// The primary terminal of a session, if it has one.
    fn primary(&self, session: &Session) -> Option<Arc<Terminal>> {
        let id = self.terminals.registry().primary(session.id)?;
        self.terminals.registry().find(session.principal, &id.to_string(), &session.id.to_string())
    }

    /// The terminal that a request names, or its session's primary one.
    fn find_or_primary(&self, peer: &Peer, id: &str, session: &str) -> Result<Option<Arc<Terminal>>, Status> {
        match self.session_of(peer, id, session)? {
            Some(session) => Ok(self.primary(&session)),
            None => self.find(peer, id, session).map(Some),
        }
    }

    async fn snapshot(
        &self,
        peer: &Peer,
        request: SnapshotScreenRequest,
    ) -> Result<SnapshotScreenResponse, Status> {
        let found = self.find_or_primary(peer, &request.terminal_id, &request.session_id)?;
        let Some(terminal) = found else {
            let screen = Some(screen_response::empty());
            return Ok(SnapshotScreenResponse { screen, ..SnapshotScreenResponse::default() });
        };
        let failed = |error: crate::terminal::ScreenAccessError| errors::screen(&error);
        let (link, picture) = self.terminals.screens().snapshot(&terminal).await.map_err(failed)?;
        let id = terminal.id.to_string();
        let styles = screen_response::Styles::of(request.with_styles);
        let scrollback = match request.scrollback {
            None => Vec::new(),
            Some(ScrollbackRange { above, rows }) => {
                let above = if above == 0 { u32::MAX } else { above };
                let rows = if rows == 0 { MAX_SCROLLBACK_ROWS } else { rows.min(MAX_SCROLLBACK_ROWS) };
                let page = link.scrollback(&id, above, rows).await.map_err(|error| failed(error.into()))?;
                let rows = page.rows.iter().zip(0..);
                rows.map(|(row, index)| screen_response::row(index, row, styles)).collect()
            }
        };
        let screen = Some(screen_response::screen(&picture, styles));
        Ok(SnapshotScreenResponse { screen, scrollback, terminal_id: id })
    }

    async fn send(&self, peer: &Peer, request: SendInputRequest) -> Result<SendInputResponse, Status> {
        let found = self.find_or_primary(peer, &request.terminal_id, &request.session_id)?;
        let terminal = found.ok_or_else(|| errors::not_found(ResourceKind::Terminal))?;
        let inputs = screen_input::inputs(request.inputs).map_err(errors::bad_field)?;
        terminal.wait_settled().await;
        if terminal.pty_size().is_none() {
            return Err(errors::screen(&crate::terminal::ScreenAccessError::NoPty));
        }
        let (modes, size) = if inputs.iter().all(screen_input::is_independent_of_modes) {
            (Default::default(), any_size())
        } else {
            let snapshot = self.terminals.screens().snapshot(&terminal).await;
            let (_, picture) = snapshot.map_err(|error| errors::screen(&error))?;
            (picture.modes, picture.size)
        };
        let mut bytes = Vec::new();
        for (input, index) in inputs.iter().zip(0..) {
            let encoded = input.encode(modes, size);
            bytes.extend(encoded.map_err(|error| errors::input(format!("inputs[{index}]"), &error))?);
        }
        let written = terminal.write(None, bytes.into(), EndOfInput::NotYet).await;
        let written_bytes = written.map_err(|error| errors::input_write(&error))?;
        Ok(SendInputResponse { written_bytes })
    }
}

#[tonic::async_trait]
impl Service for ScreensService {
    type WatchScreenStream = Pin<Box<dyn Stream<Item = Result<WatchScreenResponse, Status>> + Send>>;

    async fn snapshot_screen(
        &self,
        request: Request<SnapshotScreenRequest>,
    ) -> Result<Response<SnapshotScreenResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let shown = self.snapshot(&peer, request.into_inner());
        Ok(Response::new(deadline::within(limit, shown).await??))
    }

    async fn watch_screen(
        &self,
        request: Request<WatchScreenRequest>,
    ) -> Result<Response<Self::WatchScreenStream>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        let interval = screen_input::interval(request.max_per_second).map_err(errors::bad_field)?;
        let styles = screen_response::Styles::of(request.with_styles);
        if let Some(session) = self.session_of(&peer, &request.terminal_id, &request.session_id)? {
            let stream = primary_screen::watch(self.terminals.clone(), session, interval, styles);
            return Ok(Response::new(Box::pin(stream)));
        }
        let terminal = self.find(&peer, &request.terminal_id, &request.session_id)?;
        // A caller of a terminal that has none is told at once.
        self.terminals.screens().link(&terminal).await.map_err(|error| errors::screen(&error))?;
        let stream = screen_stream::watch(self.terminals.clone(), &terminal, interval, styles);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn send_input(
        &self,
        request: Request<SendInputRequest>,
    ) -> Result<Response<SendInputResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let sent = self.send(&peer, request.into_inner());
        Ok(Response::new(deadline::within(limit, sent).await??))
    }
}

/// For input that no size matters to.
fn any_size() -> ScreenSize {
    ScreenSize::new(80, 24).expect("80 columns and 24 rows are within the bounds")
}
