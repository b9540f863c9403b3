//! The server that clients talk to: which tool does what.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CustomRequest,
        CustomResult, GetTaskParams, GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, UpdateTaskParams,
    },
    service::RequestContext,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tonic::Status;

use super::{
    McpOptions,
    errors::{self, ToolError},
    input::{self, Inputs},
    output, report,
    session::{Asked, Caller, McpSession},
    start::{NewCommand, Starter},
    tasks::{RetriedCall, Tasks},
    tools::{
        self, KillArguments, ListArguments, ReadArguments, RunArguments, StartArguments, ToolName,
        WaitArguments, WriteArguments,
    },
    waiting::{self, Progress, Waited},
};
use crate::{
    client::{Client, RetryingClient},
    printable,
    proto::v1,
};

/// Calls of a client that are under way at once.
pub(super) const CALLS_MAX: usize = 64;
/// How long a command that is stopped is waited for: the longest grace that profiles have by default, and a little.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// What a client tells its model.
const INSTRUCTIONS: &str = "Commands run in a sandbox: they can write to the workspace and to /tmp, and reach what the \
                            policy allows. A result that says \"denied\" names the rule and the reason: do not try to \
                            get round it, do it another way or ask the user.";

/// Serves one client, or several that share its session. All clones are one.
#[derive(Debug, Clone)]
pub(super) struct McpServer {
    pub(super) starter: Arc<Starter>,
    pub(super) tasks: Arc<Tasks>,
    inputs: Arc<Inputs>,
    calls: Arc<Semaphore>,
}

impl McpServer {
    pub(super) fn new(client: Client, options: McpOptions) -> Self {
        let client = RetryingClient::new(client);
        let session = McpSession::new(client.clone(), &options);
        Self {
            starter: Arc::new(Starter { client, session, approvals: options.approvals }),
            tasks: Arc::default(),
            inputs: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
        }
    }

    /// Ends the session and every command of it.
    pub(super) async fn close(&self) {
        self.starter.session.close().await;
    }

    async fn call(
        &self,
        tool: ToolName,
        request: CallToolRequestParams,
        asked: Asked,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let Ok(_place) = self.calls.try_acquire() else {
            return Err(ToolError::too_many("calls", CALLS_MAX, "Wait for some to end."));
        };
        let given = request.arguments;
        match tool {
            ToolName::Run => self.run(tools::parse_arguments(given)?, asked, context).await,
            ToolName::Start => self.start(tools::parse_arguments(given)?, asked, context).await,
            ToolName::Read => self.read(tools::parse_arguments(given)?).await,
            ToolName::Wait => self.wait(tools::parse_arguments(given)?, context).await,
            ToolName::Write => self.write(tools::parse_arguments(given)?, context).await,
            ToolName::Kill => self.kill(tools::parse_arguments(given)?, context).await,
            ToolName::List => {
                let ListArguments {} = tools::parse_arguments(given)?;
                self.list().await
            }
        }
    }

    async fn run(
        &self,
        arguments: RunArguments,
        asked: Asked,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let wait = tools::wait_time(arguments.wait_seconds)?;
        let progress = progress_of(&context);
        let command = NewCommand::to_run(&arguments);
        let terminal =
            self.starter.start(Caller { asked, ..caller_of(&context) }, command, &context.ct).await?;
        self.feed(&terminal, arguments.stdin);
        match self.until(&terminal, wait, &progress, &context).await? {
            Waited::Ended | Waited::Running => self.report(&terminal, Keep::IfNeeded).await,
            Waited::Cancelled => {
                self.starter.release(terminal).await;
                Err(ToolError::cancelled())
            }
        }
    }

    /// Begins to write the standard input.
    pub(super) fn feed(&self, terminal: &v1::Terminal, stdin: Option<String>) {
        if let Some(stdin) = stdin {
            input::feed(&self.inputs, self.client(), terminal, stdin);
        }
    }

    async fn start(
        &self,
        arguments: StartArguments,
        asked: Asked,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let command = NewCommand::to_start(arguments);
        let terminal =
            self.starter.start(Caller { asked, ..caller_of(&context) }, command, &context.ct).await?;
        let text = format!(
            "Started. id: {}\nRead its output with read_output, wait with wait_command.",
            terminal.id
        );
        Ok(report::of_text(text, json!({ "id": terminal.id, "state": "running" })))
    }

    async fn read(&self, arguments: ReadArguments) -> Result<CallToolResult, ToolError> {
        let length = tools::read_length(arguments.max_bytes)?;
        let terminal = self.find(&arguments.id).await?;
        let written = terminal.output.first().map_or(0, |position| position.next_offset);
        // The gateway would wait for bytes that are not written yet.
        let piece = if arguments.offset >= written {
            output::Piece { start: arguments.offset, next: arguments.offset, ..Default::default() }
        } else {
            let read = output::read(self.client(), &terminal, arguments.offset, length).await;
            read.map_err(|status| ToolError::of_command(&arguments.id, &status))?
        };
        let mut text = format!("{}; next_offset: {}\n", report::state_line(&terminal), piece.next);
        if let Some(failure) = self.inputs.failure(&terminal.id) {
            text.push_str(&format!("{}\n", failure.message));
        }
        if piece.lost > 0 {
            text.push_str(&format!("[{} bytes before are not retained]\n", piece.lost));
        }
        if piece.next < written {
            text.push_str(&format!("{} more bytes can be read.\n", written - piece.next));
        }
        let is_empty = piece.text.is_empty();
        text.push_str(if is_empty { "There is no more output." } else { "output:\n" });
        text.push_str(&piece.text);
        let details = json!({
            "id": terminal.id,
            "state": if terminal.outcome.is_some() { "finished" } else { "running" },
            "start_offset": piece.start,
            "next_offset": piece.next,
            "lost_bytes": piece.lost,
            "written_bytes": written,
        });
        Ok(report::of_text(text, details))
    }

    async fn wait(
        &self,
        arguments: WaitArguments,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let wait = tools::wait_time(arguments.wait_seconds)?;
        let terminal = self.find(&arguments.id).await?;
        match self.until(&terminal, wait, &progress_of(&context), &context).await? {
            Waited::Ended | Waited::Running => self.report(&terminal, Keep::Always).await,
            // Only the wait: another request started the command.
            Waited::Cancelled => Err(ToolError::cancelled()),
        }
    }

    async fn write(
        &self,
        arguments: WriteArguments,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let terminal = self.find(&arguments.id).await?;
        let _writer = self.inputs.writer(&terminal.id).ok_or_else(ToolError::input_busy)?;
        let length = arguments.text.len() as u64;
        let written = tokio::select! {
            written = input::write(self.client(), &terminal, arguments.text, arguments.eof) => written,
            () = context.ct.cancelled() => return Err(ToolError::cancelled()),
        };
        let written = written.map_err(|failed| {
            ToolError::of_command(&arguments.id, &failed.status).after_writing(failed.written, length)
        })?;
        let text = match written {
            all if all == length => format!("Wrote {all} bytes."),
            some => format!("Wrote {some} of {length} bytes: the command has closed its standard input."),
        };
        Ok(report::of_text(text, json!({ "id": terminal.id, "written_bytes": written })))
    }

    async fn kill(
        &self,
        arguments: KillArguments,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let terminal = self.find(&arguments.id).await?;
        let of_command = |status: Status| ToolError::of_command(&arguments.id, &status);
        if let Some(signal) = arguments.signal.clone() {
            let sent = format!("Sent {}.", printable::bounded_line(&signal, 40));
            let (terminal_id, session_id) = (terminal.id.clone(), terminal.session_id);
            let request = v1::SignalTerminalRequest { terminal_id, session_id, signal };
            // Once: a signal that was sent twice is another signal.
            self.client().client().terminals.signal_terminal(request).await.map_err(of_command)?;
            return Ok(report::of_text(sent, json!({ "id": terminal.id })));
        }
        self.client().kill_terminal(&terminal.id, &terminal.session_id).await.map_err(of_command)?;
        match self.until(&terminal, STOP_WAIT, &progress_of(&context), &context).await? {
            Waited::Ended | Waited::Running => self.report(&terminal, Keep::Always).await,
            Waited::Cancelled => Err(ToolError::cancelled()),
        }
    }

    async fn list(&self) -> Result<CallToolResult, ToolError> {
        let Some(session) = self.starter.session.id().await else { return Ok(report::of_list(&[])) };
        match self.starter.list(&session).await {
            Ok(listed) => Ok(report::of_list(&listed)),
            // The gateway was told to stop everything.
            Err(status) if status.code() == tonic::Code::NotFound => Ok(report::of_list(&[])),
            Err(status) => Err(ToolError::of_command("", &status)),
        }
    }

    /// A command of this session.
    async fn find(&self, id: &str) -> Result<v1::Terminal, ToolError> {
        let session_id = self.starter.session.id().await.ok_or_else(|| ToolError::unknown_command(id))?;
        let named = v1::Terminal { id: id.to_owned(), session_id, ..Default::default() };
        waiting::get(self.client(), &named).await.map_err(|status| ToolError::of_command(id, &status))
    }

    async fn until(
        &self,
        terminal: &v1::Terminal,
        time: Duration,
        progress: &Progress,
        context: &RequestContext<RoleServer>,
    ) -> Result<Waited, ToolError> {
        let waited = waiting::wait(self.client(), terminal, time, progress, &context.ct).await;
        waited.map_err(|status| ToolError::of_command(&terminal.id, &status))
    }

    /// The result for a command, which is removed when it has ended and nothing of it is left to read.
    pub(super) async fn report(
        &self,
        terminal: &v1::Terminal,
        keep: Keep,
    ) -> Result<CallToolResult, ToolError> {
        let of_command = |status: Status| ToolError::of_command(&terminal.id, &status);
        let now = waiting::get(self.client(), terminal).await.map_err(of_command)?;
        let shown = output::shown(self.client(), &now).await.map_err(of_command)?;
        let is_kept = keep == Keep::Always || now.outcome.is_none() || shown.is_cut;
        let failure = self.inputs.failure(&now.id);
        let result = report::of_command(&now, &shown, is_kept, failure.as_ref());
        if !is_kept {
            self.inputs.forget(&now.id);
            self.starter.release(now).await;
        }
        Ok(result)
    }

    pub(super) fn client(&self) -> &RetryingClient {
        &self.starter.client
    }
}

/// Whether a command that has ended stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Always,
    /// If the result does not show all of it.
    IfNeeded,
}

pub(super) fn caller_of(context: &RequestContext<RoleServer>) -> Caller {
    Caller {
        peer: context.peer.clone(),
        capabilities: context.client_capabilities(),
        name: context.client_info().map(|client| format!("{} {}", client.name, client.version)),
        asked: Asked::Request,
    }
}

pub(super) fn progress_of(context: &RequestContext<RoleServer>) -> Progress {
    Progress::new(context.peer.clone(), context.meta.get_progress_token())
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("provost", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            let name = printable::bounded_line(&request.name, 80).into_owned();
            return Err(ErrorData::invalid_params(format!("unknown tool {name:?}"), None));
        };
        let knows_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let retried = RetriedCall::of(&mut request, &context);
        let asked = retried.clone().map_or(Asked::Request, Asked::Answer);
        let answered = match tool {
            ToolName::Run if knows_tasks => self.run_as_task(request.arguments, context).await,
            _ => self.call(tool, request, asked, context).await.map(CallToolResponse::from),
        };
        let question = || retried.and_then(|call| call.question());
        Ok(answered.unwrap_or_else(|error| question().unwrap_or_else(|| error.into_result().into())))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(errors::of_parameters(&request))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.task(&request.task_id).await.map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.stop_task(&request.task_id)
    }
}
