//! The suite as an agent that any editor can start: at a prompt it runs its cases and tells the verdicts as the
//! message that it answers with. A prompt that names cases (`TC-001 TC-017`) runs those.
//!
//! Cases that need the editor's own side are skipped here, and said to be.

use std::{io, io::IsTerminal, sync::Arc};

use serde_json::{Value, json};

use super::{
    context::TestContext,
    peer::{JsonRpcPeer, Mark, ReceivedMessage},
    roles::AgentSessions,
    suite::{self, ANSWER_TIMEOUT, Selection},
};

/// Why the suite cannot be an agent here.
#[derive(Debug, thiserror::Error)]
pub enum InEditorError {
    /// A person has started it at a prompt of the shell.
    #[error(
        "stdin is a terminal, and no editor: name a backend after \"--\", or let an editor start this as its agent"
    )]
    NoEditor,
}

/// Serves prompts until the editor goes.
pub async fn run_in_editor() -> Result<(), InEditorError> {
    if io::stdin().is_terminal() {
        return Err(InEditorError::NoEditor);
    }
    let sessions = AgentSessions::default();
    let agent = JsonRpcPeer::start(
        crate::stdio::stdin(),
        crate::stdio::stdout(),
        sessions.responder(),
        ANSWER_TIMEOUT,
    );
    let mut seen = Mark::START;
    loop {
        let now = agent.mark();
        for message in agent.received_between(seen, now) {
            if message.method() == "session/prompt" {
                serve(&agent, &sessions, &message).await;
            }
        }
        seen = now;
        if !agent.wait_past(seen).await {
            return Ok(());
        }
    }
}

async fn serve(agent: &Arc<JsonRpcPeer>, sessions: &AgentSessions, prompt: &ReceivedMessage) {
    let id = &prompt.message["id"];
    let session = prompt.params()["sessionId"].as_str().unwrap_or_default().to_owned();
    let Some(directory) = sessions.directory(&session) else {
        let error = json!({"code": -32002, "message": "there is no such session"});
        return agent.send(&json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
    };
    let selection = match Selection::parse(&case_names(prompt.params())) {
        Ok(selection) => selection,
        Err(error) => {
            send_text(agent, &session, &error.to_string()).await;
            return agent.answer(id, json!({"stopReason": "end_turn"})).await;
        }
    };
    let mark = agent.mark();
    let is_cancelled =
        || agent.received_since(mark).iter().any(|message| message.method() == "session/cancel");
    let report = suite::run_in(
        || TestContext::inside(agent.clone(), session.clone(), directory.clone()),
        &selection,
        || !is_cancelled(),
        async |verdict| send_text(agent, &session, &format!("{verdict}\n")).await,
    )
    .await;
    send_text(agent, &session, &format!("\n{report}\n")).await;
    let reason = if is_cancelled() { "cancelled" } else { "end_turn" };
    agent.answer(id, json!({"stopReason": reason})).await;
}

async fn send_text(agent: &JsonRpcPeer, session: &str, text: &str) {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
    agent.notify("session/update", json!({"sessionId": session, "update": update})).await;
}

/// The words of a prompt that are names of cases; none: every case.
fn case_names(params: &Value) -> String {
    let blocks = params["prompt"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let words = texts.flat_map(|text| text.split([',', ' ', '\n']));
    words.filter(|word| word.to_ascii_uppercase().starts_with("TC-")).collect::<Vec<_>>().join(",")
}
