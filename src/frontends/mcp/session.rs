//! The client's session at the gateway: opened when its first command comes, closed when the client goes away.
//!
//! Its directories are fixed when it is first opened. A gateway that has closed it, because it was told to stop
//! everything, gets it opened again with the same ones.
//!
//! The directories are those that the command line allows, narrowed by those that the client works in. A client can only narrow: what it
//! names beyond the allowed directories is left out.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rmcp::{Peer, RoleServer, ServiceError, model::ClientCapabilities};
use tokio::{sync::Mutex, time::timeout};

use super::{
    ClientRoots, McpOptions,
    errors::ToolError,
    tasks::{CommandTask, RetriedCall},
};
use crate::{
    client::{self, FrontEnd, RetryingClient, client_label},
    file_uri, printable,
    proto::v1,
};

/// How long a client may take to name its roots.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(10);
/// How many of them are read.
const ROOTS_READ_MAX: usize = 64;
/// The label with the client's name, as it says itself.
const CLIENT_LABEL: &str = "mcp.client";

/// Who calls, as far as it has said so.
pub(super) struct Caller {
    pub(super) peer: Peer<RoleServer>,
    pub(super) capabilities: Option<ClientCapabilities>,
    pub(super) name: Option<String>,
    /// How it is asked what a rule asks.
    pub(super) asked: Asked,
}

/// How the person at a client is asked.
pub(super) enum Asked {
    /// By a request to the client.
    Request,
    /// When the client asks how its task goes.
    Task(Arc<CommandTask>),
    /// By the call's answer.
    Answer(Arc<RetriedCall>),
}

/// The session of one client.
#[derive(Debug)]
pub(super) struct McpSession {
    client: RetryingClient,
    allowed: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
    extent: v1::WorkspaceExtent,
    client_roots: ClientRoots,
    profile: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What it was opened with, and what the gateway then called these directories.
    roots: Option<(Vec<PathBuf>, Vec<String>)>,
    id: Option<String>,
    is_closed: bool,
}

impl McpSession {
    pub(super) fn new(client: RetryingClient, options: &McpOptions) -> Self {
        Self {
            client,
            allowed: options.roots.clone(),
            read_only: options.read_only.clone(),
            extent: options.extent,
            client_roots: options.client_roots,
            profile: options.profile.clone().unwrap_or_default(),
            state: Mutex::default(),
        }
    }

    /// The gateway's id of the session, if it is open there.
    pub(super) async fn id(&self) -> Option<String> {
        self.state.lock().await.id.clone()
    }

    /// The gateway's id of the session, which is opened if it is not. `stale` is an id that the gateway does not know.
    pub(super) async fn open(&self, caller: &Caller, stale: Option<&str>) -> Result<String, ToolError> {
        let mut state = self.state.lock().await;
        if state.is_closed {
            return Err(ToolError::cancelled());
        }
        match &state.id {
            Some(id) if stale != Some(id) => return Ok(id.clone()),
            Some(_) | None => {}
        }
        state.id = None;
        let roots = match &state.roots {
            Some((roots, _)) => roots.clone(),
            None => self.roots_for(caller).await?,
        };
        let opened = self.open_at_gateway(&roots, caller).await?;
        let (id, real) = (opened.id, opened.roots);
        tracing::info!(gateway.session = id, ?roots, "session opened at the gateway");
        // A command could have changed where a name leads.
        if let Some((_, known)) = &state.roots
            && *known != real
        {
            self.close_at_gateway(&id).await;
            return Err(ToolError::no_root(
                "Nothing was run: the workspace is another directory than before.",
            ));
        }
        (state.roots, state.id) = (Some((roots, real)), Some(id.clone()));
        Ok(id)
    }

    /// Stops and releases everything of the session. Nothing is opened afterwards.
    pub(super) async fn close(&self) {
        let opened = {
            let mut state = self.state.lock().await;
            state.is_closed = true;
            state.id.take()
        };
        if let Some(session_id) = opened {
            self.close_at_gateway(&session_id).await;
        }
    }

    async fn close_at_gateway(&self, session_id: &str) {
        if let Err(status) = self.client.client().close_session(session_id).await {
            // It ends with this process too.
            tracing::warn!(error = %status, "cannot close the session");
        }
    }

    async fn open_at_gateway(&self, roots: &[PathBuf], caller: &Caller) -> Result<v1::Session, ToolError> {
        let label = caller.name.as_deref().and_then(|name| client_label(CLIENT_LABEL, name));
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let request = FrontEnd::Mcp.sign(v1::CreateSessionRequest {
            roots: roots.iter().map(text).collect(),
            read_only_roots: self.read_only.iter().map(text).collect(),
            extent: self.extent.into(),
            labels: label.into_iter().collect(),
            profile: self.profile.clone(),
            ssh_agent: client::ssh_agent_socket(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            request_id: ulid::Ulid::generate().to_string(),
            ..Default::default()
        });
        self.client.open_session(request).await.map_err(|status| ToolError::not_started(&status))
    }

    /// The allowed directories, as far as the client works in them.
    async fn roots_for(&self, caller: &Caller) -> Result<Vec<PathBuf>, ToolError> {
        let has_roots = caller.capabilities.as_ref().is_some_and(|capabilities| capabilities.roots.is_some());
        if self.client_roots == ClientRoots::Ignored || !has_roots {
            return Ok(self.allowed.clone());
        }
        let named = match timeout(ROOTS_TIMEOUT, roots_of(&caller.peer)).await {
            Ok(Ok(named)) if named.is_empty() => return Ok(self.allowed.clone()),
            Ok(Ok(named)) => named,
            Ok(Err(error)) => {
                tracing::info!(%error, "the client does not name its roots");
                return Ok(self.allowed.clone());
            }
            Err(_) => {
                return Err(ToolError::no_root("The client has not named its roots in time. Try again."));
            }
        };
        let real: Vec<PathBuf> = named
            .iter()
            .filter_map(|uri| Path::new(&file_uri::path_of(uri).ok()?).canonicalize().ok())
            .collect();
        let allowed: Vec<_> = self.allowed.iter().filter_map(|root| root.canonicalize().ok()).collect();
        // By the user's own names for them: a command can have made a link of the client's.
        let narrowed: Vec<PathBuf> =
            narrowed(&allowed, &real).into_iter().map(|root| named_below(root, &self.allowed)).collect();
        if narrowed.is_empty() {
            let show = |paths: &mut dyn Iterator<Item = String>| paths.collect::<Vec<_>>().join(", ");
            return Err(ToolError::no_root(&format!(
                "Nothing was run: the client works in {}, and this server may use {}. The user can allow more with \
                 `provost mcp --root DIR`.",
                show(&mut named.iter().map(|uri| printable::line(uri).into_owned())),
                show(&mut self.allowed.iter().map(|root| printable::path(root))),
            )));
        }
        Ok(narrowed)
    }
}

/// What the client names. A server cannot ask for it in the newest protocol, where roots are deprecated.
#[allow(deprecated)]
async fn roots_of(peer: &Peer<RoleServer>) -> Result<Vec<String>, ServiceError> {
    let listed = peer.list_roots().await?;
    Ok(listed.roots.into_iter().take(ROOTS_READ_MAX).map(|root| root.uri).collect())
}

/// What lies both in an allowed directory and in one of the client's, each directory once.
fn narrowed(allowed: &[PathBuf], client: &[PathBuf]) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for of_client in client {
        for allowed in allowed {
            let inner = match (of_client.starts_with(allowed), allowed.starts_with(of_client)) {
                (true, _) => of_client,
                (false, true) => allowed,
                (false, false) => continue,
            };
            if !roots.iter().any(|root| inner.starts_with(root)) {
                roots.retain(|root| !root.starts_with(inner));
                roots.push(inner.clone());
            }
        }
    }
    roots
}

/// A directory by the name that it has below one of these, which links may lead to.
fn named_below(real: PathBuf, names: &[PathBuf]) -> PathBuf {
    let below = |name: &PathBuf| Some(name.join(real.strip_prefix(name.canonicalize().ok()?).ok()?));
    names.iter().find_map(below).map_or(real.clone(), |named| named.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_client_narrows_and_never_widens() {
        let allowed = paths(&["/work/a", "/work/b"]);
        for (client, roots) in [
            (&["/work/a/sub"][..], &["/work/a/sub"][..]),
            (&["/work"], &["/work/a", "/work/b"]),
            (&["/work/a", "/etc"], &["/work/a"]),
            (&["/work/a/x", "/work/a"], &["/work/a"]),
            (&["/work/a", "/work/a/x"], &["/work/a"]),
            (&["/work/abc", "/"], &["/work/a", "/work/b"]),
            (&["/etc"], &[]),
            (&["/work/ab"], &[]),
            (&[], &[]),
        ] {
            assert_eq!(narrowed(&allowed, &paths(client)), paths(roots), "{client:?}");
        }
    }
}
