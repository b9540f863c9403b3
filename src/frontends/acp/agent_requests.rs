//! Requests of the editor whose answers matter here: what opens sessions, and what ends them.
//!
//! Each goes on to the agent as it came, but for `initialize`, and but for tools that are offered to an agent that asks for no
//! terminals. What a request is about happens when the agent has answered, with
//! two exceptions: a session that is loaded may run commands before it is said to be there, and one that is closed ends
//! after a time, whatever the agent says. Nothing is sent from here.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use agent_client_protocol_schema::v1::{AGENT_METHOD_NAMES, Error, SessionId};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    approval::PermissionRequests,
    coverage::{AgentCoverage, NotCovered, OfferedServer},
    handshake::{self, AnsweredVersion, Handshake},
    lines::RawObject,
    sessions::Workspace,
    terminal::terminals::AcpTerminals,
    tool_calls::ToolCalls,
};
use crate::{json_rpc, proto::v1::Bypass};

/// Requests of the editor whose answers matter here that are remembered at once.
const PENDING_MAX: usize = 4_096;
/// How long an agent may take to answer that a session is closed, before its commands are stopped anyway.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Not in the stable table, as what follows.
const SESSION_FORK: &str = "session/fork";
/// Frees what a session holds, as closing does.
const SESSION_ARCHIVE: &str = "session/archive";

/// What the editor has asked, and was not answered yet.
#[derive(Debug)]
pub(super) struct AgentRequests {
    handshake: Arc<Handshake>,
    terminals: AcpTerminals,
    tool_calls: Arc<ToolCalls>,
    permissions: Arc<PermissionRequests>,
    coverage: Arc<AgentCoverage>,
    pending: Mutex<HashMap<String, PendingRequest>>,
}

/// What becomes of an answer of the agent's.
#[derive(Debug)]
pub(super) enum Completion {
    /// It goes on to the editor.
    Forward,
    /// The editor gets this error instead.
    Answer(Error),
    /// The agent gets this request again, and the editor nothing yet.
    AskAgain(Bytes),
}

/// One request.
#[derive(Debug)]
enum PendingRequest {
    Initialize {
        /// The version that the editor has asked for, where that is one without client terminals.
        later: Option<f64>,
        /// The request as the editor wrote it, until the agent was asked so.
        original: Option<Bytes>,
    },
    /// Opens a session that the agent names in its answer.
    OpensNew {
        workspace: Workspace,
        tools: Option<OfferedServer>,
    },
    /// Opens the session that it names.
    Opens {
        id: SessionId,
        workspace: Workspace,
        prior: PriorState,
        tools: Option<OfferedServer>,
    },
    Ends(SessionId),
}

/// Whether a session was there before it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriorState {
    Known,
    Unknown,
}

impl AgentRequests {
    pub(super) fn new(
        handshake: Arc<Handshake>,
        terminals: AcpTerminals,
        tool_calls: Arc<ToolCalls>,
        permissions: Arc<PermissionRequests>,
        coverage: Arc<AgentCoverage>,
    ) -> Arc<Self> {
        let pending = Mutex::default();
        Arc::new(Self { handshake, terminals, tool_calls, permissions, coverage, pending })
    }

    /// Whether the answers to requests of this method matter.
    pub(super) fn is_tracked(method: &str) -> bool {
        let names = &AGENT_METHOD_NAMES;
        [
            names.initialize,
            names.session_new,
            names.session_load,
            names.session_resume,
            SESSION_FORK,
            names.session_close,
            names.session_delete,
            SESSION_ARCHIVE,
        ]
        .contains(&method)
    }

    /// Whether an answer to this request is waited for.
    pub(super) fn is_pending(&self, id: &RawValue) -> bool {
        let open = self.lock();
        !open.is_empty() && open.contains_key(&json_rpc::id_key(id))
    }

    /// Remembers what a request will mean once it is answered, and gives it as the agent is to see it where that is not
    /// as it came.
    pub(super) async fn register(
        self: &Arc<Self>,
        line: &Bytes,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Vec<u8>> {
        if method == AGENT_METHOD_NAMES.initialize {
            let later = Handshake::later_version(params);
            let original = later.map(|_| line.clone());
            self.insert(id, PendingRequest::Initialize { later, original });
            return self.handshake.rewrite(line, params);
        }
        let raw = params?;
        let params = serde_json::from_str::<SessionParams>(raw.get()).ok()?;
        let mut asked = self.classify(method, params)?;
        let rewritten = match &mut asked {
            PendingRequest::OpensNew { workspace, tools }
            | PendingRequest::Opens { workspace, tools, .. } => {
                let offered = self.coverage.offer_tools(line, raw, workspace).await;
                offered.map(|(line, server)| {
                    *tools = server;
                    line
                })
            }
            PendingRequest::Ends(session) => {
                tokio::spawn(self.clone().close_after_timeout(json_rpc::id_key(id), session.clone()));
                None
            }
            PendingRequest::Initialize { .. } => None,
        };
        self.insert(id, asked);
        rewritten
    }

    /// Does what an answer means, and says who is to hear of it.
    pub(super) async fn complete(&self, line: &[u8], id: &RawValue, result: Option<&RawValue>) -> Completion {
        let asked = {
            let mut open = self.lock();
            if open.is_empty() { None } else { open.remove(&json_rpc::id_key(id)) }
        };
        match (asked, result) {
            (Some(PendingRequest::Initialize { later, original: _ }), Some(result)) => {
                return self.initialized(result, later);
            }
            (Some(PendingRequest::Initialize { later, original: Some(original) }), None)
                if handshake::refuses_version(line) =>
            {
                self.insert(id, PendingRequest::Initialize { later, original: None });
                return Completion::AskAgain(original);
            }
            (Some(PendingRequest::OpensNew { workspace, tools }), Some(result)) => {
                let id = RawObject::parse(result).and_then(|result| result.text("sessionId"));
                if let Some(id) = id.map(SessionId::new) {
                    self.coverage.keep(&id, tools);
                    self.session_opened(&id, workspace).await;
                }
            }
            (Some(PendingRequest::Opens { id, workspace, prior: _, tools }), Some(_)) => {
                self.coverage.keep(&id, tools);
                self.session_opened(&id, workspace).await;
            }
            // It could not be loaded: it is none, unless it was one before.
            (Some(PendingRequest::Opens { id, prior: PriorState::Unknown, .. }), None) => {
                self.end_session(id)
            }
            (Some(PendingRequest::Ends(session)), Some(_)) => {
                self.tool_calls.catch_up(&session, None).await;
                self.end_session(session);
            }
            (
                Some(
                    PendingRequest::Initialize { .. }
                    | PendingRequest::OpensNew { .. }
                    | PendingRequest::Opens { prior: PriorState::Known, .. }
                    | PendingRequest::Ends(_),
                ),
                None,
            )
            | (None, _) => {}
        }
        Completion::Forward
    }

    fn initialized(&self, result: &RawValue, later: Option<f64>) -> Completion {
        match self.handshake.judge(result, later) {
            AnsweredVersion::WithTerminals(transport) => self.coverage.set_transport(transport),
            AnsweredVersion::Later { version, transport } => {
                self.coverage.set_transport(transport);
                self.coverage.is_lacking(NotCovered::Version(version));
            }
            AnsweredVersion::Refused(error) => {
                tracing::error!(error = error.message, "agent refused");
                return Completion::Answer(error);
            }
        }
        Completion::Forward
    }

    async fn session_opened(&self, id: &SessionId, workspace: Workspace) {
        self.terminals.open_session(id, workspace.cwd, workspace.additional);
        if self.coverage.is_known_before() {
            self.terminals.report_bypass(id, Bypass::AgentNotCovered).await;
        }
    }

    fn classify(&self, method: &str, params: SessionParams) -> Option<PendingRequest> {
        let names = &AGENT_METHOD_NAMES;
        if [names.session_close, names.session_delete, SESSION_ARCHIVE].contains(&method) {
            return params.session_id.map(PendingRequest::Ends);
        }
        let known = params.session_id.as_ref().and_then(|id| self.terminals.workspace_of(id));
        let workspace = match params.cwd {
            Some(cwd) => Workspace { cwd, additional: params.additional_directories.unwrap_or_default() },
            // Drafts leave it out where there is one to go on with: that of the session itself, or that it is forked from.
            None => known.clone()?,
        };
        if method == names.session_new || method == SESSION_FORK {
            return Some(PendingRequest::OpensNew { workspace, tools: None });
        }
        let id = params.session_id?;
        let before = if known.is_some() { PriorState::Known } else { PriorState::Unknown };
        if before == PriorState::Unknown {
            // It may run commands before it is answered that it is loaded.
            self.terminals.open_session(&id, workspace.cwd.clone(), workspace.additional.clone());
        }
        Some(PendingRequest::Opens { id, workspace, prior: before, tools: None })
    }

    fn insert(&self, id: &RawValue, what: PendingRequest) {
        let mut open = self.lock();
        if open.len() < PENDING_MAX {
            open.insert(json_rpc::id_key(id), what);
        } else {
            tracing::warn!(limit = PENDING_MAX, "the agent leaves too many requests without an answer");
        }
    }

    /// Ends a session in the background.
    fn end_session(&self, session: SessionId) {
        let tool_calls = self.tool_calls.clone();
        self.permissions.cancel(&session);
        self.coverage.session_ended(&session);
        let closed = self.terminals.close_session(&session);
        tokio::spawn(async move {
            closed.await;
            tool_calls.remove_session(&session).await;
        });
    }

    /// Ends a session that the editor has closed, where the agent does not answer in time.
    async fn close_after_timeout(self: Arc<Self>, key: String, session: SessionId) {
        tokio::time::sleep(CLOSE_TIMEOUT).await;
        let is_asked =
            matches!(self.lock().get(&key), Some(PendingRequest::Ends(asked)) if *asked == session);
        if is_asked {
            self.end_session(session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PendingRequest>> {
        self.pending.lock().expect("no code panics while it holds what was asked")
    }
}

/// What requests about sessions have in common. A part that is not what it should be is the agent's to refuse.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: Option<SessionId>,
    cwd: Option<PathBuf>,
    additional_directories: Option<Vec<PathBuf>>,
}
