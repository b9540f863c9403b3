//! The protocol's sessions and their subagents, each as a session of the gateway whose workspace is the session's directory.
//!
//! Opened at the gateway when its first command comes, so that a session without commands costs nothing there. A
//! session that was closed is not found again; what was still opening for it is closed as soon as it is open.
//!
//! An agent opens sessions for its subagents, and announces them in the session that they belong to. Where such a child works is what the
//! agent says, and the agent is not who is trusted with that: a child runs its commands in the session of the gateway's that its parent
//! has, with the parent's directories and no others, and only where they start is the child's own. Its terminals are its own as well. It
//! ends with its parent, and an editor's session is never made one.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_client_protocol_schema::v1::Error;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    approval::{self, ApprovalPrompt, ExecQuestions, PendingQuestions},
    errors,
    lines::RawObject,
};
use crate::{
    client::{self, FrontEnd, RetryingClient},
    proto::v1,
};

/// Sessions that are kept track of at once. More are refused their commands.
pub const SESSIONS_MAX: usize = 1_024;
/// How many of these can be sessions of subagents, which the agent opens. More cannot run commands.
pub(super) const SUBAGENTS_MAX: usize = 512;
/// The longest id that becomes a label.
const LABEL_MAX_BYTES: usize = 128;
/// The longest id of a subagent, and its longest path: what has a longer one is not heeded.
const ID_MAX_BYTES: usize = 1 << 10;
const PATH_MAX_BYTES: usize = 4 << 10;
/// How long the agent's messages wait for the journal to say what it has done.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Nobody is there to press a key. What the profile or a caller names itself wins.
const NON_INTERACTIVE_ENV: [(&str, &str); 3] =
    [("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

/// Whether a user is there to be asked.
#[derive(Clone)]
pub(super) enum Approver {
    /// What a rule asks is put to the user by this.
    Present(ApprovalPrompt),
    /// It cannot be put.
    Absent,
}

impl std::fmt::Debug for Approver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Present(_) => "Present",
            Self::Absent => "Absent",
        })
    }
}

/// Directories that every session has alongside its own: named by the person who starts the agent, and not by the agent.
#[derive(Debug, Clone, Default)]
pub struct SharedDirectories {
    /// Commands may write in them.
    pub writable: Vec<PathBuf>,
    /// Commands may read them.
    pub read_only: Vec<PathBuf>,
}

/// All sessions of one connection.
#[derive(Debug)]
pub(super) struct AcpSessions {
    client: RetryingClient,
    profile: String,
    shared: SharedDirectories,
    approver: Approver,
    by_id: Mutex<HashMap<String, Arc<AcpSession>>>,
}

impl AcpSessions {
    pub(super) fn new(
        client: RetryingClient,
        profile: Option<String>,
        shared: SharedDirectories,
        approver: Approver,
    ) -> Self {
        Self { client, profile: profile.unwrap_or_default(), shared, approver, by_id: Mutex::default() }
    }

    /// Knows a session from now on. One that is known with another workspace is given back, to be closed.
    pub(super) fn register(&self, id: &str, workspace: Workspace) -> Option<Arc<AcpSession>> {
        let mut by_id = self.lock();
        if by_id.get(id).is_some_and(|known| known.parent.is_none() && known.workspace == workspace) {
            return None;
        }
        if by_id.len() >= SESSIONS_MAX && !by_id.contains_key(id) {
            tracing::warn!(
                session = id,
                limit = SESSIONS_MAX,
                "too many sessions: this one cannot run commands"
            );
            return None;
        }
        let session = AcpSession::new(id, workspace, None);
        let other = by_id.insert(id.to_owned(), Arc::new(session));
        other.inspect(|other| close_with_subagents(other, &mut by_id))
    }

    /// Knows a subagent's session from now on, or where it has moved to. What the editor has opened is not the agent's to
    /// move.
    pub(super) fn register_subagent(&self, announced: SubagentAnnouncement) {
        let mut by_id = self.lock();
        let Some(parent) = by_id.get(&announced.parent).cloned() else { return };
        if let Some(known) = by_id.get(&announced.child) {
            if known.parent.is_some() && Arc::ptr_eq(&known.root(), &parent.root()) {
                known.set_start_dir(announced.start);
            }
            return;
        }
        let subagents = by_id.values().filter(|session| session.parent.is_some()).count();
        if subagents >= SUBAGENTS_MAX || by_id.len() >= SESSIONS_MAX {
            tracing::warn!(
                session = announced.child,
                limit = SUBAGENTS_MAX,
                "too many subagents: this one cannot run commands"
            );
            return;
        }
        let session = AcpSession::new(&announced.child, parent.workspace.clone(), Some(parent));
        session.set_start_dir(announced.start);
        by_id.insert(announced.child, Arc::new(session));
    }

    /// A session that is known.
    pub(super) fn find(&self, id: &str) -> Option<Arc<AcpSession>> {
        self.lock().get(id).cloned()
    }

    /// Knows a session no longer, from this moment on.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<AcpSession>> {
        let mut by_id = self.lock();
        by_id.remove(id).inspect(|session| close_with_subagents(session, &mut by_id))
    }

    /// Knows none any longer. Gives those that have others end with them.
    pub(super) fn remove_all(&self) -> Vec<Arc<AcpSession>> {
        let all: Vec<_> = self.lock().drain().map(|(_, session)| session).collect();
        all.iter().for_each(|session| session.closed.cancel());
        all.into_iter().filter(|session| session.parent.is_none()).collect()
    }

    /// The gateway's id of a session, opened there when it is not yet.
    pub(super) async fn open(&self, session: &AcpSession) -> Result<String, Error> {
        let root = session.root_of();
        let opened = {
            let _turn = root.open_lock.lock().await;
            match root.gateway_id() {
                Some(opened) => opened,
                None => {
                    let opened = self.open_at_gateway(root).await?;
                    *root.lock() = Some(opened.clone());
                    opened
                }
            }
        };
        if root.is_closed() {
            // It was closed while it was being opened; to close it twice does no harm.
            self.close_at_gateway(&opened).await;
        }
        if session.is_closed() { Err(errors::unknown_session()) } else { Ok(opened) }
    }

    /// The gateway knows `unknown` no longer, although nobody here has closed it: it is opened again. A gateway that was
    /// told to stop everything closes its sessions.
    pub(super) async fn reopen(&self, session: &AcpSession, stale_id: &str) -> Result<String, Error> {
        {
            let mut opened = session.root_of().lock();
            if opened.as_deref() == Some(stale_id) {
                *opened = None;
            }
        }
        self.open(session).await
    }

    /// Has the gateway record in its journal what bypasses it in a session.
    pub(super) async fn report_bypass(&self, session: &AcpSession, bypass: v1::Bypass) {
        let reported = async {
            let session_id = self.open(session).await.map_err(|error| error.message)?;
            let request = v1::ReportBypassRequest { session_id, bypass: bypass.into() };
            self.client
                .client()
                .sessions
                .report_bypass(request)
                .await
                .map_err(|status| status.message().to_owned())
        };
        match tokio::time::timeout(REPORT_TIMEOUT, reported).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!(session = session.id, why, "the journal does not say so"),
            Err(_) => tracing::warn!(
                session = session.id,
                "the gateway does not answer: the journal may not say so"
            ),
        }
    }

    /// Stops and releases everything of a session that is known no longer. Returns when nothing is left.
    pub(super) async fn close(&self, session: &AcpSession) {
        if let Some(opened) = session.gateway_id() {
            self.close_at_gateway(&opened).await;
        }
    }

    async fn open_at_gateway(&self, session: &AcpSession) -> Result<String, Error> {
        let request = self.request(session)?;
        // A lost answer leads to two: one stays empty, and ends with this process.
        let opened = self.client.call(|client| {
            let request = request.clone();
            async move { client.sessions.clone().create_session(request).await }
        });
        let opened = opened.await.map_err(|status| errors::from_session_status(&status))?;
        let opened = opened.into_inner().session.unwrap_or_default();
        let not_taken = opened.repository.as_ref().map_or("", |repository| &repository.not_taken);
        if !not_taken.is_empty() {
            tracing::warn!(
                session = session.id,
                reason = not_taken,
                "the workspace is the session's directory alone, without the repository around it"
            );
        }
        let opened = opened.id;
        let missing = self.missing_variables(&opened).await;
        let id =
            if missing.is_empty() { opened } else { self.reopen_with_env(request, missing, opened).await };
        tracing::info!(session = session.id, gateway.session = id, "session opened at the gateway");
        if let Approver::Present(prompt) = &self.approver {
            let (questions, closed) = (session.questions.clone(), session.closed.clone());
            let client = self.client.client();
            let execs = ExecQuestions::new(client.clone(), prompt.clone(), session.id.clone());
            tokio::spawn(approval::watch_questions(client, id.clone(), questions, execs, closed));
        }
        Ok(id)
    }

    /// Those variables for when nobody is there about which the profile says nothing.
    async fn missing_variables(&self, gateway_session: &str) -> Vec<v1::EnvVar> {
        let command = v1::CreateTerminalRequest {
            session_id: gateway_session.to_owned(),
            command: Some(v1::create_terminal_request::Command::Program("true".to_owned())),
            ..client::new_terminal()
        };
        let request = v1::ExplainRequest { create: Some(command) };
        let explained = self.client.client().policies.explain(request).await;
        // Where it cannot be known they are asked for, and a profile that refuses them says so.
        let known = explained.ok().and_then(|answer| answer.into_inner().run).map(|run| run.env_names);
        let known = known.unwrap_or_default();
        let missing = NON_INTERACTIVE_ENV.iter().filter(|(name, _)| !known.iter().any(|known| known == name));
        missing
            .map(|(name, value)| v1::EnvVar {
                name: (*name).into(),
                value: (*value).into(),
                ..Default::default()
            })
            .collect()
    }

    /// Opens the session again with more variables, in the place of the one that is open; that stays where the profile
    /// refuses the variables.
    async fn reopen_with_env(
        &self,
        request: v1::CreateSessionRequest,
        env: Vec<v1::EnvVar>,
        opened: String,
    ) -> String {
        match self.client.client().sessions.create_session(v1::CreateSessionRequest { env, ..request }).await
        {
            Ok(again) => {
                self.close_at_gateway(&opened).await;
                again.into_inner().session.unwrap_or_default().id
            }
            Err(status) => {
                tracing::info!(error = %status, "the profile has no place for PAGER and its like");
                opened
            }
        }
    }

    fn request(&self, session: &AcpSession) -> Result<v1::CreateSessionRequest, Error> {
        let Workspace { cwd, additional } = &session.workspace;
        if !cwd.is_absolute() {
            return Err(errors::bad_parameter("cwd of the session", "must be an absolute path"));
        }
        // One that is not there, or no directory, is no place to work in, and no reason to refuse all the others.
        let there = additional.iter().filter(|directory| directory.is_absolute() && directory.is_dir());
        let roots = std::iter::once(cwd).chain(there).chain(&self.shared.writable);
        let text = |root: &PathBuf| root.to_string_lossy().into_owned();
        let id =
            (session.id.len() <= LABEL_MAX_BYTES).then(|| ("acp.session".to_owned(), session.id.clone()));
        Ok(FrontEnd::Acp.sign(v1::CreateSessionRequest {
            roots: roots.map(text).collect(),
            read_only_roots: self.shared.read_only.iter().map(text).collect(),
            labels: id.into_iter().collect(),
            profile: self.profile.clone(),
            ssh_agent: client::ssh_agent_socket(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            extent: v1::WorkspaceExtent::Repository.into(),
            ..Default::default()
        }))
    }

    async fn close_at_gateway(&self, id: &str) {
        match self.client.client().close_session(id).await {
            Ok(()) => tracing::info!(gateway.session = id, "session closed at the gateway"),
            // It ends with this process too.
            Err(status) => tracing::warn!(gateway.session = id, error = %status, "cannot close a session"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AcpSession>>> {
        self.by_id.lock().expect("no code panics while it holds the sessions")
    }
}

/// It is over, and those that were announced in it with it.
fn close_with_subagents(session: &AcpSession, by_id: &mut HashMap<String, Arc<AcpSession>>) {
    session.closed.cancel();
    by_id.retain(|_, session| !session.is_closed());
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// The default working directory of commands; absolute.
    pub cwd: PathBuf,
    /// Further directories that commands may work in; absolute.
    pub additional: Vec<PathBuf>,
}

/// As the gateway has it.
const QUIET_LIMIT: Duration = Duration::from_secs(5);

/// The shell that each session keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptShells {
    /// bash, zsh, fish, dash or another; none: the profile's.
    pub program: Option<String>,
    /// The width of its terminal: 2 to 1000.
    pub columns: u32,
    /// The height of its terminal: 1 to 500.
    pub rows: u32,
    /// If its marks are missing: how long it must wait for input, without output, to count as idle. 100 ms to 1 hour.
    pub quiet_limit: Duration,
}

impl Default for KeptShells {
    fn default() -> Self {
        Self { program: None, columns: 80, rows: 24, quiet_limit: QUIET_LIMIT }
    }
}

/// A session's kept shell at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionShell {
    /// The gateway's session.
    pub session_id: String,
    /// The shell's terminal, which has a pseudo-terminal.
    pub terminal_id: String,
}

/// One session.
#[derive(Debug)]
pub(super) struct AcpSession {
    /// The protocol's id.
    pub(super) id: String,
    pub(super) workspace: Workspace,
    /// The session that a subagent's was announced in.
    pub(super) parent: Option<Arc<AcpSession>>,
    /// Where a subagent's commands start, where that is not where its parent's do.
    pub(super) start_dir: Mutex<Option<PathBuf>>,
    /// The gateway's id, once it is open there.
    pub(super) gateway_id: Mutex<Option<String>>,
    /// Held by the task that opens the session: it is opened once.
    pub(super) open_lock: tokio::sync::Mutex<()>,
    /// Its kept shell, once its first command has come.
    pub(super) shell: tokio::sync::Mutex<Option<SessionShell>>,
    pub(super) closed: CancellationToken,
    /// What rules ask of its commands.
    pub(super) questions: Arc<PendingQuestions>,
}

impl AcpSession {
    pub(super) fn new(id: &str, workspace: Workspace, parent: Option<Arc<Self>>) -> Self {
        Self {
            id: id.to_owned(),
            workspace,
            start_dir: Mutex::default(),
            gateway_id: Mutex::default(),
            open_lock: tokio::sync::Mutex::default(),
            shell: tokio::sync::Mutex::default(),
            closed: parent.as_ref().map_or_else(CancellationToken::new, |parent| parent.closed.child_token()),
            questions: parent.as_ref().map(|parent| parent.questions.clone()).unwrap_or_default(),
            parent,
        }
    }

    /// Whether it is a subagent's.
    pub(super) fn is_subagent(&self) -> bool {
        self.parent.is_some()
    }

    /// Where commands start that name no directory; none for the workspace's own.
    pub(super) fn start_dir(&self) -> Option<PathBuf> {
        let own = self.start_dir.lock().expect("no code panics while it holds the directory").clone();
        own.or_else(|| self.parent.as_ref()?.start_dir())
    }

    fn set_start_dir(&self, placement: StartDirectory) {
        let mut start = self.start_dir.lock().expect("no code panics while it holds the directory");
        match placement {
            StartDirectory::Unchanged => {}
            StartDirectory::Inherited => *start = None,
            StartDirectory::At(directory) => *start = Some(directory),
        }
    }

    /// The session that the gateway has for it: its own, or that of the session that announced it.
    fn root_of(&self) -> &Self {
        self.parent.as_ref().map_or(self, |parent| parent.root_of())
    }

    /// As [`Self::root_of`], to keep.
    pub(super) fn root(self: &Arc<Self>) -> Arc<Self> {
        self.parent.as_ref().map_or_else(|| self.clone(), Self::root)
    }

    /// Whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// The gateway's id, where it is open there.
    fn gateway_id(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.gateway_id.lock().expect("no code panics while it holds the id")
    }
}

/// What an update announces of a child.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SubagentAnnouncement {
    pub(super) parent: String,
    pub(super) child: String,
    pub(super) start: StartDirectory,
}

/// Where the commands of a child start that name no directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartDirectory {
    /// As before.
    Unchanged,
    /// Where its parent's do.
    Inherited,
    /// Here.
    At(PathBuf),
}

/// Reads a `session/update`; none where it announces nobody.
pub(super) fn parse_announcement(params: &RawValue) -> Option<SubagentAnnouncement> {
    // Most updates are text, and are not looked into.
    memchr::memmem::find(params.get().as_bytes(), b"subagent_update")?;
    let params = RawObject::parse(params)?;
    let update = RawObject::parse(params.borrowed("update")?)?;
    if update.text("sessionUpdate")? != "subagent_update" {
        return None;
    }
    let placement = match update.get("cwd") {
        None => StartDirectory::Unchanged,
        Some(cwd) if cwd.get() == "null" => StartDirectory::Inherited,
        Some(_) => StartDirectory::At(update.text("cwd")?.into()),
    };
    let fits = |placement: &StartDirectory| match placement {
        StartDirectory::At(directory) => directory.as_os_str().len() <= PATH_MAX_BYTES,
        StartDirectory::Unchanged | StartDirectory::Inherited => true,
    };
    let child = update.text("sessionId")?;
    if child.len() > ID_MAX_BYTES || !fits(&placement) {
        return None;
    }
    Some(SubagentAnnouncement { parent: params.text("sessionId")?, child, start: placement })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(update: &str) -> Option<StartDirectory> {
        let params = format!(r#"{{"sessionId":"p","update":{{{update}}}}}"#);
        let params = RawValue::from_string(params).unwrap();
        let announced = parse_announcement(&params)?;
        assert_eq!((&*announced.parent, &*announced.child), ("p", "c"));
        Some(announced.start)
    }

    #[test]
    fn a_child_is_announced_with_its_place_or_without() {
        let update = r#""sessionUpdate":"subagent_update","sessionId":"c""#;
        assert_eq!(placement(update), Some(StartDirectory::Unchanged));
        assert_eq!(placement(&format!(r#"{update},"cwd":null"#)), Some(StartDirectory::Inherited));
        assert_eq!(placement(&format!(r#"{update},"cwd":"/x""#)), Some(StartDirectory::At("/x".into())));
        assert_eq!(placement(&format!(r#"{update},"cwd":7"#)), None);
        assert_eq!(placement(r#""sessionUpdate":"plan","sessionId":"c","x":"subagent_update""#), None);
    }
}
