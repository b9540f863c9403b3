//! A question that is put by a call's answer: the client sends the call again, with what the person says. From the protocol version
//! 2026-07-28 on this is the only way to ask while a call is under way.

use std::sync::{Arc, OnceLock};

use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, InputRequest,
        InputRequiredResult, ProtocolVersion,
    },
    service::RequestContext,
};
use serde_json::Value;

/// The key of the question in an answer. There is one at most.
pub(super) const QUESTION: &str = "approval";

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
