//! One session of the protocol: its workspace, whose subagent it is, and what the gateway has for it.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::subagents::StartDirectory;
use crate::acp::approval::approval_prompt::PendingQuestions;

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
pub(in crate::acp) struct AcpSession {
    /// The protocol's id.
    pub(in crate::acp) id: String,
    pub(in crate::acp) workspace: Workspace,
    /// Of a subagent's: the one that it was announced in.
    pub(in crate::acp) parent: Option<Arc<AcpSession>>,
    /// Of a subagent's: where its commands start, where that is not where its parent's do.
    pub(in crate::acp) start_dir: Mutex<Option<PathBuf>>,
    /// The gateway's id, once it is open there.
    pub(super) gateway_id: Mutex<Option<String>>,
    /// Held by the task that opens the session: it is opened once.
    pub(super) open_lock: tokio::sync::Mutex<()>,
    /// Its kept shell, once its first command has come.
    pub(in crate::acp) shell: tokio::sync::Mutex<Option<SessionShell>>,
    pub(in crate::acp) closed: CancellationToken,
    /// What rules ask of its commands.
    pub(in crate::acp) questions: Arc<PendingQuestions>,
}

impl AcpSession {
    pub(in crate::acp) fn new(id: &str, workspace: Workspace, parent: Option<Arc<Self>>) -> Self {
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
    pub(in crate::acp) fn is_subagent(&self) -> bool {
        self.parent.is_some()
    }

    /// Where commands start that name no directory; none for the workspace's own.
    pub(in crate::acp) fn start_dir(&self) -> Option<PathBuf> {
        let own = self.start_dir.lock().expect("no code panics while it holds the directory").clone();
        own.or_else(|| self.parent.as_ref()?.start_dir())
    }

    pub(super) fn set_start_dir(&self, placement: StartDirectory) {
        let mut start = self.start_dir.lock().expect("no code panics while it holds the directory");
        match placement {
            StartDirectory::Unchanged => {}
            StartDirectory::Inherited => *start = None,
            StartDirectory::At(directory) => *start = Some(directory),
        }
    }

    /// The session that the gateway has for it: its own, or that of the session that announced it.
    pub(super) fn root_of(&self) -> &Self {
        self.parent.as_ref().map_or(self, |parent| parent.root_of())
    }

    /// As [`Self::root_of`], to keep.
    pub(in crate::acp) fn root(self: &Arc<Self>) -> Arc<Self> {
        self.parent.as_ref().map_or_else(|| self.clone(), Self::root)
    }

    /// Whether it was closed.
    pub(in crate::acp) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// The gateway's id, where it is open there.
    pub(super) fn gateway_id(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(in crate::acp) fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.gateway_id.lock().expect("no code panics while it holds the id")
    }
}
