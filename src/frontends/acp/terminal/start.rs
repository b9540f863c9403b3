//! From a request for a terminal to its command at the gateway: the session opened, a person asked where a rule asks, the
//! same request sent again where no answer came.
//!
//! The caller may go away at any time: a terminal that nobody takes releases itself.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{CreateTerminalRequest, Error};
use tokio::sync::oneshot;
use tonic::{Code, Status};
use ulid::Ulid;

use super::{
    create::{self, CommandForm},
    kept_shells::LineStart,
    terminal::AcpTerminal,
    terminals::{AcpTerminals, TERMINALS_MAX, release},
};
use crate::{
    acp::{approval, errors, sessions::AcpSession},
    client::reason_of,
    proto::v1,
};

impl AcpTerminals {
    /// Starts a command in a task of its own: a caller that goes away leaves nothing running.
    pub(in crate::acp) async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<Arc<AcpTerminal>, Error> {
        let session = self.0.sessions.find(&request.session_id.0).ok_or_else(errors::unknown_session)?;
        if self.lock().len() >= TERMINALS_MAX {
            return Err(errors::too_many("terminals", TERMINALS_MAX));
        }
        let (mut answer, answered) = oneshot::channel();
        let all = self.clone();
        tokio::spawn(async move {
            let created = all.start(session, &request, &mut answer).await;
            // Nobody waits any more: what is not taken releases itself.
            drop(answer.send(
                created.map(|terminal| Unclaimed { terminals: all.clone(), terminal: Some(terminal) }),
            ));
        });
        answered
            .await
            .map_err(|_| errors::internal("The command could not be started."))?
            .map(Unclaimed::claim)
    }

    async fn start<T>(
        &self,
        session: Arc<AcpSession>,
        request: &CreateTerminalRequest,
        caller: &mut oneshot::Sender<T>,
    ) -> Result<Arc<AcpTerminal>, Error> {
        let form = create::form_of(request);
        // Form comes first: what is wrong with it is wrong whatever the gateway says.
        create::to_gateway(request, "", form)?;
        let at_gateway = self.0.sessions.open(&session).await?;
        let mut started = self.start_once(&session, request, (&at_gateway, form), caller).await;
        if started.as_ref().is_err_and(|status| status.code() == Code::NotFound) && !session.is_closed() {
            let at_gateway = self.0.sessions.reopen(&session, &at_gateway).await?;
            started = self.start_once(&session, request, (&at_gateway, form), caller).await;
        }
        let terminal = started.map_err(|status| errors::from_create_status(&status, &request.command))?;
        self.lock().insert(terminal.id.clone(), terminal.clone());
        if terminal.session.is_closed() {
            // Its session was closed meanwhile, and with it the command, but for a subagent's.
            self.lock().remove(&terminal.id);
            if terminal.session.is_subagent() {
                tokio::spawn(release(terminal));
            }
            return Err(errors::unknown_session());
        }
        Ok(terminal)
    }

    /// Starts a command in its session's kept shell, or in a terminal of its own.
    async fn start_once<T>(
        &self,
        session: &Arc<AcpSession>,
        request: &CreateTerminalRequest,
        (at_gateway, form): (&str, CommandForm),
        caller: &mut oneshot::Sender<T>,
    ) -> Result<Arc<AcpTerminal>, Status> {
        if let Some(shells) = &self.0.shells
            && let LineStart::Line(line) =
                self.start_in_shell(shells, session, request, at_gateway, caller).await?
        {
            return Ok(line);
        }
        let started = self.start_at(session, request, (at_gateway, form), caller).await?;
        Ok(Arc::new(AcpTerminal::new(self.0.client.clone(), session.clone(), started)))
    }

    /// Starts a command in a session of the gateway's. A word that is no program may be something that the shell knows.
    async fn start_at<T>(
        &self,
        session: &AcpSession,
        request: &CreateTerminalRequest,
        (at_gateway, form): (&str, CommandForm),
        caller: &mut oneshot::Sender<T>,
    ) -> Result<v1::Terminal, Status> {
        let started = self.start_with_approval(session, request, (at_gateway, form), caller).await;
        if form == CommandForm::Word
            && create::may_be_builtin(&request.command)
            && started.as_ref().is_err_and(is_command_not_found)
        {
            return self
                .start_with_approval(session, request, (at_gateway, CommandForm::ShellLine), caller)
                .await;
        }
        started
    }

    /// Starts a command, after a person was asked where a rule asks. Its request has an id, so that it can be sent again
    /// to a gateway that has not answered it, and is one command all the same.
    async fn start_with_approval<T>(
        &self,
        session: &AcpSession,
        request: &CreateTerminalRequest,
        (at_gateway, form): (&str, CommandForm),
        caller: &mut oneshot::Sender<T>,
    ) -> Result<v1::Terminal, Status> {
        let mut to_gateway = create::to_gateway(request, at_gateway, form)
            .map_err(|error| Status::invalid_argument(error.message))?;
        if let Some(start) = session.start_dir().filter(|_| to_gateway.cwd.is_empty()) {
            to_gateway.cwd = start.to_string_lossy().into_owned();
        }
        let request_id = Ulid::generate().to_string();
        let Some(ask) = &self.0.prompt else {
            let refusing =
                v1::CreateTerminalRequest { on_ask: v1::OnAsk::Refuse.into(), request_id, ..to_gateway };
            return self.0.client.create_terminal(refusing).await;
        };
        let waiting = v1::CreateTerminalRequest { on_ask: v1::OnAsk::Wait.into(), request_id, ..to_gateway };
        let questions = (&request.session_id, &*session.questions);
        let mut attempts = self.0.client.attempts();
        loop {
            let client = self.0.client.client();
            match approval::create_with_approval(client, ask, questions, waiting.clone(), caller.closed())
                .await
            {
                Ok(created) => {
                    attempts.succeeded();
                    return Ok(created);
                }
                Err(status) => attempts.failed(status).await?,
            }
        }
    }
}

/// A terminal that was started and not yet given to the caller.
#[derive(Debug)]
struct Unclaimed {
    terminals: AcpTerminals,
    terminal: Option<Arc<AcpTerminal>>,
}

impl Unclaimed {
    fn claim(mut self) -> Arc<AcpTerminal> {
        self.terminal.take().expect("nothing takes the terminal out but this, which consumes")
    }
}

impl Drop for Unclaimed {
    /// The request was cancelled: nothing of it stays.
    fn drop(&mut self) {
        let Some(terminal) = self.terminal.take() else { return };
        self.terminals.lock().remove(&terminal.id);
        tokio::spawn(async move {
            if let Err(error) = terminal.release().await {
                tracing::warn!(terminal = terminal.id, error = %error, "cannot release what was cancelled");
            }
        });
    }
}

fn is_command_not_found(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && reason_of(status) == "COMMAND_NOT_FOUND"
}
