//! Questions about execs and connections within commands that run, put to the user of the editor.
//!
//! No call of the agent's waits with such a question: the gateway holds it. Another approver may answer at the gateway
//! meanwhile, or the process may end; then the question is taken back.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::SessionId;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    approval_prompt::{self, ApprovalPrompt, ApprovalReply, WatchedApprovals},
    permission_requests::QUESTIONS_MAX,
};
use crate::{
    client::Client,
    proto::v1::{Approval, ApprovalDecision, ApprovalState},
};

/// The questions of one session.
pub(in crate::acp) struct ExecQuestions {
    client: Client,
    prompt: ApprovalPrompt,
    session: SessionId,
    /// Each is taken back when it is removed.
    open: HashMap<String, DropGuard>,
}

impl ExecQuestions {
    pub(in crate::acp) fn new(client: Client, prompt: ApprovalPrompt, session: String) -> Self {
        Self { client, prompt, session: SessionId::new(session), open: HashMap::new() }
    }
}

impl WatchedApprovals for ExecQuestions {
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
        let reply = (self.prompt)(approval_prompt::question(&self.session, approval));
        tokio::spawn(async move {
            let reply = tokio::select! {
                reply = reply => reply,
                () = over.cancelled() => return,
            };
            let (decision, comment) = match reply {
                ApprovalReply::Allow => (ApprovalDecision::Approve, String::new()),
                ApprovalReply::Deny(comment) => (ApprovalDecision::Deny, comment),
            };
            if let Err(status) = approval_prompt::resolve(&client, &approval_id, decision, comment).await {
                tracing::warn!(error = %status, "an answer about a running command does not reach the gateway");
            }
        });
    }
}
