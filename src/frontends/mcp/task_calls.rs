//! `run_command` as a task, and what clients ask of tasks.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolResponse, CreateTaskResult, DetailedTask, InputResponses, JsonObject},
    service::RequestContext,
};
use tokio::time::sleep;

use super::{
    errors::ToolError,
    server::{Keep, McpServer, caller_of, progress_of},
    session::{Asked, Caller},
    start::NewCommand,
    tasks::{CommandTask, TaskEnd, TaskState},
    tools::{self, RunArguments},
    waiting::{self, Progress, Waited},
};
use crate::{client::is_unanswered, printable};

/// A command that ends within this time is answered at once, and is no task.
const QUICK: Duration = Duration::from_secs(1);
/// How long a gateway that does not answer is left alone.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl McpServer {
    /// Starts a command, and answers with its result if it ends at once, else with a task.
    pub(super) async fn run_as_task(
        &self,
        given: Option<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ToolError> {
        let arguments: RunArguments = tools::parse_arguments(given)?;
        tools::wait_time(arguments.wait_seconds)?;
        let task = self.tasks.begin()?;
        let caller = Caller { asked: Asked::Task(task.clone()), ..caller_of(&context) };
        tokio::spawn(self.clone().carry_out(task.clone(), caller, arguments, progress_of(&context)));
        let is_cancelled = tokio::select! {
            () = task.needs_client() => false,
            () = sleep(QUICK) => false,
            () = context.ct.cancelled() => true,
        };
        if is_cancelled {
            task.cancelled.cancel();
            self.tasks.forget(&task);
            return Err(ToolError::cancelled());
        }
        match task.state() {
            TaskState::Over(TaskEnd::Answered(result)) => {
                self.tasks.forget(&task);
                Ok((*result).into())
            }
            _ => Ok(CallToolResponse::Task(CreateTaskResult::new(task.seed()))),
        }
    }

    async fn carry_out(
        self,
        task: Arc<CommandTask>,
        caller: Caller,
        arguments: RunArguments,
        progress: Progress,
    ) {
        let end = self.run_to_end(&task, caller, arguments, &progress).await;
        task.set(TaskState::Over(end.unwrap_or_else(|error| TaskEnd::Answered(error.into_result().into()))));
    }

    async fn run_to_end(
        &self,
        task: &CommandTask,
        caller: Caller,
        arguments: RunArguments,
        progress: &Progress,
    ) -> Result<TaskEnd, ToolError> {
        let command = NewCommand::to_run(&arguments);
        let terminal = match self.starter.start(caller, command, &task.cancelled).await {
            Err(_) if task.cancelled.is_cancelled() => return Ok(TaskEnd::Cancelled),
            started => started?,
        };
        self.feed(&terminal, arguments.stdin);
        task.set(TaskState::Running(terminal.clone().into()));
        loop {
            let time = Duration::MAX;
            match waiting::wait(self.client(), &terminal, time, progress, &task.cancelled).await {
                Ok(Waited::Ended | Waited::Running) => {
                    return self
                        .report(&terminal, Keep::IfNeeded)
                        .await
                        .map(|result| TaskEnd::Answered(result.into()));
                }
                Ok(Waited::Cancelled) => {
                    self.starter.release(terminal).await;
                    return Ok(TaskEnd::Cancelled);
                }
                // The command goes on, and so does its task.
                Err(status) if is_unanswered(&status) => sleep(RETRY_PAUSE).await,
                Err(status) => return Err(ToolError::of_command(&terminal.id, &status)),
            }
        }
    }

    /// How a task goes.
    pub(super) async fn task(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        let task = self.known(id)?;
        let message = match task.state() {
            TaskState::Starting => Some("the command is being started".to_owned()),
            TaskState::Asking(_) => Some("a rule asks for approval".to_owned()),
            TaskState::Running(terminal) => {
                let now = waiting::get(self.client(), &terminal).await;
                let written =
                    now.ok().and_then(|now| now.output.first().map(|position| position.next_offset));
                let output = written.map(|bytes| format!(", {bytes} bytes of output")).unwrap_or_default();
                Some(format!("running{output}; its id is {}", terminal.id))
            }
            TaskState::Over(_) => None,
        };
        Ok(task.detailed(message))
    }

    /// Takes the client's answers.
    pub(super) fn answer_task(&self, id: &str, responses: InputResponses) -> Result<(), ErrorData> {
        self.known(id).map(|task| task.answer(responses))
    }

    /// Begins to stop a task's command.
    pub(super) fn stop_task(&self, id: &str) -> Result<(), ErrorData> {
        self.known(id).map(|task| task.cancelled.cancel())
    }

    fn known(&self, id: &str) -> Result<Arc<CommandTask>, ErrorData> {
        self.tasks.get(id).ok_or_else(|| {
            let id = printable::bounded_line(id, 80);
            ErrorData::invalid_params(format!("there is no task {id:?}; it may have been removed"), None)
        })
    }
}
