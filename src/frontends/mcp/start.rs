//! From a tool's arguments to a command at the gateway: the session opened, finished commands removed when there are too
//! many, the person asked where a rule asks and the command line lets the client answer.
//!
//! A request that is cancelled on the way leaves nothing running. The
//! person is asked by the protocol's elicitation, and only if the command line says so: the client is the agent, and may answer for the
//! person. An answer that is not a clear yes is no.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rmcp::model::{
    BooleanSchema, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, PrimitiveSchemaDefinition, ServerRequest,
};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use ulid::Ulid;

use super::{
    errors::ToolError,
    session::{Asked, Caller, McpSession},
    tools::{RunArguments, StartArguments},
};
use crate::{
    client::{self, Client, RetryingClient, detail_of, reason_of},
    printable,
    proto::v1::{self, ApprovalDecision, ResolveApprovalRequest, create_terminal_request::Command},
};

/// Commands of a client that run, or have ended and can be read.
pub(super) const COMMANDS_MAX: usize = 64;
/// How long a person at the client may take. The gateway's own time, which may be shorter, ends the question too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest command that a person is shown, in bytes.
const COMMAND_SHOWN_BYTES: usize = 2_048;
/// The field of the form that a person fills in.
const FIELD: &str = "approve";

/// A command that is to be started.
#[derive(Debug, Clone)]
pub(super) struct NewCommand {
    command: String,
    args: Option<Vec<String>>,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    stdin: v1::StdinMode,
    timeout_seconds: Option<u32>,
}

/// Starts commands in one client's session.
#[derive(Debug)]
pub(super) struct Starter {
    pub(super) client: RetryingClient,
    pub(super) session: McpSession,
    pub(super) approvals: Approvals,
}

impl NewCommand {
    pub(super) fn to_run(arguments: &RunArguments) -> Self {
        let arguments = arguments.clone();
        Self {
            command: arguments.command,
            args: arguments.args,
            cwd: arguments.cwd,
            env: arguments.env,
            stdin: if arguments.stdin.is_some() { v1::StdinMode::Open } else { v1::StdinMode::Closed },
            timeout_seconds: arguments.timeout_seconds,
        }
    }

    pub(super) fn to_start(arguments: StartArguments) -> Self {
        Self {
            command: arguments.command,
            args: arguments.args,
            cwd: arguments.cwd,
            env: arguments.env,
            stdin: if arguments.open_stdin { v1::StdinMode::Open } else { v1::StdinMode::Closed },
            timeout_seconds: arguments.timeout_seconds,
        }
    }

    fn request(self, session_id: String) -> v1::CreateTerminalRequest {
        v1::CreateTerminalRequest {
            session_id,
            request_id: Ulid::generate().to_string(),
            command: Some(match self.args {
                Some(_) => Command::Program(self.command),
                None => Command::ShellLine(self.command),
            }),
            args: self.args.unwrap_or_default(),
            env: self
                .env
                .into_iter()
                .map(|(name, value)| v1::EnvVar { name, value, ..Default::default() })
                .collect(),
            cwd: self.cwd.unwrap_or_default(),
            output_mode: v1::OutputMode::Merged.into(),
            stdin_mode: self.stdin.into(),
            time_limit: self
                .timeout_seconds
                .map(|seconds| prost_types::Duration { seconds: seconds.into(), nanos: 0 }),
            on_ask: v1::OnAsk::Refuse.into(),
            ..client::new_terminal()
        }
    }

    /// The command as one text.
    fn shown(&self) -> String {
        match &self.args {
            Some(args) => crate::printable::command(std::iter::once(&self.command).chain(args)),
            None => self.command.clone(),
        }
    }
}

impl Starter {
    /// Starts a command, unless the request is cancelled first.
    pub(super) async fn start(
        self: &Arc<Self>,
        caller: Caller,
        command: NewCommand,
        cancelled: &CancellationToken,
    ) -> Result<v1::Terminal, ToolError> {
        let (mut give, taken) = oneshot::channel();
        let starter = self.clone();
        tokio::spawn(async move {
            let started = tokio::select! {
                started = starter.start_in_session(&caller, command) => started,
                // While a person is asked. A create that is under way is finished: it is waited for below.
                () = give.closed() => Err(ToolError::cancelled()),
            };
            if let Err(Ok(unclaimed)) = give.send(started) {
                starter.release(unclaimed).await;
            }
        });
        tokio::select! {
            biased;
            started = taken => started.unwrap_or_else(|_| Err(ToolError::cancelled())),
            () = cancelled.cancelled() => Err(ToolError::cancelled()),
        }
    }

    async fn start_in_session(
        self: &Arc<Self>,
        caller: &Caller,
        command: NewCommand,
    ) -> Result<v1::Terminal, ToolError> {
        let session = self.session.open(caller, None).await?;
        self.make_room(&session).await?;
        match self.create(caller, &command, session.clone()).await {
            // The gateway was told to stop everything, and is back without the session.
            Err(status) if status.code() == Code::NotFound => {
                let session = self.session.open(caller, Some(&session)).await?;
                self.create(caller, &command, session).await
            }
            created => created,
        }
        .map_err(|status| ToolError::not_started(&status))
    }

    /// Creates the terminal, and asks the person at the client if a rule asks and the command line allows it.
    async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        command: &NewCommand,
        session: String,
    ) -> Result<v1::Terminal, Status> {
        let request = command.clone().request(session);
        let refused = match self.create_once(request.clone()).await {
            Err(status) if self.approvals == Approvals::ByClient => status,
            created => return created,
        };
        let approval = detail_of(&refused, "approval_id");
        let (Some(approval), "APPROVAL_REQUIRED") = (approval, reason_of(&refused).as_str()) else {
            return Err(refused);
        };
        let decision = match ask(caller, &approval, &command.shown(), refused.message()).await {
            Answer::Yes => v1::ApprovalDecision::Approve,
            Answer::No => v1::ApprovalDecision::Deny,
            Answer::None => return Err(refused),
        };
        match resolve(&self.client.client(), &approval, decision).await {
            Ok(()) => {}
            // Others were faster, or this user may not answer: sent again, the request gets the gateway's word.
            Err(status) => tracing::info!(error = %status, "the answer was not taken"),
        }
        self.create_once(v1::CreateTerminalRequest { request_id: Ulid::generate().to_string(), ..request })
            .await
    }

    /// In a task of its own: a caller that goes away does not stop it, and what was started is released.
    async fn create_once(
        self: &Arc<Self>,
        request: v1::CreateTerminalRequest,
    ) -> Result<v1::Terminal, Status> {
        let (give, taken) = oneshot::channel();
        let starter = self.clone();
        tokio::spawn(async move {
            let created = starter.client.create_terminal(request).await;
            if let Err(Ok(unclaimed)) = give.send(created) {
                starter.release(unclaimed).await;
            }
        });
        taken.await.unwrap_or_else(|_| Err(Status::cancelled("the task that starts the command has ended")))
    }

    /// Stops a command and removes it.
    pub(super) async fn release(&self, terminal: v1::Terminal) {
        if let Err(status) = self.client.release_terminal(&terminal.id, &terminal.session_id).await {
            tracing::warn!(error = %status, "cannot remove a command: it ends with the session");
        }
    }

    /// The session's commands, oldest first.
    pub(super) async fn list(&self, session_id: &str) -> Result<Vec<v1::Terminal>, Status> {
        let request = v1::ListTerminalsRequest { session_id: session_id.to_owned(), ..Default::default() };
        let listed = self.client.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.terminals.clone().list_terminals(request).await }
        });
        Ok(listed.await?.into_inner().terminals)
    }

    /// Removes the oldest commands that have ended, if there are too many.
    async fn make_room(&self, session: &str) -> Result<(), ToolError> {
        let commands = match self.list(session).await {
            Ok(commands) => commands,
            // It is opened again when the command is started.
            Err(status) if status.code() == Code::NotFound => return Ok(()),
            Err(status) => return Err(ToolError::not_started(&status)),
        };
        let excess = (commands.len() + 1).saturating_sub(COMMANDS_MAX);
        let ended = commands.into_iter().filter(|command| command.state() == v1::TerminalState::Finished);
        let removed: Vec<_> = ended.take(excess).collect();
        if removed.len() < excess {
            return Err(ToolError::too_many("commands", COMMANDS_MAX, "Stop some with kill_command."));
        }
        for command in removed {
            self.release(command).await;
        }
        Ok(())
    }
}

/// Who answers when a rule asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approvals {
    /// Those who may, by `provost approvals`. The command is refused until they have, and can then be sent again.
    Elsewhere,
    /// The person at the client.
    ByClient,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// The client cannot ask, or has not answered.
    None,
}

/// Asks the person at the client.
async fn ask(caller: &Caller, approval: &str, command: &str, why: &str) -> Answer {
    if caller.capabilities.as_ref().is_none_or(|capabilities| capabilities.elicitation.is_none()) {
        return Answer::None;
    }
    let message = format!(
        "A rule asks for approval of this command: {}\n\nWhy: {}",
        printable::bounded(command, COMMAND_SHOWN_BYTES),
        printable::bounded(why, COMMAND_SHOWN_BYTES)
    );
    let field = BooleanSchema::new().description("Let this command run, once");
    let schema = ElicitationSchema::builder()
        .required_property(FIELD, PrimitiveSchemaDefinition::Boolean(field))
        .build();
    let Ok(requested_schema) = schema else { return Answer::None };
    let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    let asked = async {
        match &caller.asked {
            Asked::Request => ask_by_request(caller, form).await,
            Asked::Task(task) => serde_json::from_value(task.ask(form).await?).ok(),
            Asked::Answer(call) => serde_json::from_value(call.ask(approval, form)?).ok(),
        }
    };
    match timeout(ANSWER_TIMEOUT, asked).await {
        Ok(Some(answer)) => meaning(&answer),
        Ok(None) | Err(_) => Answer::None,
    }
}

async fn ask_by_request(caller: &Caller, form: ElicitRequestParams) -> Option<ElicitResult> {
    match caller.peer.send_request(ServerRequest::ElicitRequest(ElicitRequest::new(form))).await {
        Ok(ClientResult::ElicitResult(answer)) => Some(answer),
        Ok(_) => None,
        Err(error) => {
            tracing::info!(%error, "the client cannot be asked");
            None
        }
    }
}

fn meaning(answer: &ElicitResult) -> Answer {
    match answer.action {
        ElicitationAction::Accept if answer.content.as_ref().is_some_and(|form| form[FIELD] == true) => {
            Answer::Yes
        }
        _ => Answer::No,
    }
}

/// Gives the answer to the gateway.
async fn resolve(client: &Client, approval_id: &str, decision: ApprovalDecision) -> Result<(), Status> {
    let request = ResolveApprovalRequest {
        approval_id: approval_id.to_owned(),
        decision: decision.into(),
        comment: "by the MCP client's elicitation".to_owned(),
        on_behalf_of: "the person at the MCP client".to_owned(),
    };
    client.approvals.clone().resolve_approval(request).await.map(drop)
}
