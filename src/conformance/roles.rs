//! What the two ends that the suite plays answer to: a minimal editor, and an agent that does as it is told.
//!
//! The editor offers no terminals: an agent that asks it for one is at fault.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};

use super::peer::{Responder, Response};

/// What the editor says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditorKind {
    /// It knows no terminals at all.
    Plain,
    /// It shows terminal output that comes in `_meta`.
    Streaming,
    /// It would rather speak a version that has no terminals.
    Newer,
    /// The same, with an agent that speaks no other.
    Later,
}

impl EditorKind {
    /// The parameters of its `initialize`.
    pub(super) fn initialize(self) -> Value {
        let mut capabilities =
            json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": false});
        if self == Self::Streaming {
            capabilities["_meta"] = json!({"terminal_output": true});
        }
        json!({
            "protocolVersion": if matches!(self, Self::Newer | Self::Later) { 2 } else { 1 },
            "clientCapabilities": capabilities,
            "clientInfo": {"name": "acp-conformance", "title": "Conformance suite", "version": "1"},
            "_meta": {"conformance": if self == Self::Later { json!("later") } else { json!([1, "two", null]) }},
        })
    }

    /// What it answers to an agent's requests.
    pub(super) fn responder() -> Responder {
        Box::new(|method, params| match method {
            "fs/read_text_file" => {
                Response::Result(json!({"content": format!("content of {}", params["path"])}))
            }
            "fs/write_text_file" => Response::Result(json!({})),
            "session/request_permission" => Response::Result(permission(params)),
            "_conformance/echo" => Response::Result(params.clone()),
            "_conformance/fail" => Response::Error(-31999, "failed as asked"),
            "_conformance/later" => Response::Deferred,
            _ => Response::Error(-32601, "method not found"),
        })
    }
}

/// Chooses the first option that allows.
fn permission(params: &Value) -> Value {
    let allows = |option: &&Value| option["kind"].as_str().is_some_and(|kind| kind.starts_with("allow"));
    match params["options"].as_array().and_then(|options| options.iter().find(allows)) {
        Some(option) => json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}}),
        None => json!({"outcome": {"outcome": "cancelled"}}),
    }
}

/// The sessions that the agent has given out: id to working directory.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentSessions(Arc<Mutex<BTreeMap<String, PathBuf>>>);

impl AgentSessions {
    fn add(&self, params: &Value) -> String {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("conformance-{}", sessions.len() + 1);
        sessions.insert(id.clone(), PathBuf::from(params["cwd"].as_str().unwrap_or("/")));
        id
    }

    /// The working directory of a session.
    pub(super) fn directory(&self, id: &str) -> Option<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// What the agent answers to an editor's requests.
    pub(super) fn responder(&self) -> Responder {
        let sessions = self.clone();
        Box::new(move |method, params| match method {
            "initialize" if params["_meta"]["conformance"] == "later" => Response::Result(json!({
                "protocolVersion": 2,
                "capabilities": {"session": {"mcp": {"stdio": {}}}},
                "info": {"name": "acp-conformance", "title": "Conformance suite", "version": "1"},
            })),
            "initialize" => Response::Result(json!({
                "protocolVersion": 1,
                "agentCapabilities": {
                    "loadSession": true,
                    "promptCapabilities": {"image": false, "audio": false, "embeddedContext": false},
                    "sessionCapabilities": {"close": {}, "delete": {}, "fork": {}, "list": {}, "resume": {}},
                },
                "agentInfo": {"name": "acp-conformance", "title": "Conformance suite", "version": "1"},
                "authMethods": [],
            })),
            "session/new" | "session/fork" => Response::Result(json!({"sessionId": sessions.add(params)})),
            "session/load" if params["_meta"]["conformance"] == "refuse" => {
                Response::Error(-32002, "refused as asked")
            }
            "session/load" | "session/resume" | "session/close" | "session/delete" | "authenticate" => {
                Response::Result(json!({}))
            }
            "session/prompt" => Response::Deferred,
            "_conformance/echo" => Response::Result(params.clone()),
            "_conformance/fail" => Response::Error(-31999, "failed as asked"),
            "_conformance/later" => Response::Deferred,
            _ => Response::Error(-32601, "method not found"),
        })
    }
}
