//! One editor, one agent, from the start to the end of both.
//!
//! Whichever ends first, the other is told and given a moment, and then everything that was started is stopped: the
//! agent's process group, and every command of every session. No step of that waits without a limit.

use std::{ffi::OsString, future::Future, io, os::unix::fs::FileTypeExt, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix::pipe,
    task::JoinHandle,
    time::timeout,
};

use super::{
    agent_process::{self, AgentProcess, ConfineError, ConfinedAgent, Confinement},
    approval::{ApprovalPrompt, PermissionRequests},
    coverage::{AgentCoverage, ExpectedTerminals, NoticeSink, ToolServer},
    sessions::SharedDirectories,
    shim::{LINE_MAX_BYTES, Shim},
    terminal::terminals::AcpTerminals,
};
use crate::{
    client::Client,
    json_rpc::{self, Disconnected, InputLine, LineReader, LineSender, QueueBounds},
    sandbox_program::{ProgramError, SandboxProgram},
};

/// How many bytes may wait to be written to one side.
const QUEUE_MAX_BYTES: usize = 64 << 20;
/// And how many lines.
const QUEUE_MAX_LINES: usize = 64 << 10;
const QUEUE: QueueBounds = QueueBounds { bytes: QUEUE_MAX_BYTES, lines: QUEUE_MAX_LINES };
/// How long an agent may go on after its editor has gone, to end by itself.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what still waits to be written may take, at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the commands may take to end, at the end; a gateway that is away or hangs ends them without us.
const COMMANDS_END_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an agent's stdout may stay open after its end, held by something that it started.
const STDOUT_LINGER: Duration = Duration::from_millis(500);

/// What is to be run, and how.
pub struct ShimOptions {
    /// The agent and its arguments.
    pub command: Vec<OsString>,
    /// Variables for an agent on the host, in addition to those of this process.
    pub env: Vec<(String, String)>,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// What every session has alongside its own directories.
    pub shared: SharedDirectories,
    /// How the agent itself is confined, where it is.
    pub confine: Option<Confinement>,
    /// What is put into the sessions of an agent that does not ask for terminals; none where this program has no path.
    pub tools: Option<ToolServer>,
    /// What is known of the agent.
    pub terminals: ExpectedTerminals,
    /// Where one-line notices for a person go.
    pub notice: NoticeSink,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShimExit {
    /// The agent's exit status, or 128 and the number of the signal that ended it.
    pub exit_status: u8,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The agent cannot be started.
    #[error("cannot start the agent {}", crate::printable::path(program))]
    Agent {
        /// Its program.
        program: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no subreaper for it.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent cannot be confined.
    #[error("cannot confine the agent")]
    Confine(#[from] ConfineError),
}

/// Stands between the editor on this process's stdio and an agent, until one of them ends or `stopped` resolves.
/// Returns when nothing is left of the agent and of what it had run.
pub async fn run(
    client: Client,
    options: ShimOptions,
    stopped: impl Future<Output = ()>,
) -> Result<ShimExit, ShimError> {
    let is_confined = options.confine.is_some();
    let started = start(&client, &options.command, &options.env, options.confine).await?;
    let coverage = if is_confined {
        AgentCoverage::confined()
    } else {
        AgentCoverage::on_host(options.tools, options.notice, options.terminals)
    };
    let (editor, to_editor) = json_rpc::line_channel(QUEUE);
    let permissions = PermissionRequests::new(editor.clone());
    let asked = permissions.clone();
    let ask: ApprovalPrompt = Arc::new(move |question| Box::pin(asked.clone().ask(question)));
    let terminals = AcpTerminals::with_directories(client, options.profile, options.shared, Some(ask));
    let (agent_box, to_agent) = json_rpc::line_channel(QUEUE);
    let shim = Shim::new((editor.clone(), agent_box.clone()), terminals.clone(), permissions, coverage);
    let (of_editor, of_agent) = (shim.clone(), shim);
    let forwarding = Forwarding {
        from_editor: tokio::spawn(pump(LineReader::new(input(), LINE_MAX_BYTES - 1), move |frame| {
            let shim = of_editor.clone();
            async move { shim.handle_editor_line(frame).await }
        })),
        from_agent: tokio::spawn(pump(LineReader::new(started.stdout, LINE_MAX_BYTES - 1), move |frame| {
            let shim = of_agent.clone();
            async move { shim.handle_agent_line(frame).await }
        })),
        to_editor: tokio::spawn(to_editor.write_to(output())),
        to_agent: tokio::spawn(to_agent.write_to(started.stdin)),
        editor,
        agent: agent_box,
    };
    Ok(forwarding.run_until_end(started.agent, terminals, stopped).await)
}

/// An agent that runs, whichever way, and its ends of the wires.
struct StartedAgent {
    agent: Agent,
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
}

/// Where an agent runs.
enum Agent {
    Process(Box<AgentProcess>),
    Confined(Box<ConfinedAgent>),
}

async fn start(
    client: &Client,
    command: &[OsString],
    env: &[(String, String)],
    confine: Option<Confinement>,
) -> Result<StartedAgent, ShimError> {
    match confine {
        Some(confinement) => {
            let (agent, stdin, stdout) = agent_process::start_confined(client, command, confinement).await?;
            Ok(StartedAgent {
                agent: Agent::Confined(Box::new(agent)),
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
            })
        }
        None => {
            let program = SandboxProgram::find()?;
            program.check_build()?;
            let (agent, stdin, stdout) =
                agent_process::start_on_host(&program, command, env).await.map_err(|source| {
                    let program = command.first().cloned().unwrap_or_default().into();
                    ShimError::Agent { program, source }
                })?;
            Ok(StartedAgent {
                agent: Agent::Process(Box::new(agent)),
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
            })
        }
    }
}

impl Agent {
    async fn wait(&mut self) -> u8 {
        match self {
            Self::Process(agent) => agent.wait().await,
            Self::Confined(agent) => agent.wait().await,
        }
    }

    async fn stop(self) -> u8 {
        match self {
            Self::Process(agent) => agent.stop().await,
            Self::Confined(agent) => agent.stop().await,
        }
    }
}

/// The four directions, each with its task.
#[derive(Debug)]
struct Forwarding {
    editor: LineSender,
    agent: LineSender,
    from_editor: JoinHandle<()>,
    from_agent: JoinHandle<()>,
    to_editor: JoinHandle<()>,
    to_agent: JoinHandle<()>,
}

/// What came first.
enum EndCause {
    EditorDisconnected,
    AgentClosedStdout,
    AgentExited(u8),
    Stopped,
}

impl Forwarding {
    async fn run_until_end(
        mut self,
        mut agent: Agent,
        terminals: AcpTerminals,
        stopped: impl Future<Output = ()>,
    ) -> ShimExit {
        let first = tokio::select! {
            _ = &mut self.from_editor => EndCause::EditorDisconnected,
            () = self.editor.gone() => EndCause::EditorDisconnected,
            _ = &mut self.from_agent => EndCause::AgentClosedStdout,
            status = agent.wait() => EndCause::AgentExited(status),
            () = stopped => EndCause::Stopped,
        };
        let mut agent_status = None;
        match first {
            EndCause::EditorDisconnected => {
                tracing::info!("the editor is gone");
                agent_status = self.let_agent_exit(&mut agent).await;
            }
            EndCause::AgentClosedStdout => {
                tracing::info!("the agent has closed its stdout");
                agent_status = self.let_agent_exit(&mut agent).await;
            }
            EndCause::AgentExited(status) => {
                tracing::info!(status, "the agent has ended");
                agent_status = Some(status);
            }
            EndCause::Stopped => tracing::info!("told to stop"),
        }
        // Commands and agent at once: neither waits for the other's grace.
        let closing = tokio::spawn({
            let terminals = terminals.clone();
            async move { terminals.close().await }
        });
        let stopped_with = agent.stop().await;
        self.flush_and_close().await;
        let ending = async {
            let _ = closing.await;
            // What was still being started when the sessions were closed.
            terminals.close().await;
        };
        if timeout(COMMANDS_END_TIMEOUT, ending).await.is_err() {
            tracing::warn!("the gateway has not said that all commands have ended");
        }
        ShimExit { exit_status: agent_status.unwrap_or(stopped_with) }
    }

    /// Tells the agent that nobody is there any more, and gives it a moment to end by itself.
    async fn let_agent_exit(&self, agent: &mut Agent) -> Option<u8> {
        self.agent.flushed(AGENT_EXIT_TIMEOUT).await;
        self.agent.close();
        timeout(AGENT_EXIT_TIMEOUT, agent.wait()).await.ok()
    }

    /// What the agent said before its end reaches the editor.
    async fn flush_and_close(mut self) {
        if !self.from_agent.is_finished() {
            let _ = timeout(STDOUT_LINGER, &mut self.from_agent).await;
        }
        self.editor.flushed(FLUSH_TIMEOUT).await;
        self.editor.close();
        self.agent.close();
        for task in [self.from_editor, self.from_agent, self.to_editor, self.to_agent] {
            task.abort();
        }
    }
}

/// Takes frame after frame until there are no more, or nobody wants them.
async fn pump<R, T, F>(mut lines: LineReader<R>, mut handle: T)
where
    R: AsyncRead + Unpin,
    T: FnMut(InputLine) -> F,
    F: Future<Output = Result<(), Disconnected>>,
{
    loop {
        match lines.next().await {
            Ok(Some(frame)) => {
                if handle(frame).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(error = %error, "cannot read");
                return;
            }
        }
    }
}

/// What is read from the editor, without a thread in between where that can be had: a pipe is opened again by its name in /proc,
/// so that the descriptor, which another process may share, keeps its flags. Anything else goes through a thread.
pub(super) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let path = "/proc/self/fd/0";
    match is_pipe(path).then(|| pipe::OpenOptions::new().open_receiver(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(crate::stdio::stdin()),
    }
}

/// What is written to the editor. As [`input`].
pub(super) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let path = "/proc/self/fd/1";
    match is_pipe(path).then(|| pipe::OpenOptions::new().open_sender(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(crate::stdio::stdout()),
    }
}

fn is_pipe(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}
