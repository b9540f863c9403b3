//! The agent: on the host under a subreaper, with pipes for stdin and stdout, or the whole of it in a sandbox of a gateway's.
//!
//! No messages are read here. On the host its stderr is ours: what it says there goes where the editor looks for it; only the subreaper
//! ends processes, the agent and its descendants. A sandbox is for agents that run commands themselves: then these are confined with the
//! agent, whatever it asks for. Its stdin is fed by calls, its stdout and stderr come as streams, losslessly. It ends as every command of
//! a gateway does, with all that it started; a caller that goes away ends it too.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream as BlockingStream, process::CommandExt},
    },
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
    process::{Child, Command},
    sync::watch,
    time::timeout,
};
use tonic::{Code, Status, Streaming};

use super::{sessions::SharedDirectories, terminal::exit};
use crate::{
    byte_text,
    client::{self, Client, FrontEnd},
    proto::v1::{
        self, CreateSessionRequest, CreateTerminalRequest, KillTerminalRequest, RunRequest, RunResponse,
        WriteInputRequest, run_response::Event,
    },
    sandbox_program::SandboxProgram,
    sys::fdpass,
    wire::{self, subreaper},
};

/// How long an agent may take to be started, or not.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the subreaper may take to end everything: its own limits, and a little.
const END_TIMEOUT: Duration = Duration::from_secs(subreaper::GRACE_S + subreaper::KILL_LIMIT_S + 5);
/// What is said of an agent whose end nobody saw.
const UNKNOWN_STATUS: u8 = 125;
/// What waits between a stream and its reader, on each side.
const PIPE_BYTES: usize = 256 << 10;
/// What one call feeds, at most.
const FEED_BYTES: usize = 256 << 10;
/// How long each step of the end may take: the kill, that the end is told, the closing of the session.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);

/// An agent that runs.
#[derive(Debug)]
pub(super) struct AgentProcess {
    /// The subreaper's process. Never killed while it works: the agent's processes would get away.
    process: Child,
    /// Closed, however that comes, it ends everything.
    socket: UnixStream,
    /// The bytes that the subreaper has sent.
    received: BytesMut,
}

/// Starts the agent, with these variables in addition to our own. The first word is looked for in `PATH`.
pub(super) async fn start_on_host(
    program: &SandboxProgram,
    command: &[OsString],
    env: &[(String, String)],
) -> io::Result<(AgentProcess, Sender, Receiver)> {
    let (ours, theirs) = BlockingStream::pair()?;
    let (agent_stdin, stdin): (PipeReader, PipeWriter) = io::pipe()?;
    let (stdout, agent_stdout) = io::pipe()?;
    let mut subreaper = program.command(subreaper::PROCESS_NAME);
    // A key in a terminal or a signal to our group must not end it before its work is done.
    subreaper.args(command).process_group(0);
    let process = Command::from(subreaper)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()?;
    let frame = wire::encode(&(), 2).map_err(io::Error::other)?;
    fdpass::send(ours.as_fd(), &frame, &[agent_stdin.as_fd(), agent_stdout.as_fd()])?;
    drop((agent_stdin, agent_stdout));
    ours.set_nonblocking(true)?;
    let socket = UnixStream::from_std(ours)?;
    let mut agent = AgentProcess { process, socket, received: BytesMut::new() };
    agent.wait_for_start().await?;
    Ok((agent, Sender::from_owned_fd(stdin.into())?, Receiver::from_owned_fd(stdout.into())?))
}

impl AgentProcess {
    async fn wait_for_start(&mut self) -> io::Result<()> {
        match timeout(START_TIMEOUT, self.receive(subreaper::STARTED_BYTES)).await {
            Ok(true) => {}
            Ok(false) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        match self.received.first_chunk().map(|errno| i32::from_le_bytes(*errno)) {
            Some(0) | None => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for the end of the agent's own process, and gives the status to exit with. May be dropped and called again.
    pub(super) async fn wait(&mut self) -> u8 {
        let is_known = self.receive(subreaper::STARTED_BYTES + 1).await;
        if is_known { self.received[subreaper::STARTED_BYTES] } else { UNKNOWN_STATUS }
    }

    /// Ends the agent and all that descends from it: TERM, and KILL after a grace. Returns the agent's status when none
    /// of them is left, or the limit has come.
    pub(super) async fn stop(mut self) -> u8 {
        // It may have gone already.
        let _ = self.socket.shutdown().await;
        match timeout(END_TIMEOUT, self.receive(subreaper::STARTED_BYTES + 2)).await {
            Ok(true) => match self.received[subreaper::STARTED_BYTES + 1] {
                0 => {}
                left => tracing::warn!(left, "processes of the agent's could not be ended"),
            },
            Ok(false) => {
                tracing::warn!("the agent's subreaper is gone: what the agent has started may be left")
            }
            Err(_) => tracing::warn!("the agent's subreaper does not end"),
        }
        let status = timeout(Duration::ZERO, self.wait()).await.unwrap_or(UNKNOWN_STATUS);
        // It has said its last word, and ends by itself.
        let _ = timeout(END_TIMEOUT, self.process.wait()).await;
        status
    }

    /// Whether that many bytes were heard.
    async fn receive(&mut self, count: usize) -> bool {
        while self.received.len() < count {
            match self.socket.read_buf(&mut self.received).await {
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        true
    }
}

/// How an agent is confined.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// The directory that it may write in, and where it starts.
    pub workspace: PathBuf,
    /// What its sessions have alongside: a confined agent reads and edits by itself what its commands do.
    pub shared: SharedDirectories,
    /// The profile; none for the policy's default.
    pub profile: Option<String>,
    /// The network to ask for; as the profile says where nothing is asked.
    pub network: v1::Network,
    /// Variables for the agent. Nothing of this process's environment is passed on by itself.
    pub env: Vec<(String, String)>,
}

/// Why an agent could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The gateway refuses.
    #[error("the gateway refuses to run the agent")]
    Gateway(#[from] Status),
    /// The call ended before the agent had started.
    #[error("the gateway ended the call before the agent had started")]
    NotStarted,
}

/// An agent that runs in a sandbox.
#[derive(Debug)]
pub(super) struct ConfinedAgent {
    client: Client,
    session_id: String,
    terminal_id: String,
    ended: watch::Receiver<Option<u8>>,
}

/// Starts the agent in a session of its own.
pub(super) async fn start_confined(
    client: &Client,
    command: &[OsString],
    confinement: Confinement,
) -> Result<(ConfinedAgent, DuplexStream, DuplexStream), ConfineError> {
    let mut words = command.iter().map(|word| byte_text::from_bytes(word.as_bytes()));
    let program = words.next().unwrap_or_default();
    let args = words.collect();
    let texts = |paths: &[PathBuf]| paths.iter().map(|path| byte_text::from_path(path)).collect::<Vec<_>>();
    let mut roots = vec![byte_text::from_path(&confinement.workspace)];
    roots.extend(texts(&confinement.shared.writable));
    let mut sessions = client.sessions.clone();
    let session =
        sessions.create_session(FrontEnd::Acp.sign(client::session_in_bytes(CreateSessionRequest {
            roots,
            read_only_roots: texts(&confinement.shared.read_only),
            ssh_agent: client::ssh_agent_socket(),
            profile: confinement.profile.unwrap_or_default(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            extent: v1::WorkspaceExtent::Repository.into(),
            labels: [("acp.confined-agent".to_owned(), "yes".to_owned())].into(),
            ..Default::default()
        })));
    let session_id = session.await?.into_inner().session.unwrap_or_default().id;
    let create = client::terminal_in_bytes(CreateTerminalRequest {
        session_id: session_id.clone(),
        command: Some(v1::create_terminal_request::Command::Program(program)),
        args,
        env: confinement
            .env
            .into_iter()
            .map(|(name, value)| v1::EnvVar { name, value, ..Default::default() })
            .collect(),
        network: confinement.network.into(),
        output_mode: v1::OutputMode::Split.into(),
        stdin_mode: v1::StdinMode::Open.into(),
        overflow: v1::Overflow::Block.into(),
        // Nobody can be asked before the agent speaks.
        on_ask: v1::OnAsk::Refuse.into(),
        ..client::new_terminal()
    });
    match run(client, create).await {
        Ok((terminal_id, events)) => {
            let (stdin, fed) = tokio::io::duplex(PIPE_BYTES);
            let (stdout, read) = tokio::io::duplex(PIPE_BYTES);
            let (end, ended) = watch::channel(None);
            tokio::spawn(feed(client.clone(), terminal_id.clone(), fed));
            tokio::spawn(async move {
                let status = forward_output(events, stdout).await;
                end.send_replace(Some(status));
            });
            Ok((ConfinedAgent { client: client.clone(), session_id, terminal_id, ended }, stdin, read))
        }
        Err(error) => {
            close_session(client, &session_id).await;
            Err(error)
        }
    }
}

impl ConfinedAgent {
    /// Waits for the end, and gives the status to exit with.
    pub(super) async fn wait(&mut self) -> u8 {
        match self.ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or(UNKNOWN_STATUS),
            Err(_) => UNKNOWN_STATUS,
        }
    }

    /// Ends the agent and all that it started. Returns when nothing is left.
    pub(super) async fn stop(mut self) -> u8 {
        if self.ended.borrow().is_none() {
            let request = KillTerminalRequest { terminal_id: self.terminal_id.clone(), ..Default::default() };
            match timeout(STEP_TIMEOUT, self.client.terminals.clone().kill_terminal(request)).await {
                Ok(Ok(_)) => {}
                Ok(Err(status)) if status.code() == Code::NotFound => {}
                Ok(Err(status)) => tracing::warn!(error = %status, "cannot stop the agent"),
                Err(_) => tracing::warn!("cannot stop the agent: the gateway does not answer"),
            }
        }
        let status = timeout(STEP_TIMEOUT, self.wait()).await.unwrap_or(UNKNOWN_STATUS);
        close_session(&self.client, &self.session_id).await;
        status
    }
}

async fn run(
    client: &Client,
    create: CreateTerminalRequest,
) -> Result<(String, Streaming<RunResponse>), ConfineError> {
    let request = RunRequest { create: Some(create), resumable: false };
    let mut events = client.terminals.clone().run(request).await?.into_inner();
    match events.message().await?.and_then(|event| event.event) {
        Some(Event::Started(terminal)) => Ok((terminal.id, events)),
        Some(Event::Chunk(_) | Event::Finished(_)) | None => Err(ConfineError::NotStarted),
    }
}

/// Feeds the agent's stdin, and closes it at the end.
async fn feed(client: Client, terminal_id: String, mut from: impl AsyncRead + Unpin) {
    let mut buffer = vec![0; FEED_BYTES];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        let eof = length == 0;
        let data = prost::bytes::Bytes::copy_from_slice(&buffer[..length]);
        let request = WriteInputRequest {
            terminal_id: terminal_id.clone(),
            session_id: String::new(),
            data,
            eof,
            offset: None,
        };
        match client.terminals.clone().write_input(request).await {
            Ok(answer) if eof || answer.get_ref().written_bytes < length as u64 => return,
            Ok(_) => {}
            // The agent has ended, or reads no more.
            Err(status) => return tracing::debug!(error = %status, "the agent reads no more"),
        }
    }
}

/// Passes stdout to its reader and stderr to ours, until the end. The agent waits while its reader does.
async fn forward_output(mut events: Streaming<RunResponse>, mut stdout: DuplexStream) -> u8 {
    let mut stderr = crate::stdio::stderr();
    loop {
        match events.message().await {
            Ok(Some(RunResponse { event: Some(Event::Chunk(chunk)) })) => {
                let written = if chunk.stream() == v1::OutputStream::Stderr {
                    // A stderr that nobody reads is no reason to end.
                    let _ = stderr.write_all(&chunk.data).await;
                    stderr.flush().await.or(Ok(()))
                } else {
                    stdout.write_all(&chunk.data).await
                };
                if written.is_err() {
                    // Nobody reads the agent: to drop the call is to stop it.
                    return UNKNOWN_STATUS;
                }
            }
            Ok(Some(RunResponse { event: Some(Event::Finished(terminal)) })) => {
                let code = terminal.outcome.and_then(|outcome| exit::status_of(&outcome).exit_code);
                return code.and_then(|code| u8::try_from(code).ok()).unwrap_or(UNKNOWN_STATUS);
            }
            Ok(Some(RunResponse { event: Some(Event::Started(_)) | None })) => {}
            Ok(None) => return UNKNOWN_STATUS,
            Err(status) => {
                tracing::error!(error = %status, "the agent's gateway has failed");
                return UNKNOWN_STATUS;
            }
        }
    }
}

async fn close_session(client: &Client, session_id: &str) {
    match timeout(STEP_TIMEOUT, client.close_session(session_id)).await {
        Ok(Ok(())) => {}
        // It ends with this process too.
        Ok(Err(status)) => tracing::warn!(error = %status, "cannot close the agent's session"),
        Err(_) => tracing::warn!("cannot close the agent's session: the gateway does not answer"),
    }
}
