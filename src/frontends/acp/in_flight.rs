//! The agent's terminal requests that are being answered.
//!
//! Each is answered in a task of its own, in whatever order the answers come, and can be cancelled until then: the answer
//! is then that it was cancelled, and nothing of it is left. Every request gets exactly one answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, ErrorCode};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    errors,
    lines::{self, RawObject},
    terminal::terminals::AcpTerminals,
};
use crate::json_rpc::{self, Disconnected, LineSender};

/// Requests that may wait for their answers at once. More are refused.
pub(super) const IN_FLIGHT_MAX: usize = 1_024;
/// Answers with a terminal's output that are made at once, and wait to be sent. They are large.
const OUTPUTS_MAX: usize = 16;

/// The requests of one agent.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    agent: LineSender,
    terminals: AcpTerminals,
    open: Mutex<HashMap<String, InFlightRequest>>,
    next: AtomicU64,
    outputs: Semaphore,
}

/// One request. An agent that uses an id twice at once has two of them.
#[derive(Debug)]
struct InFlightRequest {
    number: u64,
    cancelled: CancellationToken,
}

impl InFlightRequests {
    pub(super) fn new(agent: LineSender, terminals: AcpTerminals) -> Arc<Self> {
        Arc::new(Self {
            agent,
            terminals,
            open: Mutex::default(),
            next: AtomicU64::new(0),
            outputs: Semaphore::new(OUTPUTS_MAX),
        })
    }

    /// Begins to answer a request. What it names is looked up before this returns.
    pub(super) async fn begin(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), Disconnected> {
        let Some(call) = self.open(id) else {
            let error = errors::too_many("requests", IN_FLIGHT_MAX);
            return self.agent.send(lines::error_line(Some(id), &error)).await;
        };
        let answer = self.terminals.answer(method, params);
        let is_output = method == CLIENT_METHOD_NAMES.terminal_output;
        let (calls, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            // Held until the answer is in the queue: an agent that asks and does not read fills no memory.
            let mut permit = None;
            let answering = async {
                if is_output {
                    permit = calls.outputs.acquire().await.ok();
                }
                match answer {
                    Some(answer) => answer.await,
                    None => Err(ErrorCode::MethodNotFound.into()),
                }
            };
            let result = tokio::select! {
                result = answering => result,
                () = call.cancelled.cancelled() => Err(errors::cancelled()),
            };
            let line = match &result {
                Ok(result) => lines::result_line(&id, result),
                Err(error) => lines::error_line(Some(&id), error),
            };
            // An agent that is gone needs no answer.
            let _ = calls.agent.send(line).await;
            drop(permit);
            calls.close(&id, call.number);
        });
        Ok(())
    }

    /// Cancels the request that a notification names. False where it is none of these.
    pub(super) fn cancel(&self, params: Option<&RawValue>) -> bool {
        let Some(params) = params.and_then(RawObject::parse) else { return false };
        let Some(id) = params.get("requestId").map(json_rpc::id_key) else { return false };
        match self.lock().get(&id) {
            Some(call) => {
                call.cancelled.cancel();
                true
            }
            None => false,
        }
    }

    fn open(&self, id: &RawValue) -> Option<InFlightRequest> {
        let mut open = self.lock();
        if open.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        open.insert(json_rpc::id_key(id), InFlightRequest { number, cancelled: cancelled.clone() });
        Some(InFlightRequest { number, cancelled })
    }

    fn close(&self, id: &RawValue, number: u64) {
        let (mut open, key) = (self.lock(), json_rpc::id_key(id));
        if open.get(&key).is_some_and(|call| call.number == number) {
            open.remove(&key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, InFlightRequest>> {
        self.open.lock().expect("no code panics while it holds the calls")
    }
}
