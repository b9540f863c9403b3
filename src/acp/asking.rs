//! A policy's question, put to a person by whoever embeds the terminals.
//!
//! A command that a rule asks about is refused by the gateway with the question's id. The question is then put to the
//! one who is there to ask, the answer is given to the gateway in that person's name, and the same request is sent
//! again. Somebody else may answer at the gateway meanwhile: whoever is first counts. Without anybody to ask, the
//! command is refused.

use std::{future::Future, pin::Pin, sync::Arc};

use agent_client_protocol_schema::v1::SessionId;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{
    client::Client,
    proto::v1::{Approval, ApprovalDecision, ApprovalState, ResolveApprovalRequest, WatchApprovalsRequest},
};

/// The longest comment that a gateway takes.
const COMMENT_MAX_BYTES: usize = 1_024;

/// What a person is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The protocol's session.
    pub session: SessionId,
    /// The gateway's id of it.
    pub approval_id: String,
    /// The command with its arguments, as the agent gave it.
    pub command: String,
    /// The part of it that the rule asks about, in its normal form.
    pub asks_about: String,
    /// Where it is to run.
    pub cwd: String,
    /// The rule that asks.
    pub rule: String,
    /// What the rule gives for its reason; may be empty.
    pub reason: String,
}

/// What a person answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// This command may run, once.
    Allow,
    /// It may not, for this reason, which may be empty.
    Deny(String),
}

/// Puts a question to a person. To drop the future is to take the question back.
pub type Asker = Arc<dyn Fn(Question) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

/// The id of the question, where a create was refused because a person must be asked.
pub(super) fn asked(status: &Status) -> Option<String> {
    if status.code() != Code::PermissionDenied {
        return None;
    }
    let info = status.get_details_error_info()?;
    (info.reason == "APPROVAL_REQUIRED").then(|| info.metadata.get("approval_id").cloned()).flatten()
}

/// Asks, and tells the gateway the answer: the same request, sent again, runs, or is told why not. `gone` resolves when
/// nobody wants the command any more: that is a no, and the request is to be sent again all the same, because the answer
/// to a question is kept until the request that raised it has had it.
pub(super) async fn settle(
    client: &Client,
    ask: &Asker,
    (session, gateway_session): (&SessionId, &str),
    approval_id: &str,
    gone: impl Future<Output = ()>,
) -> Result<(), Status> {
    let request = WatchApprovalsRequest { session_id: gateway_session.to_owned() };
    let mut watch = client.approvals.clone().watch(request).await?.into_inner();
    let approval = loop {
        match watch.message().await? {
            Some(approval) if approval.id == approval_id => break approval,
            Some(_) => {}
            None => return Ok(()),
        }
    };
    if approval.state() != ApprovalState::Pending {
        return Ok(());
    }
    let reply = ask(question(session, approval));
    let elsewhere = async {
        while let Ok(Some(approval)) = watch.message().await {
            if approval.id == approval_id && approval.state() != ApprovalState::Pending {
                return;
            }
        }
    };
    let (decision, comment) = tokio::select! {
        reply = reply => match reply {
            Reply::Allow => (ApprovalDecision::Approve, String::new()),
            Reply::Deny(comment) => (ApprovalDecision::Deny, comment),
        },
        () = elsewhere => return Ok(()),
        () = gone => (ApprovalDecision::Deny, "the agent took its request back".to_owned()),
    };
    resolve(client, approval_id, decision, comment).await
}

fn question(session: &SessionId, approval: Approval) -> Question {
    let mut command = approval.command;
    for arg in &approval.args {
        command.push(' ');
        command.push_str(arg);
    }
    Question {
        session: session.clone(),
        approval_id: approval.id,
        command,
        asks_about: approval.asks_about,
        cwd: approval.cwd,
        rule: approval.rule,
        reason: approval.reason,
    }
}

async fn resolve(
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
        on_behalf_of: user(),
    };
    match client.approvals.clone().resolve(request).await {
        Ok(_) => Ok(()),
        // Somebody else was faster, or its time was over: the same request, sent again, is told.
        Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => Ok(()),
        Err(status) => Err(status),
    }
}

/// The person at the editor: the user that it runs as.
fn user() -> String {
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("uid:{uid}"),
    }
}
