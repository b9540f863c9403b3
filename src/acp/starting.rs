//! From a request for a terminal to its command at the gateway: the session opened, a person asked where a rule asks, the
//! same request sent again where no answer came.
//!
//! Whoever asked may go away at any time: what nobody takes releases itself.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{CreateTerminalRequest, Error};
use tokio::sync::oneshot;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use ulid::Ulid;

use super::{
    asking,
    create::{self, Form},
    refusal,
    sessions::Session,
    terminal::Terminal,
    terminals::{TERMINALS_MAX, Terminals, release},
};
use crate::proto::v1;

impl Terminals {
    /// Starts a command in a task of its own: a caller that goes away leaves nothing running.
    pub(super) async fn create(&self, request: CreateTerminalRequest) -> Result<Arc<Terminal>, Error> {
        let session = self.0.sessions.find(&request.session_id.0).ok_or_else(refusal::unknown_session)?;
        if self.lock().len() >= TERMINALS_MAX {
            return Err(refusal::too_many("terminals", TERMINALS_MAX));
        }
        let (mut answer, answered) = oneshot::channel();
        let all = self.clone();
        tokio::spawn(async move {
            let created = all.start(session, &request, &mut answer).await;
            // Nobody waits any more: what is not taken releases itself.
            drop(
                answer.send(created.map(|terminal| Unclaimed { all: all.clone(), terminal: Some(terminal) })),
            );
        });
        answered
            .await
            .map_err(|_| refusal::internal("The command could not be started."))?
            .map(Unclaimed::claim)
    }

    async fn start<T>(
        &self,
        session: Arc<Session>,
        request: &CreateTerminalRequest,
        wanted: &mut oneshot::Sender<T>,
    ) -> Result<Arc<Terminal>, Error> {
        let form = create::form_of(request);
        // Form comes first: what is wrong with it is wrong whatever the gateway says.
        create::to_gateway(request, "", form)?;
        let at_gateway = self.0.sessions.open(&session).await?;
        let mut started = self.start_at(&session, request, (&at_gateway, form), wanted).await;
        if started.as_ref().is_err_and(|status| status.code() == Code::NotFound) && !session.is_closed() {
            let at_gateway = self.0.sessions.open_anew(&session, &at_gateway).await?;
            started = self.start_at(&session, request, (&at_gateway, form), wanted).await;
        }
        let started = started.map_err(|status| refusal::of_create(&status, &request.command))?;
        let terminal = Arc::new(Terminal::new(self.0.link.clone(), session, started));
        self.lock().insert(terminal.id.clone(), terminal.clone());
        if terminal.session.is_closed() {
            // Its session was closed meanwhile, and with it the command, but for a subagent's.
            self.lock().remove(&terminal.id);
            if terminal.session.is_subagents() {
                tokio::spawn(release(terminal));
            }
            return Err(refusal::unknown_session());
        }
        Ok(terminal)
    }

    /// Starts a command in a session of the gateway's. A word that is no program may be something that the shell knows.
    async fn start_at<T>(
        &self,
        session: &Session,
        request: &CreateTerminalRequest,
        (at_gateway, form): (&str, Form),
        wanted: &mut oneshot::Sender<T>,
    ) -> Result<v1::Terminal, Status> {
        let started = self.start_permitted(session, request, (at_gateway, form), wanted).await;
        if form == Form::Word
            && create::may_be_builtin(&request.command)
            && started.as_ref().is_err_and(is_not_found)
        {
            return self.start_permitted(session, request, (at_gateway, Form::Line), wanted).await;
        }
        started
    }

    /// Starts a command, after a person was asked where a rule asks. Its request has an id, so that it can be sent again
    /// to a gateway that has not answered it, and is one command all the same.
    async fn start_permitted<T>(
        &self,
        session: &Session,
        request: &CreateTerminalRequest,
        (at_gateway, form): (&str, Form),
        wanted: &mut oneshot::Sender<T>,
    ) -> Result<v1::Terminal, Status> {
        let mut to_gateway = create::to_gateway(request, at_gateway, form)
            .map_err(|error| Status::invalid_argument(error.message))?;
        if let Some(start) = session.start().filter(|_| to_gateway.cwd.is_empty()) {
            to_gateway.cwd = start.to_string_lossy().into_owned();
        }
        let request_id = Ulid::generate().to_string();
        let Some(ask) = &self.0.ask else {
            let refusing =
                v1::CreateTerminalRequest { on_ask: v1::OnAsk::Refuse.into(), request_id, ..to_gateway };
            let created = self.0.link.call(|client| {
                let request = refusing.clone();
                async move { client.terminals.clone().create(request).await }
            });
            return created.await.map(tonic::Response::into_inner);
        };
        let waiting = v1::CreateTerminalRequest { on_ask: v1::OnAsk::Wait.into(), request_id, ..to_gateway };
        let questions = (&request.session_id, &*session.questions);
        let mut tries = self.0.link.tries();
        loop {
            let client = self.0.link.client();
            match asking::create(client, ask, questions, waiting.clone(), wanted.closed()).await {
                Ok(created) => {
                    tries.answered();
                    return Ok(created);
                }
                Err(status) => tries.failed(status).await?,
            }
        }
    }
}

/// A terminal that was started and not yet given to whoever asked for it.
#[derive(Debug)]
struct Unclaimed {
    all: Terminals,
    terminal: Option<Arc<Terminal>>,
}

impl Unclaimed {
    fn claim(mut self) -> Arc<Terminal> {
        self.terminal.take().expect("nothing takes the terminal out but this, which consumes")
    }
}

impl Drop for Unclaimed {
    /// The request was cancelled: nothing of it stays.
    fn drop(&mut self) {
        let Some(terminal) = self.terminal.take() else { return };
        self.all.lock().remove(&terminal.id);
        tokio::spawn(async move {
            if let Err(error) = terminal.release().await {
                tracing::warn!(terminal = terminal.id, error = %error, "cannot release what was cancelled");
            }
        });
    }
}

fn is_not_found(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition
        && status.get_details_error_info().is_some_and(|info| info.reason == "COMMAND_NOT_FOUND")
}
