//! Questions of the policy, put to the editor as `session/request_permission`.
//!
//! To the editor it is the agent that asks. The answer never reaches the agent, which did not ask; what it learns is
//! what became of its command. Only "allow once" is offered: what is allowed for good is for the policy's files.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, ContentBlock, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionId, SessionNotification, SessionUpdate,
    TextContent, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::{json, value::RawValue};
use tokio::sync::oneshot;
use ulid::Ulid;

use super::approval_prompt::{ApprovalQuestion, ApprovalReply};
use crate::{
    acp::wire::{encode, framing::LineSender},
    printable,
    proto::v1::AskedCommand,
};

/// Questions that may be open at once. More are answered with no.
pub const QUESTIONS_MAX: usize = 256;
const ALLOW: &str = "provost-allow-once";
const DENY: &str = "provost-deny-once";

/// The questions that the editor has not answered.
#[derive(Debug)]
pub(in crate::acp) struct PermissionRequests {
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
    pub(in crate::acp) fn new(editor: LineSender) -> Arc<Self> {
        Arc::new(Self { editor, prefix: format!("provost-{}-", Ulid::generate()), open: Mutex::default() })
    }

    /// Asks, and waits for the answer. Dropped, it takes the question back.
    pub(in crate::acp) async fn ask(self: Arc<Self>, question: ApprovalQuestion) -> ApprovalReply {
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
        let line = encode::request_line(&asked.id, CLIENT_METHOD_NAMES.session_request_permission, &request);
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
    pub(in crate::acp) fn is_own_id(&self, id: &RawValue) -> bool {
        id.get().get(1..).is_some_and(|text| text.starts_with(&self.prefix))
    }

    /// Takes the editor's answer. An error, or an answer that says something else, is a no.
    pub(in crate::acp) fn resolve(&self, id: &RawValue, result: Option<&RawValue>) {
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
    pub(in crate::acp) fn cancel(&self, session: &SessionId) {
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
        let cancel = encode::notification_line("$/cancel_request", &json!({ "requestId": self.id }));
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
    encode::notification_line(CLIENT_METHOD_NAMES.session_update, &update)
}

fn id_text(id: &RawValue) -> Option<String> {
    serde_json::from_str(id.get()).ok()
}
