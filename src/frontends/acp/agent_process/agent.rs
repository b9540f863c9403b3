//! The agent's process, started under a subreaper, with pipes for stdin and stdout.
//!
//! Its stderr is ours: what it says there goes where the editor looks for it. This module reads no messages. It ends
//! processes only through the subreaper, which ends the agent and its descendants.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream as BlockingStream, process::CommandExt},
    },
    process::Stdio,
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
    process::{Child, Command},
    time::timeout,
};

use crate::{
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

/// An agent that runs.
#[derive(Debug)]
pub(in crate::acp) struct AgentProcess {
    /// The subreaper's process. Never killed while it works: the agent's processes would get away.
    process: Child,
    /// Closed, however that comes, it ends everything.
    socket: UnixStream,
    /// The bytes that the subreaper has sent.
    received: BytesMut,
}

/// Starts the agent, with these variables in addition to our own. The first word is looked for in `PATH`.
pub(in crate::acp) async fn start(
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
    pub(in crate::acp) async fn wait(&mut self) -> u8 {
        let is_known = self.receive(subreaper::STARTED_BYTES + 1).await;
        if is_known { self.received[subreaper::STARTED_BYTES] } else { UNKNOWN_STATUS }
    }

    /// Ends the agent and all that descends from it: TERM, and KILL after a grace. Returns the agent's status when none
    /// of them is left, or the limit has come.
    pub(in crate::acp) async fn stop(mut self) -> u8 {
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
