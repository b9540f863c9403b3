//! One editor, one agent, from the start to the end of both.
//!
//! Whichever ends first, the other is told and given a moment, and then everything that was started is stopped: the
//! agent's process group, and every command of every session. No step of that waits without a limit.

use std::{ffi::OsString, future::Future, io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::timeout,
};

use super::{
    agent::{self, AgentProcess},
    asking::Asker,
    confinement::{self, ConfineError, ConfinedAgent, Confinement},
    framing::{self, Frame, Gone, Lines, Outbox},
    permission::Permissions,
    shim::{Note, Shim},
    stdio,
    terminals::Terminals,
};
use crate::client::Client;

/// How long an agent may go on after its editor has gone, to end by itself.
const LEAVE_TO_AGENT: Duration = Duration::from_secs(1);
/// How long what still waits to be written may take, at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the commands may take to end, at the end; a gateway that is away or hangs ends them without us.
const COMMANDS_END: Duration = Duration::from_secs(30);
/// How long an agent's stdout may stay open after its end, held by something that it started.
const LINGER: Duration = Duration::from_millis(500);

/// What is to be run, and how.
pub struct Options {
    /// The agent and its arguments.
    pub command: Vec<OsString>,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// How the agent itself is confined, where it is.
    pub confine: Option<Confinement>,
    /// Where one-line notices for a person go.
    pub note: Note,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The agent's exit status, or 128 and the number of the signal that ended it.
    pub exit_status: u8,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The agent cannot be started.
    #[error("cannot start the agent {}", crate::printable::path(program))]
    Agent {
        /// Its program.
        program: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent cannot be confined.
    #[error("cannot confine the agent")]
    Confine(#[from] ConfineError),
}

/// Stands between the editor on this process's stdio and an agent, until one of them ends or `stopped` resolves.
/// Returns when nothing is left of the agent and of what it had run. An agent in no sandbox is started by executing this
/// same file as [`crate::leash::PROCESS_NAME`]: the program must give that to [`crate::leash::main`] before all else.
pub async fn run(
    client: Client,
    options: Options,
    stopped: impl Future<Output = ()>,
) -> Result<Ended, RunError> {
    let is_confined = options.confine.is_some();
    let started = start(&client, &options.command, options.confine).await?;
    // What a confined agent runs by itself is confined with it.
    let note = if is_confined { Arc::new(|_: &str| {}) } else { options.note };
    let (editor, to_editor) = framing::outbox();
    let permissions = Permissions::new(editor.clone());
    let asked = permissions.clone();
    let ask: Asker = Arc::new(move |question| Box::pin(asked.clone().ask(question)));
    let terminals = Terminals::new(client, options.profile, Some(ask));
    let (agent_box, to_agent) = framing::outbox();
    let shim = Shim::new((editor.clone(), agent_box.clone()), terminals.clone(), permissions, note);
    let (of_editor, of_agent) = (shim.clone(), shim);
    let wires = Wires {
        from_editor: tokio::spawn(pump(Lines::new(stdio::input()), move |frame| {
            let shim = of_editor.clone();
            async move { shim.take_from_editor(frame).await }
        })),
        from_agent: tokio::spawn(pump(Lines::new(started.stdout), move |frame| {
            let shim = of_agent.clone();
            async move { shim.take_from_agent(frame).await }
        })),
        to_editor: tokio::spawn(to_editor.write(stdio::output())),
        to_agent: tokio::spawn(to_agent.write(started.stdin)),
        editor,
        agent: agent_box,
    };
    Ok(wires.stay(started.agent, terminals, stopped).await)
}

/// An agent that runs, whichever way, and its ends of the wires.
struct Started {
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
    confine: Option<Confinement>,
) -> Result<Started, RunError> {
    match confine {
        Some(confinement) => {
            let (agent, stdin, stdout) = confinement::start(client, command, confinement).await?;
            Ok(Started {
                agent: Agent::Confined(Box::new(agent)),
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
            })
        }
        None => {
            let (agent, stdin, stdout) = agent::start(command).await.map_err(|source| {
                let program = command.first().cloned().unwrap_or_default().into();
                RunError::Agent { program, source }
            })?;
            Ok(Started {
                agent: Agent::Process(Box::new(agent)),
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
            })
        }
    }
}

impl Agent {
    async fn ended(&mut self) -> u8 {
        match self {
            Self::Process(agent) => agent.ended().await,
            Self::Confined(agent) => agent.ended().await,
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
struct Wires {
    editor: Outbox,
    agent: Outbox,
    from_editor: JoinHandle<()>,
    from_agent: JoinHandle<()>,
    to_editor: JoinHandle<()>,
    to_agent: JoinHandle<()>,
}

/// What came first.
enum First {
    EditorGone,
    AgentSilent,
    AgentEnded(u8),
    Stopped,
}

impl Wires {
    async fn stay(
        mut self,
        mut agent: Agent,
        terminals: Terminals,
        stopped: impl Future<Output = ()>,
    ) -> Ended {
        let first = tokio::select! {
            _ = &mut self.from_editor => First::EditorGone,
            () = self.editor.gone() => First::EditorGone,
            _ = &mut self.from_agent => First::AgentSilent,
            status = agent.ended() => First::AgentEnded(status),
            () = stopped => First::Stopped,
        };
        let mut own_end = None;
        match first {
            First::EditorGone => {
                tracing::info!("the editor is gone");
                own_end = self.leave_to_agent(&mut agent).await;
            }
            First::AgentSilent => {
                tracing::info!("the agent has closed its stdout");
                own_end = self.leave_to_agent(&mut agent).await;
            }
            First::AgentEnded(status) => {
                tracing::info!(status, "the agent has ended");
                own_end = Some(status);
            }
            First::Stopped => tracing::info!("told to stop"),
        }
        // Commands and agent at once: neither waits for the other's grace.
        let closing = tokio::spawn({
            let terminals = terminals.clone();
            async move { terminals.close().await }
        });
        let stopped_with = agent.stop().await;
        self.say_last_words().await;
        let ending = async {
            let _ = closing.await;
            // What was still being started when the sessions were closed.
            terminals.close().await;
        };
        if timeout(COMMANDS_END, ending).await.is_err() {
            tracing::warn!("the gateway has not said that all commands have ended");
        }
        Ended { exit_status: own_end.unwrap_or(stopped_with) }
    }

    /// Tells the agent that nobody is there any more, and gives it a moment to end by itself.
    async fn leave_to_agent(&self, agent: &mut Agent) -> Option<u8> {
        self.agent.written(LEAVE_TO_AGENT).await;
        self.agent.close();
        timeout(LEAVE_TO_AGENT, agent.ended()).await.ok()
    }

    /// What the agent said before its end reaches the editor.
    async fn say_last_words(mut self) {
        if !self.from_agent.is_finished() {
            let _ = timeout(LINGER, &mut self.from_agent).await;
        }
        self.editor.written(LAST_WORDS).await;
        self.editor.close();
        self.agent.close();
        for task in [self.from_editor, self.from_agent, self.to_editor, self.to_agent] {
            task.abort();
        }
    }
}

/// Takes frame after frame until there are no more, or nobody wants them.
async fn pump<R, T, F>(mut lines: Lines<R>, mut take: T)
where
    R: AsyncRead + Unpin,
    T: FnMut(Frame) -> F,
    F: Future<Output = Result<(), Gone>>,
{
    loop {
        match lines.next().await {
            Ok(Some(frame)) => {
                if take(frame).await.is_err() {
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
