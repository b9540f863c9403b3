//! A line of a session's kept shell, followed to its end.
//!
//! The line is run once. If the gateway is lost in the middle, the line goes on in its shell; it counts as running until the next
//! gateway finds the shell at its prompt, and its exit status is then not known.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::TerminalExitStatus;
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use super::{exit, output_snapshot::LineOutput, terminal::AcpTerminal};
use crate::{
    client::RetryingClient,
    proto::v1::{
        GetShellRequest, GetShellResponse, InterruptLineRequest, LineDoubt, LineEnd, RunLineResponse,
        ShellActivity, run_line_response::Event,
    },
};

/// How often a shell is asked whether a line is over that nobody follows any more.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// For agents that show their model the output and the exit code, and nothing else.
const NOT_CONFIRMED: &str =
    "the shell has not confirmed the end of this command: its exit status is not known";

/// A session's kept shell at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionShell {
    /// The gateway's session.
    pub session_id: String,
    /// The shell's terminal, which has a pseudo-terminal.
    pub terminal_id: String,
}

impl SessionShell {
    /// What it does now.
    async fn status(&self, client: &RetryingClient) -> Result<GetShellResponse, Status> {
        let request =
            GetShellRequest { terminal_id: self.terminal_id.clone(), session_id: self.session_id.clone() };
        let asked = client.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.terminals.clone().get_shell(request).await }
        });
        asked.await.map(tonic::Response::into_inner)
    }
}

/// One line.
#[derive(Debug)]
pub(super) struct ShellLine {
    pub(super) shell: SessionShell,
    line_id: String,
    changed: watch::Sender<()>,
}

impl ShellLine {
    pub(super) fn new(shell: SessionShell, line_id: String) -> Self {
        Self { shell, line_id, changed: watch::Sender::new(()) }
    }

    /// The protocol's id of it.
    pub(super) fn protocol_id(&self) -> String {
        format!("{}-{}", self.shell.terminal_id, self.line_id)
    }

    /// There is more output, or the end.
    pub(super) fn has_changed(&self) {
        self.changed.send_replace(());
    }

    /// Waits until what its task takes in makes this so.
    pub(super) async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does what Ctrl-C does, if the line still has the shell.
    pub(super) async fn interrupt(&self, client: &RetryingClient) -> Result<(), Status> {
        if self.shell.status(client).await?.line_id != self.line_id {
            return Ok(());
        }
        let SessionShell { session_id, terminal_id } = self.shell.clone();
        let request = InterruptLineRequest { terminal_id, session_id };
        client.client().terminals.interrupt_line(request).await.map(drop)
    }

    /// Waits until the shell is at its prompt, has ended, or is gone.
    async fn wait_unfollowed(&self, client: &RetryingClient) {
        loop {
            match self.shell.status(client).await {
                Ok(status) if !matches!(status.activity(), ShellActivity::Idle | ShellActivity::Ended) => {}
                Ok(_) => return,
                Err(status) if status.code() == Code::NotFound => return,
                // The gateway is away.
                Err(_) => {}
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }
}

/// Takes in a line's output and its end.
pub(super) async fn follow(
    terminal: Arc<AcpTerminal>,
    client: RetryingClient,
    mut events: Streaming<RunLineResponse>,
) {
    let mut ends = LineEnds::default();
    let end = loop {
        match events.message().await.map(|event| event.and_then(|event| event.event)) {
            Ok(Some(Event::Chunk(chunk))) => {
                terminal.take_line_output(LineOutput::Text(&ends.as_written(&chunk.data)));
            }
            Ok(Some(Event::Gap(_))) => terminal.take_line_output(LineOutput::Gap),
            Ok(Some(Event::Started(_) | Event::Waits(_))) => {}
            Ok(Some(Event::End(end))) => break Some(end),
            Ok(None) | Err(_) => break None,
        }
    };
    terminal.take_line_output(LineOutput::Text(ends.rest()));
    let end = match (end, &terminal.line) {
        (Some(end), _) => end,
        (None, Some(line)) => {
            tokio::select! {
                () = line.wait_unfollowed(&client) => {}
                () = terminal.session.closed.cancelled() => {}
            }
            LineEnd { doubts: vec![LineDoubt::MarksMissing.into()], ..LineEnd::default() }
        }
        (None, None) => return,
    };
    let status: TerminalExitStatus = exit::status_of_line(&end);
    let notice = status.exit_code.is_none().then_some(NOT_CONFIRMED);
    terminal.end_line(status, notice);
}

/// Ends of lines as programs write them: the terminal makes `\r\n` of each `\n`.
#[derive(Debug, Default)]
struct LineEnds {
    /// The last byte was a `\r`, which may belong to the next one.
    has_return: bool,
}

impl LineEnds {
    fn as_written(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut written = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if std::mem::take(&mut self.has_return) && byte != b'\n' {
                written.push(b'\r');
            }
            match byte {
                b'\r' => self.has_return = true,
                other => written.push(other),
            }
        }
        written
    }

    /// What no byte follows.
    fn rest(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.has_return) { b"\r" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_lines_are_those_of_the_program_however_the_output_is_cut() {
        let output = b"one\r\ntwo\rthree\r\r\n\n\rfour\r";
        let expected = b"one\ntwo\rthree\r\n\n\rfour\r";
        for at in 0..=output.len() {
            let mut ends = LineEnds::default();
            let mut written = ends.as_written(&output[..at]);
            written.extend(ends.as_written(&output[at..]));
            written.extend_from_slice(ends.rest());
            assert_eq!(written, expected, "cut at {at}");
        }
    }
}
