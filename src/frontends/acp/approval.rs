//! Questions of the policy, put to a person: by the program that embeds the terminals, and in `provost acp` to the user of the editor.
//!
//! A command that a rule asks about waits at the gateway, which reports the question in a stream. The question is put to
//! the user, and the answer is given to the gateway in that user's name. Another approver may answer at the gateway
//! meanwhile: the first answer counts. Without a user to ask, the command is refused. With a question about an exec or a connection
//! within a command that runs no call of the agent's waits: the gateway holds it, and it is taken back when the process ends.
//!
//! The editor is asked by `session/request_permission`. To it it is the agent that asks. The answer never reaches the agent, which did not
//! ask; what it learns is what became of its command. Only "allow once" is offered: what is allowed for good is for the policy's files.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, ContentBlock, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionId, SessionNotification, SessionUpdate,
    TextContent, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::{json, value::RawValue};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Status};
use ulid::Ulid;

use super::lines;
use crate::{
    client::Client,
    json_rpc::LineSender,
    printable,
    proto::v1::{
        Approval, ApprovalDecision, ApprovalState, AskedCommand, CreateTerminalRequest,
        CreateTerminalResponse, ResolveApprovalRequest, Terminal, WatchApprovalsRequest, approval,
    },
};

/// Before a stream of questions that broke off is asked for again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The longest comment that a gateway takes.
const COMMENT_MAX_BYTES: usize = 1_024;
/// Questions that may be open at once. More are answered with no.
pub(super) const QUESTIONS_MAX: usize = 256;
/// What a person can choose.
const ALLOW: &str = "provost-allow-once";
const DENY: &str = "provost-deny-once";

/// What a person is asked.
#[derive(Debug, Clone)]
pub struct ApprovalQuestion {
    /// The protocol's session.
    pub session: SessionId,
    /// The gateway's id of it.
    pub approval_id: String,
    /// The command with its arguments, as the agent gave it; or the connection that a running one wants.
    pub command: String,
    /// The part of it that the rule asks about, in its normal form.
    pub matched_command: String,
    /// Where it is to run.
    pub cwd: String,
    /// The rule that asks.
    pub rule: String,
    /// What the rule gives for its reason; may be empty.
    pub reason: String,
    /// What else of the command rules ask about: the answer is for all of it.
    pub others: Vec<AskedCommand>,
}

/// What a person answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalReply {
    /// This command may run, once.
    Allow,
    /// It may not, for this reason, which may be empty.
    Deny(String),
}

impl ApprovalReply {
    /// As the gateway takes it, with its comment.
    pub(super) fn into_decision(self) -> (ApprovalDecision, String) {
        match self {
            Self::Allow => (ApprovalDecision::Approve, String::new()),
            Self::Deny(comment) => (ApprovalDecision::Deny, comment),
        }
    }
}

/// Puts a question to a person. To drop the future is to take the question back.
pub type ApprovalPrompt =
    Arc<dyn Fn(ApprovalQuestion) -> Pin<Box<dyn Future<Output = ApprovalReply> + Send>> + Send + Sync>;

/// The creates of one session that wait, and what the gateway says of their questions.
#[derive(Debug, Default)]
pub(super) struct PendingQuestions(Mutex<HashMap<String, oneshot::Sender<Approval>>>);

/// One create that may turn out to wait.
struct QuestionWaiter<'a> {
    questions: &'a PendingQuestions,
    request_id: String,
    receiver: oneshot::Receiver<Approval>,
}

impl PendingQuestions {
    fn expect(&self, request_id: &str) -> QuestionWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(request_id.to_owned(), sender);
        QuestionWaiter { questions: self, request_id: request_id.to_owned(), receiver }
    }

    fn deliver(&self, approval: Approval) {
        if approval.state() != ApprovalState::Pending {
            return;
        }
        if let Some(sender) = self.lock().remove(&approval.request_id) {
            // It may have ended meanwhile.
            let _ = sender.send(approval);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Approval>>> {
        self.0.lock().expect("no code panics while it holds the questions")
    }
}

impl QuestionWaiter<'_> {
    /// The question, when there is one; never, when there is none.
    async fn question(&mut self) -> Approval {
        match (&mut self.receiver).await {
            Ok(approval) => approval,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for QuestionWaiter<'_> {
    fn drop(&mut self) {
        self.questions.lock().remove(&self.request_id);
    }
}

/// Listens to the questions of a session, until it is closed: those that a create waits with, and those of commands that run.
pub(super) async fn watch_questions(
    client: Client,
    gateway_session: String,
    questions: Arc<PendingQuestions>,
    mut running: ExecQuestions,
    closed: CancellationToken,
) {
    let listening = async {
        let mut is_reported = false;
        loop {
            let request = WatchApprovalsRequest { session_id: gateway_session.clone() };
            match client.approvals.clone().watch_approvals(request).await {
                Ok(stream) => {
                    is_reported = false;
                    let mut stream = stream.into_inner();
                    while let Ok(Some(change)) = stream.message().await {
                        let approval = change.approval.unwrap_or_default();
                        match approval.exec.is_some() || approval.connection.is_some() {
                            true => running.changed(approval),
                            false => questions.deliver(approval),
                        }
                    }
                }
                Err(status) if status.code() == Code::NotFound => return,
                // Once for each time that the gateway is away.
                Err(status) if !is_reported => {
                    is_reported = true;
                    tracing::warn!(error = %status, "cannot listen to the gateway's questions");
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    tokio::select! {
        () = listening => {}
        () = closed.cancelled() => {}
    }
}

/// Creates a terminal; where a rule asks, a person is asked first. `cancelled` resolves when nobody wants the command any
/// more: to a question that is then open the answer is no. A question of a gateway that is lost is taken back; the same
/// request, sent to the next one, asks again.
pub(super) async fn create_with_approval(
    client: Client,
    prompt: &ApprovalPrompt,
    (session, questions): (&SessionId, &PendingQuestions),
    request: CreateTerminalRequest,
    cancelled: impl Future<Output = ()>,
) -> Result<Terminal, Status> {
    let mut expected = questions.expect(&request.request_id);
    let mut terminals = client.terminals.clone();
    let creating = terminals.create_terminal(request);
    tokio::pin!(creating);
    let approval = tokio::select! {
        biased;
        created = &mut creating => return created.map(terminal_of),
        approval = expected.question() => approval,
    };
    let approval_id = approval.id.clone();
    let reply = prompt(question(session, approval));
    let (decision, comment) = tokio::select! {
        // Another approver has answered, or the question has expired.
        created = &mut creating => return created.map(terminal_of),
        reply = reply => reply.into_decision(),
        () = cancelled => (ApprovalDecision::Deny, "the agent took its request back".to_owned()),
    };
    resolve(&client, &approval_id, decision, comment).await?;
    creating.await.map(terminal_of)
}

fn terminal_of(response: tonic::Response<CreateTerminalResponse>) -> Terminal {
    response.into_inner().terminal.unwrap_or_default()
}

/// What is shown of an approval.
pub(super) fn question(session: &SessionId, approval: Approval) -> ApprovalQuestion {
    let mut command = match approval.command {
        Some(approval::Command::Program(text) | approval::Command::ShellLine(text)) => text,
        None => String::new(),
    };
    for arg in &approval.args {
        command.push(' ');
        command.push_str(arg);
    }
    if approval.connection.is_some() {
        command.clone_from(&approval.matched_command);
    }
    ApprovalQuestion {
        session: session.clone(),
        approval_id: approval.id,
        command,
        matched_command: approval.matched_command,
        cwd: approval.cwd,
        rule: approval.rule,
        reason: approval.reason,
        others: approval.others,
    }
}

/// Answers in the name of the person at the editor.
pub(super) async fn resolve(
    client: &Client,
    approval_id: &str,
    decision: ApprovalDecision,
    mut comment: String,
) -> Result<(), Status> {
    let mut end = comment.len().min(COMMENT_MAX_BYTES);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    comment.truncate(end);
    let request = ResolveApprovalRequest {
        approval_id: approval_id.to_owned(),
        decision: decision.into(),
        comment,
        on_behalf_of: user_name(),
    };
    match client.approvals.clone().resolve_approval(request).await {
        Ok(_) => Ok(()),
        // Another approver was faster, or the question has expired: the same request, sent again, gets the outcome.
        Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => Ok(()),
        Err(status) => Err(status),
    }
}

/// The person at the editor: the user that it runs as.
fn user_name() -> String {
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("uid:{uid}"),
    }
}

/// The questions about execs and connections of one session's commands that run.
pub(super) struct ExecQuestions {
    client: Client,
    prompt: ApprovalPrompt,
    session: SessionId,
    /// Each is taken back when it is removed.
    open: HashMap<String, DropGuard>,
}

impl ExecQuestions {
    pub(super) fn new(client: Client, prompt: ApprovalPrompt, session: String) -> Self {
        Self { client, prompt, session: SessionId::new(session), open: HashMap::new() }
    }

    /// One was put, or has changed.
    fn changed(&mut self, approval: Approval) {
        if approval.state() != ApprovalState::Pending {
            self.open.remove(&approval.id);
            return;
        }
        if self.open.contains_key(&approval.id) || self.open.len() >= QUESTIONS_MAX {
            return;
        }
        let over = CancellationToken::new();
        self.open.insert(approval.id.clone(), over.clone().drop_guard());
        let (client, approval_id) = (self.client.clone(), approval.id.clone());
        let reply = (self.prompt)(question(&self.session, approval));
        tokio::spawn(async move {
            let reply = tokio::select! {
                reply = reply => reply,
                () = over.cancelled() => return,
            };
            let (decision, comment) = reply.into_decision();
            if let Err(status) = resolve(&client, &approval_id, decision, comment).await {
                tracing::warn!(error = %status, "an answer about a running command does not reach the gateway");
            }
        });
    }
}

/// The questions that the editor has not answered.
#[derive(Debug)]
pub(super) struct PermissionRequests {
    editor: LineSender,
    /// What our ids begin with, and nobody else's.
    prefix: String,
    open: Mutex<HashMap<String, OpenRequest>>,
}

#[derive(Debug)]
struct OpenRequest {
    session: SessionId,
    reply: oneshot::Sender<ApprovalReply>,
}

impl PermissionRequests {
    pub(super) fn new(editor: LineSender) -> Arc<Self> {
        Arc::new(Self { editor, prefix: format!("provost-{}-", Ulid::generate()), open: Mutex::default() })
    }

    /// Asks, and waits for the answer. Dropped, it takes the question back.
    pub(super) async fn ask(self: Arc<Self>, question: ApprovalQuestion) -> ApprovalReply {
        let id = format!("{}{}", self.prefix, Ulid::generate());
        let (reply, answered) = oneshot::channel();
        {
            let mut open = self.lock();
            if open.len() >= QUESTIONS_MAX {
                return ApprovalReply::Deny("too many questions are open".to_owned());
            }
            open.insert(id.clone(), OpenRequest { session: question.session.clone(), reply });
        }
        let mut asked =
            RequestGuard { permissions: self.clone(), id, session: question.session.clone(), ended: false };
        let request = request(&asked.id, &question);
        let line = lines::request_line(&asked.id, CLIENT_METHOD_NAMES.session_request_permission, &request);
        if self.editor.send(line).await.is_err() {
            return ApprovalReply::Deny("the editor is gone".to_owned());
        }
        let reply = answered.await.unwrap_or_else(|_| ApprovalReply::Deny("the editor is gone".to_owned()));
        asked.ended = true;
        let status =
            if reply == ApprovalReply::Allow { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        // An editor that is gone shows nothing.
        let _ = self.editor.send(status_line(&asked.session, &asked.id, status)).await;
        reply
    }

    /// Whether an answer with this id is to one of these questions, or to one that was taken back.
    pub(super) fn is_own_id(&self, id: &RawValue) -> bool {
        id.get().get(1..).is_some_and(|text| text.starts_with(&self.prefix))
    }

    /// Takes the editor's answer. An error, or an answer that says something else, is a no.
    pub(super) fn resolve(&self, id: &RawValue, result: Option<&RawValue>) {
        let Some(open) = id_text(id).and_then(|id| self.lock().remove(&id)) else { return };
        let response =
            result.and_then(|result| serde_json::from_str::<RequestPermissionResponse>(result.get()).ok());
        let reply = match response.map(|response| response.outcome) {
            Some(RequestPermissionOutcome::Selected(selected)) if &*selected.option_id.0 == ALLOW => {
                ApprovalReply::Allow
            }
            Some(RequestPermissionOutcome::Selected(_)) => {
                ApprovalReply::Deny("denied in the editor".to_owned())
            }
            Some(RequestPermissionOutcome::Cancelled) => {
                ApprovalReply::Deny("cancelled in the editor".to_owned())
            }
            Some(_) | None => ApprovalReply::Deny("the editor could not ask".to_owned()),
        };
        // The caller may have gone meanwhile.
        let _ = open.reply.send(reply);
    }

    /// The user has cancelled the session's turn: its questions are answered with no.
    pub(super) fn cancel(&self, session: &SessionId) {
        let mut open = self.lock();
        let ids: Vec<String> =
            open.iter().filter(|(_, open)| open.session == *session).map(|(id, _)| id.clone()).collect();
        for open in ids.iter().filter_map(|id| open.remove(id)) {
            let _ = open.reply.send(ApprovalReply::Deny("the user cancelled the turn".to_owned()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, OpenRequest>> {
        self.open.lock().expect("no code panics while it holds the questions")
    }
}

/// A question that the editor has been asked.
struct RequestGuard {
    permissions: Arc<PermissionRequests>,
    id: String,
    session: SessionId,
    ended: bool,
}

impl Drop for RequestGuard {
    /// Nobody wants the answer any more: the editor is told.
    fn drop(&mut self) {
        self.permissions.lock().remove(&self.id);
        if self.ended {
            return;
        }
        let cancel = lines::notification_line("$/cancel_request", &json!({ "requestId": self.id }));
        let card = status_line(&self.session, &self.id, ToolCallStatus::Failed);
        let editor = self.permissions.editor.clone();
        tokio::spawn(async move {
            let _ = editor.send(cancel).await;
            let _ = editor.send(card).await;
        });
    }
}

fn request(id: &str, question: &ApprovalQuestion) -> RequestPermissionRequest {
    let ApprovalQuestion { session, command, matched_command, cwd, rule, reason, others, .. } = question;
    let explanation = match reason.as_str() {
        "" => format!("The policy's rule \"{rule}\" asks before this runs."),
        reason => format!("{reason} (the policy's rule \"{rule}\" asks before this runs)"),
    };
    let mut about = if matched_command.is_empty() || (matched_command == command && others.is_empty()) {
        String::new()
    } else {
        format!("\n\nIt is about: {matched_command}")
    };
    for AskedCommand { command, rule, reason } in others {
        let separator = if reason.is_empty() { "" } else { ": " };
        about.push_str(&format!("\n\nAnd about (rule \"{rule}\"{separator}{reason}): {command}"));
    }
    let text = ContentBlock::Text(TextContent::new(printable::lines(&format!("{explanation}{about}"))));
    let fields = ToolCallUpdateFields::new()
        .title(printable::lines(command).into_owned())
        .kind(ToolKind::Execute)
        .status(ToolCallStatus::Pending)
        .content(vec![ToolCallContent::from(text)])
        .raw_input(json!({ "command": command, "cwd": cwd, "rule": rule }));
    let options = vec![
        PermissionOption::new(ALLOW, "Allow once", PermissionOptionKind::AllowOnce),
        PermissionOption::new(DENY, "Deny", PermissionOptionKind::RejectOnce),
    ];
    RequestPermissionRequest::new(session.clone(), ToolCallUpdate::new(id.to_owned(), fields), options)
}

/// What the editor shows of the question afterwards.
fn status_line(session: &SessionId, id: &str, status: ToolCallStatus) -> Vec<u8> {
    let update = ToolCallUpdate::new(id.to_owned(), ToolCallUpdateFields::new().status(status));
    let update = SessionNotification::new(session.clone(), SessionUpdate::ToolCallUpdate(update));
    lines::notification_line(CLIENT_METHOD_NAMES.session_update, &update)
}

fn id_text(id: &RawValue) -> Option<String> {
    serde_json::from_str(id.get()).ok()
}
