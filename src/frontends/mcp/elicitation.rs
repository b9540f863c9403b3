//! What a rule asks, put to the person at the client by the protocol's elicitation.
//!
//! Only if the command line says so: the client is the agent, and may answer for the person. An answer that is not a
//! clear yes is no.

use std::time::Duration;

use rmcp::model::{
    BooleanSchema, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, PrimitiveSchemaDefinition, ServerRequest,
};
use tokio::time::timeout;
use tonic::Status;

use super::session::{Asked, Caller};
use crate::{
    client::Client,
    printable,
    proto::v1::{ApprovalDecision, ResolveApprovalRequest},
};

/// How long a person may take. The gateway's own time, which may be shorter, ends the question too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest command that is shown, in bytes.
const COMMAND_SHOWN_BYTES: usize = 2_048;
/// The field of the form.
const FIELD: &str = "approve";

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
pub(super) enum Answer {
    Yes,
    No,
    /// The client cannot ask, or has not answered.
    None,
}

/// Asks the person at the client.
pub(super) async fn ask(caller: &Caller, approval: &str, command: &str, why: &str) -> Answer {
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
pub(super) async fn resolve(
    client: &Client,
    approval_id: &str,
    decision: ApprovalDecision,
) -> Result<(), Status> {
    let request = ResolveApprovalRequest {
        approval_id: approval_id.to_owned(),
        decision: decision.into(),
        comment: "by the MCP client's elicitation".to_owned(),
        on_behalf_of: "the person at the MCP client".to_owned(),
    };
    client.approvals.clone().resolve_approval(request).await.map(drop)
}
