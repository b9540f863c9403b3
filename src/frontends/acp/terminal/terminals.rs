//! The five terminal methods, answered by a gateway.
//!
//! This is what an ACP client embeds to give its agents confined commands, and what `provost acp` itself uses. It
//! knows terminals and sessions and no transport: the embedding client reads requests, hands them over and sends the
//! answers.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
};

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CreateTerminalRequest, CreateTerminalResponse, Error, KillTerminalRequest,
    KillTerminalResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, SessionId, TerminalExitStatus,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{create, terminal::AcpTerminal};
use crate::{
    acp::{
        approval::ApprovalPrompt,
        errors,
        sessions::{
            AcpSession, AcpSessions, Approver, KeptShells, SessionShell, SharedDirectories, StartDirectory,
            SubagentAnnouncement, Workspace,
        },
    },
    client::{self, Client, ConnectError, RetryingClient},
    proto::v1::{self, Bypass},
};

/// Terminals that are kept track of at once. The gateway's own limits are lower, by default.
pub(crate) const TERMINALS_MAX: usize = 4_096;
/// Released terminals whose last output is kept, to be shown.
const RELEASED_MAX: usize = 64;

/// An answer that is on its way: the result as JSON text, or the error.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// The terminals of one ACP connection. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct AcpTerminals(pub(in crate::acp) Arc<Inner>);

pub(in crate::acp) struct Inner {
    pub client: RetryingClient,
    pub sessions: AcpSessions,
    pub prompt: Option<ApprovalPrompt>,
    /// Set where sessions keep shells.
    pub shells: Option<KeptShells>,
    live: Mutex<HashMap<String, Arc<AcpTerminal>>>,
    /// The latest: an agent may speak of a terminal that it has released.
    released: Mutex<VecDeque<Arc<AcpTerminal>>>,
}

impl std::fmt::Debug for AcpTerminals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminals").field("sessions", &self.0.sessions).finish_non_exhaustive()
    }
}

impl AcpTerminals {
    /// Terminals of a gateway that is connected to, under its policy's default profile or the one that is named.
    /// What a rule asks a person about is put to `ask`; without it such a command is refused.
    pub fn new(client: Client, profile: Option<String>, ask: Option<ApprovalPrompt>) -> Self {
        Self::with_directories(client, profile, SharedDirectories::default(), ask)
    }

    /// The same, with a shell that each session keeps: its commands are lines of it, so that directory, variables and functions
    /// stay. A command that cannot run in the shell gets a terminal of its own.
    pub fn with_kept_shells(
        client: Client,
        profile: Option<String>,
        shells: KeptShells,
        ask: Option<ApprovalPrompt>,
    ) -> Self {
        Self::with(client, profile, SharedDirectories::default(), (ask, Some(shells)))
    }

    /// The same, with directories that every session has alongside its own.
    pub fn with_directories(
        client: Client,
        profile: Option<String>,
        shared: SharedDirectories,
        ask: Option<ApprovalPrompt>,
    ) -> Self {
        Self::with(client, profile, shared, (ask, None))
    }

    fn with(
        client: Client,
        profile: Option<String>,
        shared: SharedDirectories,
        (ask, shells): (Option<ApprovalPrompt>, Option<KeptShells>),
    ) -> Self {
        let retrying = RetryingClient::new(client);
        let sessions = AcpSessions::new(
            retrying.clone(),
            profile,
            shared,
            ask.clone().map_or(Approver::Absent, Approver::Present),
        );
        Self(Arc::new(Inner {
            client: retrying,
            sessions,
            prompt: ask,
            shells,
            live: Mutex::default(),
            released: Mutex::default(),
        }))
    }

    /// Connects to the gateway at `unix:PATH`.
    pub async fn connect(uri: &str) -> Result<Self, ConnectError> {
        Ok(Self::new(client::connect(uri).await?, None, None))
    }

    /// Knows a session from now on; its commands may work in `cwd`, which must be absolute, and in the additional
    /// directories. To be called with what `session/new`, `load`, `resume` and `fork` say. Nothing is asked of the gateway
    /// before the first command.
    pub fn open_session(&self, id: &SessionId, cwd: impl Into<PathBuf>, additional: Vec<PathBuf>) {
        let workspace = Workspace { cwd: cwd.into(), additional };
        if let Some(other) = self.0.sessions.register(&id.0, workspace) {
            let all = self.clone();
            tokio::spawn(async move { all.end_session(&other).await });
        }
    }

    /// Where a session works that is known.
    pub(in crate::acp) fn workspace_of(&self, id: &SessionId) -> Option<Workspace> {
        self.0.sessions.find(&id.0).map(|session| session.workspace.clone())
    }

    /// Stops and releases every terminal of a session, whose ids are unknown as soon as this is called. The future
    /// resolves when nothing is left of it; it goes on to the end when the future is dropped.
    pub fn close_session(&self, id: &SessionId) -> impl Future<Output = ()> + Send + use<> {
        let (all, session) = (self.clone(), self.0.sessions.remove(&id.0));
        let ending = session.map(|session| tokio::spawn(async move { all.end_session(&session).await }));
        async move {
            if let Some(ending) = ending {
                // It panics only where this would.
                let _ = ending.await;
            }
        }
    }

    /// The kept shell of a session, to be shown: what runs in it is in its terminal. None before its first command.
    pub async fn shell_of(&self, id: &SessionId) -> Option<SessionShell> {
        let session = self.0.sessions.find(&id.0)?;
        session.shell.lock().await.clone()
    }

    /// What a terminal with a pseudo-terminal shows, first as a whole and then each change: of a session's kept shell.
    pub async fn watch_shell(
        &self,
        id: &SessionId,
    ) -> Result<tonic::Streaming<v1::WatchScreenResponse>, Error> {
        let shell = self.shell_of(id).await.ok_or_else(errors::unknown_terminal)?;
        let request =
            v1::WatchScreenRequest { terminal_id: shell.terminal_id, ..v1::WatchScreenRequest::default() };
        let watched = self.0.client.client().screens.watch_screen(request).await;
        watched.map(tonic::Response::into_inner).map_err(|status| errors::from_status(&status))
    }

    /// Has the gateway's journal say what bypasses it in a session.
    pub(in crate::acp) async fn report_bypass(&self, id: &SessionId, bypass: Bypass) {
        if let Some(session) = self.0.sessions.find(&id.0) {
            self.0.sessions.report_bypass(&session, bypass).await;
        }
    }

    /// As [`Self::close_session`], of every session.
    pub async fn close(&self) {
        let ending = self.0.sessions.remove_all().into_iter().map(|session| {
            let all = self.clone();
            tokio::spawn(async move { all.end_session(&session).await })
        });
        for ending in ending.collect::<Vec<_>>() {
            // It panics only where this would.
            let _ = ending.await;
        }
    }

    /// `terminal/create`. Answers when the command runs or is known not to. To drop the future is to cancel: a command
    /// that was started for it is stopped and released.
    pub async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, Error> {
        Ok(CreateTerminalResponse::new(self.create(request).await?.id.clone()))
    }

    /// `terminal/output`: the retained text and, once the command has ended, its exit status.
    pub async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
    ) -> Result<TerminalOutputResponse, Error> {
        let view = self.find(&request.session_id, &request.terminal_id.0)?.view().await?;
        let output: String =
            serde_json::from_str(&view.encoded).map_err(|error| errors::internal(error.to_string()))?;
        Ok(TerminalOutputResponse::new(output, view.truncated).exit_status(view.exit))
    }

    /// `terminal/wait_for_exit`. Any number may wait; a release answers them all.
    pub async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let status = self.find(&request.session_id, &request.terminal_id.0)?.wait_for_exit().await?;
        Ok(WaitForTerminalExitResponse::new(status))
    }

    /// `terminal/kill`: begins to stop the command. The terminal stays.
    pub async fn kill_terminal(&self, request: KillTerminalRequest) -> Result<KillTerminalResponse, Error> {
        self.find(&request.session_id, &request.terminal_id.0)?.kill().await?;
        Ok(KillTerminalResponse::new())
    }

    /// `terminal/release`: the id is unknown from now on. Answers when nothing is left of the command, and goes on to
    /// the end when the future is dropped.
    pub async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let terminal = self.remove(&request.session_id, &request.terminal_id.0)?;
        release(terminal).await?;
        Ok(ReleaseTerminalResponse::new())
    }

    /// All five in one call: the answer to a request with this method and these params, or none when the method is not
    /// one of them. What the request names is looked up before this returns, so that requests take effect in the order
    /// in which they are handed over.
    pub fn answer(&self, method: &str, params: Option<&RawValue>) -> Option<AnswerFuture> {
        let names = &CLIENT_METHOD_NAMES;
        if method == names.terminal_create {
            let all = self.clone();
            let request = create::parse(params);
            return Some(Box::pin(async move { to_json(&all.create_terminal(request?).await?) }));
        }
        if method == names.terminal_output {
            let found =
                self.find_named(params, |r: &TerminalOutputRequest| (&r.session_id, &r.terminal_id.0));
            return Some(Box::pin(async move { output_json(&*found?).await }));
        }
        if method == names.terminal_wait_for_exit {
            let found =
                self.find_named(params, |r: &WaitForTerminalExitRequest| (&r.session_id, &r.terminal_id.0));
            return Some(Box::pin(async move {
                to_json(&WaitForTerminalExitResponse::new(found?.wait_for_exit().await?))
            }));
        }
        if method == names.terminal_kill {
            let found = self.find_named(params, |r: &KillTerminalRequest| (&r.session_id, &r.terminal_id.0));
            return Some(Box::pin(async move {
                found?.kill().await?;
                to_json(&KillTerminalResponse::new())
            }));
        }
        if method == names.terminal_release {
            let found = parse::<ReleaseTerminalRequest>(params)
                .and_then(|request| self.remove(&request.session_id, &request.terminal_id.0));
            return Some(Box::pin(async move {
                release(found?).await?;
                to_json(&ReleaseTerminalResponse::new())
            }));
        }
        None
    }

    /// A terminal of this session.
    pub(in crate::acp) fn find(&self, session: &SessionId, id: &str) -> Result<Arc<AcpTerminal>, Error> {
        let live = self.lock();
        let found = live.get(id).filter(|terminal| terminal.belongs_to(session));
        found.cloned().ok_or_else(errors::unknown_terminal)
    }

    /// A terminal of this session that can be shown: one that is there, or one that was released lately.
    pub(in crate::acp) fn find_to_show(&self, session: &SessionId, id: &str) -> Option<Arc<AcpTerminal>> {
        let released = || {
            let released = self.0.released.lock().expect("no code panics while it holds the released ones");
            released.iter().find(|terminal| terminal.id == id && *terminal.session.id == *session.0).cloned()
        };
        self.find(session, id).ok().or_else(released)
    }

    /// Takes a terminal out: its id is unknown from here on.
    fn remove(&self, session: &SessionId, id: &str) -> Result<Arc<AcpTerminal>, Error> {
        let removed = {
            let mut live = self.lock();
            let is_there = live.get(id).is_some_and(|terminal| terminal.belongs_to(session));
            is_there.then(|| live.remove(id)).flatten().ok_or_else(errors::unknown_terminal)?
        };
        let mut released = self.0.released.lock().expect("no code panics while it holds the released ones");
        released.push_back(removed.clone());
        if released.len() > RELEASED_MAX {
            released.pop_front();
        }
        Ok(removed)
    }

    fn find_named<R: DeserializeOwned>(
        &self,
        params: Option<&RawValue>,
        names: impl Fn(&R) -> (&SessionId, &str),
    ) -> Result<Arc<AcpTerminal>, Error> {
        let request = parse::<R>(params)?;
        let (session, terminal) = names(&request);
        self.find(session, terminal)
    }

    async fn end_session(&self, session: &Arc<AcpSession>) {
        if session.is_subagent() {
            return self.release_terminals_of(session).await;
        }
        self.0.sessions.close(session).await;
        // Its subagents' are over, too.
        self.lock().retain(|_, terminal| !Arc::ptr_eq(&terminal.session.root(), session));
    }

    /// Releases the terminals of a session that shares that of the gateway's with others.
    async fn release_terminals_of(&self, session: &Arc<AcpSession>) {
        let left: Vec<_> = {
            let mut live = self.lock();
            live.extract_if(|_, terminal| Arc::ptr_eq(&terminal.session, session)).collect()
        };
        let releasing = left.into_iter().map(|(_, terminal)| tokio::spawn(release(terminal)));
        for releasing in releasing.collect::<Vec<_>>() {
            // What cannot be released ends with the session of the gateway's.
            let _ = releasing.await;
        }
        if let Some(shell) = session.shell.lock().await.take() {
            self.release_shell(&shell).await;
        }
    }

    /// Knows a subagent's session from now on, or where it has moved to: to be called with what a `subagent_update` in the
    /// session `parent` says. Its commands may work where its parent's may, and start in `cwd`, or where its parent's start.
    /// It ends with its parent.
    pub fn open_subagent(&self, parent: &SessionId, id: &SessionId, cwd: Option<PathBuf>) {
        let placement = cwd.map_or(StartDirectory::Inherited, StartDirectory::At);
        self.register_subagent(SubagentAnnouncement {
            parent: parent.0.to_string(),
            child: id.0.to_string(),
            start: placement,
        });
    }

    /// Takes in what an agent announces of its subagents.
    pub(in crate::acp) fn register_subagent(&self, announced: SubagentAnnouncement) {
        self.0.sessions.register_subagent(announced);
    }

    pub(in crate::acp) fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AcpTerminal>>> {
        self.0.live.lock().expect("no code panics while it holds the terminals")
    }
}

/// Releases in a task of its own: a release that was begun is finished.
pub(in crate::acp) async fn release(terminal: Arc<AcpTerminal>) -> Result<(), Error> {
    let releasing = tokio::spawn(async move { terminal.release().await });
    releasing.await.map_err(|_| errors::internal("The terminal could not be released."))?
}

async fn output_json(terminal: &AcpTerminal) -> Result<String, Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Rest {
        truncated: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_status: Option<TerminalExitStatus>,
    }
    let view = terminal.view().await?;
    let rest = to_json(&Rest { truncated: view.truncated, exit_status: view.exit })?;
    // The text is JSON already, and may be large: it is copied once.
    let mut json = String::with_capacity(view.encoded.len() + rest.len() + 16);
    json.push_str("{\"output\":");
    json.push_str(&view.encoded);
    json.push(',');
    json.push_str(&rest[1..]);
    Ok(json)
}

fn parse<R: DeserializeOwned>(params: Option<&RawValue>) -> Result<R, Error> {
    let params = params.ok_or_else(|| errors::bad_parameter("params", "must not be absent"))?;
    serde_json::from_str(params.get()).map_err(|error| errors::bad_parameter("params", error))
}

fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| errors::internal(error.to_string()))
}
