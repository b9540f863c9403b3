//! A backend under test: the command that an editor would start, with the suite's relay as its agent and the
//! suite's editor on its own stdin and stdout.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{
        UnixListener,
        unix::pipe::{Receiver, Sender},
    },
    time::Instant,
};

use super::{
    fault::Fault,
    peer::JsonRpcPeer,
    roles::{AgentSessions, EditorKind},
};
use crate::sys::signals;

/// How long what is slow by its nature may take: the end of a command, past every grace time, or that of a backend whose
/// editor has gone. A longer answer timeout lengthens this one too, but to no more than the time for which the commands run
/// that must not be waited for.
const SLOW_MIN: Duration = Duration::from_secs(20);
const SLOW_MAX: Duration = Duration::from_secs(60);
/// How often a backend is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How much of a backend's stderr is shown when it fails.
const STDERR_TAIL_BYTES: usize = 2000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// How backends are started.
#[derive(Debug, Clone)]
pub(super) struct BackendLauncher {
    /// The command, which the agent's command is appended to.
    pub(super) command: Vec<OsString>,
    /// How long each of its answers may take.
    pub(super) answer_timeout: Duration,
}

/// Why a backend cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A directory, a socket or the program itself.
    #[error("cannot {what}: {source}")]
    Start {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It does not get as far as a session.
    #[error("the backend does not initialize{stderr_tail}")]
    Initialize {
        /// What went wrong.
        #[source]
        fault: Fault,
        /// The end of what it wrote to stderr.
        stderr_tail: String,
    },
}

/// A running backend.
pub(super) struct Backend {
    /// The editor's end.
    pub(super) editor: Arc<JsonRpcPeer>,
    /// The agent's end.
    pub(super) agent: Arc<JsonRpcPeer>,
    /// The sessions that the agent gave out.
    pub(super) sessions: AgentSessions,
    directory: SuiteDirectory,
    child: Child,
}

impl BackendLauncher {
    /// Starts a backend and initializes it with such an editor.
    pub(super) async fn start(&self, editor: EditorKind) -> Result<Backend, BackendError> {
        let failed = |what| move |source| BackendError::Start { what, source };
        let directory = SuiteDirectory::make().map_err(failed("make a directory"))?;
        let socket = directory.0.join("agent");
        let listener = UnixListener::bind(&socket).map_err(failed("listen for the agent"))?;
        let myself = std::env::current_exe().map_err(failed("find this program"))?;
        let log = directory.0.join("stderr");
        let stderr = fs::File::create(&log).map_err(failed("make a file for stderr"))?;
        let workspace = directory.workspace();
        fs::create_dir(&workspace).map_err(failed("make the workspace"))?;
        let mut backend = Command::new(self.command.first().map_or(OsStr::new(""), OsString::as_os_str));
        backend
            .args(self.command.iter().skip(1))
            .arg(myself)
            .args([OsStr::new("--relay"), socket.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        // What the suite was started with, by nohup(1) or a script's job, is not to decide what conforms.
        let mut child =
            signals::with_default_dispositions(|| backend.spawn()).map_err(failed("start the backend"))?;
        let ends = child.stdin.take().zip(child.stdout.take()).ok_or(io::ErrorKind::BrokenPipe.into());
        let (stdin, stdout) = ends.map_err(failed("open the backend's pipes"))?;
        let writer = Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(failed("open its stdin"))?;
        let reader = Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(failed("open its stdout"))?;
        let (editor_peer, sessions) = (
            JsonRpcPeer::start(reader, writer, EditorKind::responder(), self.answer_timeout),
            AgentSessions::default(),
        );
        match initialize(&editor_peer, &listener, editor, &sessions).await {
            Ok(agent) => Ok(Backend { editor: editor_peer, agent, sessions, directory, child }),
            Err(fault) => {
                wait_or_kill(&mut child, Duration::ZERO).await;
                Err(BackendError::Initialize { fault, stderr_tail: stderr_tail(&log) })
            }
        }
    }
}

async fn initialize(
    editor_peer: &Arc<JsonRpcPeer>,
    listener: &UnixListener,
    editor: EditorKind,
    sessions: &AgentSessions,
) -> Result<Arc<JsonRpcPeer>, Fault> {
    let timeout = editor_peer.answer_timeout();
    let asked = editor_peer.send_request(&editor_peer.fresh_id(), "initialize", editor.initialize()).await?;
    let accepted = tokio::time::timeout(timeout, async {
        tokio::select! {
            accepted = listener.accept() => accepted.map_err(Fault::Workspace),
            _ = editor_peer.wait_for_end(timeout) => Err(Fault::Ended("the backend went before it had an agent")),
        }
    });
    let (agent, _) = accepted
        .await
        .map_err(|_| Fault::Silent { what: "the start of the agent".to_owned(), waited: timeout })??;
    let (reader, writer) = agent.into_split();
    let agent = JsonRpcPeer::start(reader, writer, sessions.responder(), editor_peer.answer_timeout());
    editor_peer
        .answer_to("initialize", asked)
        .await?
        .map_err(|refusal| Fault::Refused { method: "initialize".to_owned(), refusal })?;
    Ok(agent)
}

impl Backend {
    /// The directory that sessions have theirs in.
    pub(super) fn workspace(&self) -> PathBuf {
        self.directory.workspace()
    }

    /// Whether it can be used for a further case.
    pub(super) fn is_usable(&self) -> bool {
        !self.editor.has_ended() && !self.agent.has_ended()
    }

    /// Hangs up as an editor does, and waits for its end; past the time it is killed.
    pub(super) async fn close(mut self) {
        self.editor.hang_up().await;
        wait_or_kill(&mut self.child, slow(self.editor.answer_timeout())).await;
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // A case may leave by an error: then nobody waits for a good end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long what is slow by its nature may take, derived from the answer timeout.
pub(super) fn slow(timeout: Duration) -> Duration {
    timeout.clamp(SLOW_MIN, SLOW_MAX)
}

async fn wait_or_kill(child: &mut Child, timeout: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < timeout {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn stderr_tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let tail = &text[text.len().saturating_sub(STDERR_TAIL_BYTES)..];
    let text = String::from_utf8_lossy(tail);
    if tail.is_empty() { String::new() } else { format!(" (it wrote: {})", text.trim()) }
}

/// A directory of the suite's own, removed with it.
struct SuiteDirectory(PathBuf);

impl SuiteDirectory {
    fn make() -> io::Result<Self> {
        let name = format!("acp-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        // Sandboxes name directories by their real path.
        path.canonicalize().map(Self)
    }

    fn workspace(&self) -> PathBuf {
        self.0.join("workspace")
    }
}

impl Drop for SuiteDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
