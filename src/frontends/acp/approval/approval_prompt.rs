//! A policy's question, put to a person by the program that embeds the terminals.
//!
//! A command that a rule asks about waits at the gateway, which reports the question in a stream. The question is put to
//! the user, and the answer is given to the gateway in that user's name. Another approver may answer at the gateway
//! meanwhile: the first answer counts. Without a user to ask, the command is refused.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_client_protocol_schema::v1::SessionId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{
    client::Client,
    proto::v1::{
        Approval, ApprovalDecision, ApprovalState, AskedCommand, CreateTerminalRequest,
        CreateTerminalResponse, ResolveApprovalRequest, Terminal, WatchApprovalsRequest, approval,
    },
};

/// Before a stream of questions that broke off is asked for again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The longest comment that a gateway takes.
const COMMENT_MAX_BYTES: usize = 1_024;

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

/// Puts a question to a person. To drop the future is to take the question back.
pub type ApprovalPrompt =
    Arc<dyn Fn(ApprovalQuestion) -> Pin<Box<dyn Future<Output = ApprovalReply> + Send>> + Send + Sync>;

/// The creates of one session that wait, and what the gateway says of their questions.
#[derive(Debug, Default)]
pub(in crate::acp) struct PendingQuestions(Mutex<HashMap<String, oneshot::Sender<Approval>>>);

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

/// What becomes of questions that no create waits with.
pub(in crate::acp) trait WatchedApprovals: Send {
    /// One was put, or has changed.
    fn changed(&mut self, approval: Approval);
}

/// Listens to the questions of a session, until it is closed.
pub(in crate::acp) async fn watch_questions(
    client: Client,
    gateway_session: String,
    questions: Arc<PendingQuestions>,
    mut running: impl WatchedApprovals,
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

/// Creates a terminal; where a rule asks, a person is asked first. `gone` resolves when nobody wants the command any
/// more: to a question that is then open the answer is no. A question of a gateway that is lost is taken back; the same
/// request, sent to the next one, asks again.
pub(in crate::acp) async fn create_with_approval(
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
        reply = reply => match reply {
            ApprovalReply::Allow => (ApprovalDecision::Approve, String::new()),
            ApprovalReply::Deny(comment) => (ApprovalDecision::Deny, comment),
        },
        () = cancelled => (ApprovalDecision::Deny, "the agent took its request back".to_owned()),
    };
    resolve(&client, &approval_id, decision, comment).await?;
    creating.await.map(terminal_of)
}

fn terminal_of(response: tonic::Response<CreateTerminalResponse>) -> Terminal {
    response.into_inner().terminal.unwrap_or_default()
}

/// What is shown of an approval.
pub(in crate::acp) fn question(session: &SessionId, approval: Approval) -> ApprovalQuestion {
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
pub(in crate::acp) async fn resolve(
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
