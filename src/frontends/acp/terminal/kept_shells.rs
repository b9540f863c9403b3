//! The kept shell of each session, in which its commands run line after line, if the embedding client wants that.
//!
//! A command that cannot run in the shell gets a terminal of its own: one that brings variables, which would stay in the shell; one
//! that comes while another one runs; one that the rules give what a running shell cannot be given.
//!
//! A line is run once. If the gateway is lost in the middle, the line goes on in its shell; it counts as running until the next
//! gateway finds the shell at its prompt, and its exit status is then not known.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{CreateTerminalRequest, SessionId, TerminalExitStatus};
use tokio::sync::oneshot;
use tonic::{Code, Status, Streaming};
use ulid::Ulid;

use super::{
    create::{self, CommandForm},
    exit,
    output::LineOutput,
    terminal::{AcpTerminal, ShellLine},
    terminals::AcpTerminals,
};
use crate::{
    acp::{
        approval::{self, ApprovalPrompt},
        sessions::{AcpSession, KeptShells, SessionShell},
    },
    client::{self, RetryingClient, detail_of, reason_of},
    proto::v1::{
        self, ApprovalDecision, LineDoubt, LineEnd, ListApprovalsRequest, RunLineRequest, RunLineResponse,
        outcome::End, run_line_response::Event,
    },
};

/// How much of a line's output is kept, unless its request says otherwise.
const OUTPUT_BYTES: u64 = 1 << 20;
/// How much of it is kept at most, whatever the request says.
const OUTPUT_MAX_BYTES: u64 = 64 << 20;
/// For agents that show their model the output and the exit code, and nothing else.
const NOT_CONFIRMED: &str =
    "the shell has not confirmed the end of this command: its exit status is not known";

/// Where a command runs.
pub(super) enum LineStart {
    /// In the session's shell.
    Line(Arc<AcpTerminal>),
    /// It needs a terminal of its own.
    Terminal,
}

impl AcpTerminals {
    /// Starts a command in its session's shell, if it can run there.
    pub(super) async fn start_in_shell<T>(
        &self,
        shells: &KeptShells,
        session: &Arc<AcpSession>,
        request: &CreateTerminalRequest,
        at_gateway: &str,
        caller: &mut oneshot::Sender<T>,
    ) -> Result<LineStart, Status> {
        if !request.env.is_empty() {
            return Ok(LineStart::Terminal);
        }
        let line = line_of(request);
        let mut has_retried = false;
        loop {
            let shell = self.shell(shells, session, at_gateway).await?;
            match self.run_line((shells, session), &shell, &line, caller).await {
                Ok((line_id, events)) => {
                    let limit = request.output_byte_limit.unwrap_or(OUTPUT_BYTES).min(OUTPUT_MAX_BYTES);
                    let terminal = Arc::new(AcpTerminal::of_line(
                        self.0.client.clone(),
                        session.clone(),
                        ShellLine::new(shell, line_id),
                        request.cwd.as_ref().unwrap_or(&session.workspace.cwd).to_string_lossy().into_owned(),
                        usize::try_from(limit).unwrap_or(usize::MAX),
                    ));
                    tokio::spawn(follow(terminal.clone(), self.0.client.clone(), events));
                    return Ok(LineStart::Line(terminal));
                }
                Err(status) => match reason_of(&status).as_str() {
                    "SHELL_BUSY" | "LINE_NEEDS_OTHER_TERMINAL" => return Ok(LineStart::Terminal),
                    // A command has left the shell, or it was released.
                    "COMMAND_ENDED" | "TERMINAL_NOT_FOUND" if !has_retried => {
                        has_retried = true;
                        self.forget_shell(session, &shell).await;
                    }
                    _ => return Err(status),
                },
            }
        }
    }

    /// The session's shell, started if there is none.
    async fn shell(
        &self,
        shells: &KeptShells,
        session: &AcpSession,
        at_gateway: &str,
    ) -> Result<SessionShell, Status> {
        let mut kept = session.shell.lock().await;
        if let Some(shell) = kept.as_ref().filter(|shell| shell.session_id == at_gateway) {
            return Ok(shell.clone());
        }
        let start = session.start_dir().map(|start| start.to_string_lossy().into_owned());
        let request = v1::CreateTerminalRequest {
            session_id: at_gateway.to_owned(),
            request_id: Ulid::generate().to_string(),
            command: shells.program.clone().map(v1::create_terminal_request::Command::Program),
            cwd: start.unwrap_or_default(),
            on_ask: v1::OnAsk::Refuse.into(),
            pty: Some(v1::Pty { columns: shells.columns, rows: shells.rows, ..v1::Pty::default() }),
            kept_shell: Some(v1::KeptShell {}),
            ..client::new_terminal()
        };
        let created = self.0.client.create_terminal(request).await?;
        let shell = SessionShell { session_id: created.session_id, terminal_id: created.id };
        *kept = Some(shell.clone());
        Ok(shell)
    }

    async fn forget_shell(&self, session: &AcpSession, stale: &SessionShell) {
        {
            let mut kept = session.shell.lock().await;
            if kept.as_ref() == Some(stale) {
                *kept = None;
            }
        }
        self.release_shell(stale).await;
    }

    /// Ends a shell and all that runs in it.
    pub(super) async fn release_shell(&self, shell: &SessionShell) {
        let request = v1::ReleaseTerminalRequest {
            terminal_id: shell.terminal_id.clone(),
            session_id: shell.session_id.clone(),
            grace: None,
        };
        match self.0.client.client().terminals.release_terminal(request).await {
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            // It ends with its session.
            Err(status) => tracing::warn!(error = %status, "cannot release a session's shell"),
        }
    }

    /// Runs a line, after a person was asked where a rule asks. It is never sent again to a gateway that has not answered.
    async fn run_line<T>(
        &self,
        (shells, session): (&KeptShells, &AcpSession),
        shell: &SessionShell,
        line: &str,
        caller: &mut oneshot::Sender<T>,
    ) -> Result<(String, Streaming<RunLineResponse>), Status> {
        let mut has_asked = false;
        loop {
            let request = RunLineRequest {
                terminal_id: shell.terminal_id.clone(),
                session_id: shell.session_id.clone(),
                line: line.to_owned(),
                when_busy: v1::WhenBusy::Refuse.into(),
                on_ask: v1::OnAsk::Refuse.into(),
                quiet_limit: prost_types::Duration::try_from(shells.quiet_limit).ok(),
            };
            let begun = match self.0.client.client().terminals.run_line(request).await {
                Ok(events) => first_event(events.into_inner()).await,
                Err(status) => Err(status),
            };
            match (begun, &self.0.prompt) {
                (Err(status), Some(prompt)) if reason_of(&status) == "APPROVAL_REQUIRED" && !has_asked => {
                    has_asked = true;
                    self.ask_about_line(prompt, (session, shell), &status, caller.closed()).await?;
                }
                (begun, _) => return begun,
            }
        }
    }

    /// Puts the question about a line to a person, and gives the answer to the gateway.
    async fn ask_about_line(
        &self,
        prompt: &ApprovalPrompt,
        (session, shell): (&AcpSession, &SessionShell),
        asked: &Status,
        cancelled: impl Future<Output = ()>,
    ) -> Result<(), Status> {
        let Some(id) = detail_of(asked, "approval_id") else {
            return Err(asked.clone());
        };
        let client = self.0.client.client();
        let request = ListApprovalsRequest {
            session_id: shell.session_id.clone(),
            pending_only: true,
            ..ListApprovalsRequest::default()
        };
        let open = client.approvals.clone().list_approvals(request).await?.into_inner().approvals;
        let Some(approval) = open.into_iter().find(|approval| approval.id == id) else {
            // Another approver was faster: the line, sent again, gets the answer.
            return Ok(());
        };
        let question = approval::question(&SessionId::new(session.id.clone()), approval);
        let (decision, comment) = tokio::select! {
            reply = prompt(question) => reply.into_decision(),
            () = cancelled => (ApprovalDecision::Deny, "the agent took its request back".to_owned()),
        };
        approval::resolve(&client, &id, decision, comment).await
    }
}

/// The id of the line, once the shell has begun it.
async fn first_event(
    mut events: Streaming<RunLineResponse>,
) -> Result<(String, Streaming<RunLineResponse>), Status> {
    match events.message().await?.and_then(|event| event.event) {
        Some(Event::Started(started)) => Ok((started.line_id, events)),
        _ => Err(Status::unavailable("the gateway has ended the line's events")),
    }
}

/// A request as one line for a shell.
fn line_of(request: &CreateTerminalRequest) -> String {
    let line = match create::form_of(request) {
        CommandForm::Word | CommandForm::ShellLine => request.command.clone(),
        CommandForm::Argv => {
            let words = std::iter::once(&request.command).chain(&request.args);
            words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
        }
    };
    match &request.cwd {
        Some(cwd) => format!("cd -- {} && {{\n{line}\n}}", quoted(&cwd.to_string_lossy())),
        None => line,
    }
}

/// One word of a POSIX shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Takes in a line's output and its end.
pub(in crate::acp) async fn follow(
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
    let notice = notice_of(&end, &status);
    terminal.end_line(status, notice.as_deref());
}

/// What an agent must know of the end. A shell that its command has left by `exit` is no news.
fn notice_of(end: &LineEnd, status: &TerminalExitStatus) -> Option<String> {
    match end.outcome.as_ref().and_then(|outcome| outcome.end.as_ref()) {
        Some(End::Signal(name)) => {
            Some(format!("the session's shell has ended by {name}: its directory and variables are lost"))
        }
        Some(End::ExitCode(_)) => None,
        None => status.exit_code.is_none().then(|| NOT_CONFIRMED.to_owned()),
    }
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
    fn a_request_is_one_line() {
        let request = CreateTerminalRequest::new("s", "echo $X; cd y");
        assert_eq!(line_of(&request), "echo $X; cd y");
        let request = CreateTerminalRequest::new("s", "printf").args(vec!["it's".into(), "$X *".into()]);
        assert_eq!(line_of(&request), r"'printf' 'it'\''s' '$X *'");
        let request = CreateTerminalRequest::new("s", "a || b").cwd(std::path::PathBuf::from("/it's"));
        assert_eq!(line_of(&request), "cd -- '/it'\\''s' && {\na || b\n}");
    }

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
