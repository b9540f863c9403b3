//! Follows a process from its start to its end: its output and its end become notifications, what the client writes becomes input.
//!
//! The command waits while the client does not read, and while it is away and no more can be kept. A notification
//! goes to the connection that the session has at the moment, if it has one. What is sent while there is none, or is lost with one, is
//! not sent again: the client reads it with `process/read`.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::{
    errors, message,
    process::{Process, ProcessEnd, StreamName},
    session::{ExecSession, Run},
};
use crate::{
    client::end_lines,
    json_rpc::{LineSender, Receipt},
    proto::v1::{self, outcome::End, run_response::Event},
    signal,
};

/// The exit code of a command that a time limit has ended, as of timeout(1).
const TIME_LIMIT: i32 = 124;
/// The exit code when that of the command is unknown.
const UNKNOWN: i32 = -1;

/// A process that was started and is not followed yet. Dropped, its command is stopped.
#[derive(Debug)]
pub(super) struct StartedProcess {
    pub(super) session: Arc<ExecSession>,
    pub(super) process: Arc<Process>,
    pub(super) run: Run,
    pub(super) inputs: mpsc::Receiver<Bytes>,
    pub(super) is_pty: bool,
}

impl StartedProcess {
    /// Returns when the process has ended. Dropped, it stops the command.
    pub(super) async fn follow(self, to: &Outlet) {
        let Self { session, process, mut run, inputs, is_pty } = self;
        let terminal = run.terminal.clone();
        let feeding = AbortOnDropHandle::new(tokio::spawn(feed(session.clone(), terminal.clone(), inputs)));
        events(&process, &mut run, to, is_pty).await;
        drop(feeding);
        release(&session, terminal).await;
    }
}

async fn events(process: &Arc<Process>, run: &mut Run, to: &Outlet, is_pty: bool) {
    let notify = |method: &str, seq: u64, params: Value| {
        let process = process.clone();
        to.send(message::notification(method, &params), Box::new(move || process.received(seq..=seq)))
    };
    let output = async |stream: StreamName, bytes: Bytes| {
        let (seq, params) = process.push(stream, bytes).await;
        notify("process/output", seq, params).await;
    };
    let error_stream = if is_pty { StreamName::Pty } else { StreamName::Stderr };
    let end = loop {
        match run.next().await {
            Ok(Event::Started(_)) => {}
            Ok(Event::Chunk(chunk)) => {
                let stream = match chunk.stream() {
                    _ if is_pty => StreamName::Pty,
                    v1::OutputStream::Stderr => StreamName::Stderr,
                    v1::OutputStream::Stdout | v1::OutputStream::Unspecified => StreamName::Stdout,
                };
                output(stream, chunk.data).await;
            }
            Ok(Event::Finished(terminal)) => {
                let outcome = terminal.outcome.unwrap_or_default();
                let notes = notes(&outcome);
                if !notes.is_empty() {
                    output(error_stream, notes.into()).await;
                }
                break end_of(&outcome);
            }
            Err(status) => break lost(&status),
        }
    };
    let (exited, closed) = process.end(end);
    for (method, params) in [("process/exited", exited), ("process/closed", closed)] {
        let seq = params["seq"].as_u64().unwrap_or_default();
        notify(method, seq, params).await;
    }
}

/// What the model is told next to the command's own output.
fn notes(outcome: &v1::Outcome) -> String {
    let lines = end_lines(outcome, "what is to go on needs a process of its own, in the foreground");
    lines.iter().map(|line| format!("provost: {line}\n")).collect()
}

fn end_of(outcome: &v1::Outcome) -> ProcessEnd {
    let own = |exit_code| ProcessEnd { exit_code, failure: None };
    match (outcome.cause(), &outcome.end) {
        (v1::ExitCause::TimeLimit | v1::ExitCause::IdleLimit, _) => own(TIME_LIMIT),
        (v1::ExitCause::SandboxLost, _) | (_, None) => ProcessEnd {
            exit_code: UNKNOWN,
            failure: Some("the exit code is unknown: the sandbox was lost, or ended as a whole".to_owned()),
        },
        (_, Some(End::ExitCode(code))) => own(i32::try_from(*code).unwrap_or(UNKNOWN)),
        (_, Some(End::Signal(name))) => own(signal::number(name).map_or(UNKNOWN, |number| 128 + number)),
    }
}

fn lost(status: &Status) -> ProcessEnd {
    ProcessEnd { exit_code: UNKNOWN, failure: Some(errors::of_process(status).message) }
}

/// Writes what comes, in order and each byte once, until the command takes no more.
async fn feed(session: Arc<ExecSession>, terminal: v1::Terminal, mut inputs: mpsc::Receiver<Bytes>) {
    let mut offset = 0;
    while let Some(bytes) = inputs.recv().await {
        let length = bytes.len() as u64;
        let request = v1::WriteInputRequest {
            terminal_id: terminal.id.clone(),
            session_id: terminal.session_id.clone(),
            data: bytes,
            eof: false,
            offset: Some(offset),
        };
        match session.client.write_input(request).await {
            Ok(written) if written == length => offset += length,
            Ok(_) => return,
            Err(status) => {
                tracing::info!(error = %status, "the command takes no more input");
                return;
            }
        }
    }
}

async fn release(session: &ExecSession, terminal: v1::Terminal) {
    if let Err(status) = session.client.release_terminal(&terminal.id, &terminal.session_id).await {
        // It ends with the session.
        tracing::info!(error = %status, "a process that has ended was not removed");
    }
}

/// The connection of a session.
#[derive(Debug)]
pub(super) struct Outlet(Mutex<Option<LineSender>>);

impl Outlet {
    pub(super) fn new(to: LineSender) -> Self {
        Self(Mutex::new(Some(to)))
    }

    /// From now on notifications go here.
    pub(super) fn attach(&self, to: LineSender) {
        *self.lock() = Some(to);
    }

    /// There is no connection.
    pub(super) fn detach(&self) {
        *self.lock() = None;
    }

    /// Sends a notification; waits while the client does not read. The receipt is given when the client has it.
    pub(super) async fn send(&self, line: Vec<u8>, receipt: Receipt) {
        let to = self.lock().clone();
        if let Some(to) = to {
            // Without a reader it stays what it is: not received.
            let _ = to.send_for_receipt(line, receipt).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LineSender>> {
        self.0.lock().expect("no code panics while it holds the connection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_exit_code_or_says_why_there_is_none() {
        let outcome =
            |cause: v1::ExitCause, end| v1::Outcome { cause: cause.into(), end, ..Default::default() };
        let code = |cause, end| end_of(&outcome(cause, end)).exit_code;
        assert_eq!(code(v1::ExitCause::Exited, Some(End::ExitCode(7))), 7);
        assert_eq!(code(v1::ExitCause::Killed, Some(End::Signal("SIGKILL".to_owned()))), 137);
        assert_eq!(code(v1::ExitCause::Signalled, Some(End::Signal("SIGRTMIN+1".to_owned()))), 163);
        assert_eq!(code(v1::ExitCause::TimeLimit, Some(End::Signal("SIGTERM".to_owned()))), 124);
        assert!(end_of(&outcome(v1::ExitCause::SandboxLost, None)).failure.is_some());
        assert!(notes(&outcome(v1::ExitCause::MemoryLimit, None)).starts_with("provost: the kernel killed"));
    }
}
