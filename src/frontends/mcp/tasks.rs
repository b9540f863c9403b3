//! The tasks of a server: commands whose call was answered before their end, for clients with the protocol's Tasks extension
//! (SEP-2663).
//!
//! The gateway knows whether a command runs, and keeps its output. Here is what it does not know: the question before the start, and
//! the result that the client has not asked for yet.
//!
//! A question can also be put by a call's answer: the client sends the call again, with what the person says. From the protocol version
//! 2026-07-28 on this is the only way to ask while a call is under way.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, DetailedTask, ElicitRequest,
        ElicitRequestParams, InputRequest, InputRequiredResult, InputResponses, JsonObject, ProtocolVersion,
        Task, TaskPayload, TaskStatus,
    },
    service::RequestContext,
    task_manager::current_timestamp,
};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::errors::ToolError;
use crate::proto::v1;

/// Tasks that are under way, or are over and can be asked for.
pub(super) const TASKS_MAX: usize = 64;
/// How often a client is advised to ask.
const POLL_INTERVAL_MS: u64 = 1_000;
/// The key of the question in an answer. There is one at most.
const QUESTION: &str = "approval";

/// How far a task is.
#[derive(Debug, Clone)]
pub(super) enum TaskState {
    /// Its command is not started yet.
    Starting,
    /// A rule asks, and the person at the client has not answered.
    Asking(Box<ElicitRequestParams>),
    /// Its command runs.
    Running(Box<v1::Terminal>),
    /// It has a result, or was cancelled.
    Over(TaskEnd),
}

/// How a task has ended.
#[derive(Debug, Clone)]
pub(super) enum TaskEnd {
    /// With what the call would have been answered.
    Answered(Box<CallToolResult>),
    /// Its command does not run any more, or never did.
    Cancelled,
}

/// A task.
#[derive(Debug)]
pub(super) struct CommandTask {
    id: String,
    created_at: String,
    updated_at: Mutex<String>,
    state: watch::Sender<TaskState>,
    answer: Mutex<Option<oneshot::Sender<Value>>>,
    /// Ends it: the question is withdrawn, the command stopped.
    pub(super) cancelled: CancellationToken,
}

impl CommandTask {
    fn new() -> Self {
        let now = current_timestamp();
        Self {
            id: format!("task_{}", Ulid::generate()),
            created_at: now.clone(),
            updated_at: Mutex::new(now),
            state: watch::channel(TaskState::Starting).0,
            answer: Mutex::default(),
            cancelled: CancellationToken::new(),
        }
    }

    pub(super) fn state(&self) -> TaskState {
        self.state.borrow().clone()
    }

    /// A task that is over stays as it is.
    pub(super) fn set(&self, state: TaskState) {
        let is_set = self.state.send_if_modified(|now| {
            let goes_on = !matches!(now, TaskState::Over(_));
            if goes_on {
                *now = state;
            }
            goes_on
        });
        if is_set {
            *lock(&self.updated_at) = current_timestamp();
        }
    }

    /// Waits until it is over, or needs the client.
    pub(super) async fn needs_client(&self) {
        let needs = |state: &TaskState| matches!(state, TaskState::Asking(_) | TaskState::Over(_));
        // The sender is this task's own.
        let _ = self.state.subscribe().wait_for(needs).await;
    }

    /// Asks the person at the client, who is asked when the client asks how the task goes. `None`: the task was cancelled.
    pub(super) async fn ask(&self, form: ElicitRequestParams) -> Option<Value> {
        let (give, taken) = oneshot::channel();
        *lock(&self.answer) = Some(give);
        self.set(TaskState::Asking(form.into()));
        let answer = tokio::select! {
            answer = taken => answer.ok(),
            () = self.cancelled.cancelled() => None,
        };
        self.set(TaskState::Starting);
        answer
    }

    /// Takes the client's answer. One that nobody waits for is left.
    pub(super) fn answer(&self, mut responses: InputResponses) {
        if let Some(answer) = responses.remove(QUESTION)
            && let Some(give) = lock(&self.answer).take()
        {
            // It was cancelled meanwhile.
            let _ = give.send(answer);
        }
    }

    /// As the protocol has it. What is said of a command that runs is the caller's to add.
    pub(super) fn detailed(&self, message: Option<String>) -> DetailedTask {
        let state = self.state();
        let payload = match &state {
            TaskState::Starting | TaskState::Running(_) => TaskPayload::Working,
            TaskState::Asking(form) => {
                let question = InputRequest::Elicitation(ElicitRequest::new((**form).clone()));
                TaskPayload::InputRequired { input_requests: [(QUESTION.to_owned(), question)].into() }
            }
            TaskState::Over(TaskEnd::Answered(result)) => TaskPayload::Completed { result: object(result) },
            TaskState::Over(TaskEnd::Cancelled) => TaskPayload::Cancelled,
        };
        let mut task = self.seed();
        task.status_message = message;
        DetailedTask::new(task, payload)
    }

    /// What the call is answered with.
    pub(super) fn seed(&self) -> Task {
        let updated = lock(&self.updated_at).clone();
        let task = Task::new(&self.id, TaskStatus::Working, &self.created_at, updated);
        // Its time is unlimited: it is there until there are too many.
        task.with_poll_interval_ms(POLL_INTERVAL_MS)
    }
}

fn object(result: &CallToolResult) -> JsonObject {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => object,
        // A result is an object of texts and numbers.
        Ok(_) | Err(_) => JsonObject::new(),
    }
}

/// The tasks of a server, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<Vec<Arc<CommandTask>>>);

impl Tasks {
    /// Begins a task. The oldest that is over makes room.
    pub(super) fn begin(&self) -> Result<Arc<CommandTask>, ToolError> {
        let mut tasks = lock(&self.0);
        if tasks.len() >= TASKS_MAX {
            let is_over = |task: &CommandTask| matches!(*task.state.borrow(), TaskState::Over(_));
            let oldest = tasks.iter().position(|task| is_over(task));
            let advice = "Wait for some to end, or cancel some.";
            tasks.remove(oldest.ok_or_else(|| ToolError::too_many("tasks", TASKS_MAX, advice))?);
        }
        let task = Arc::new(CommandTask::new());
        tasks.push(task.clone());
        Ok(task)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<CommandTask>> {
        lock(&self.0).iter().find(|task| task.id == id).cloned()
    }

    /// Forgets a task that the client never learned of.
    pub(super) fn forget(&self, task: &CommandTask) {
        lock(&self.0).retain(|other| other.id != task.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call asks, and what the person has said before it was sent again.
#[derive(Debug, Default)]
pub(super) struct RetriedCall {
    /// The approval that was asked for, and the answer. Both are the client's word: the gateway knows which request the approval is for.
    given: Option<(String, Value)>,
    /// The approval that is asked for, and the question.
    open: OnceLock<(String, ElicitRequestParams)>,
}

impl RetriedCall {
    /// `None`: the client speaks a version in which it is asked by requests.
    pub(super) fn of(
        request: &mut CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<Arc<Self>> {
        let version = context.meta.protocol_version()?;
        (version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()).then(|| {
            let answer = request.input_responses.take().and_then(|mut given| given.remove(QUESTION));
            Arc::new(Self { given: request.request_state.take().zip(answer), open: OnceLock::new() })
        })
    }

    /// What the person has said to the question for this approval. Without an answer the question is put.
    pub(super) fn ask(&self, approval: &str, form: ElicitRequestParams) -> Option<Value> {
        match &self.given {
            Some((asked, answer)) if asked == approval => Some(answer.clone()),
            _ => {
                // A call starts one command, which is asked for once.
                let _ = self.open.set((approval.to_owned(), form));
                None
            }
        }
    }

    /// The answer that puts the question, if there is one.
    pub(super) fn question(&self) -> Option<CallToolResponse> {
        let (approval, form) = self.open.get()?.clone();
        let question = InputRequest::Elicitation(ElicitRequest::new(form));
        let questions = [(QUESTION.to_owned(), question)].into();
        Some(CallToolResponse::InputRequired(InputRequiredResult::new(Some(questions), Some(approval))))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ContentBlock;

    use super::*;

    #[test]
    fn the_oldest_task_that_is_over_makes_room_and_without_one_there_are_no_more() {
        let tasks = Tasks::default();
        let begun: Vec<_> = (0..TASKS_MAX).map(|_| tasks.begin().unwrap()).collect();
        assert_eq!(tasks.begin().unwrap_err().reason, "LIMIT_REACHED");
        begun[7].set(TaskState::Over(TaskEnd::Cancelled));
        begun[9].set(TaskState::Over(TaskEnd::Cancelled));
        let new = tasks.begin().unwrap();
        assert!(tasks.get(&begun[7].id).is_none());
        assert!(tasks.get(&begun[9].id).is_some() && tasks.get(&new.id).is_some());
    }

    #[test]
    fn a_result_is_what_the_call_would_have_been_answered_with() {
        let task = CommandTask::new();
        let result = CallToolResult::error(vec![ContentBlock::text("no")]);
        task.set(TaskState::Over(TaskEnd::Answered(result.clone().into())));
        // A question that is withdrawn late.
        task.set(TaskState::Starting);
        let shown = serde_json::to_value(task.detailed(None)).unwrap();
        assert_eq!(shown["status"], "completed");
        assert_eq!(shown["result"], serde_json::to_value(result).unwrap());
        assert_eq!(shown["ttlMs"], Value::Null);
    }
}
