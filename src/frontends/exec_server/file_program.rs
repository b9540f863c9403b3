//! Runs one program of GNU coreutils or findutils in the client's sandbox, to its end: all that is done to files is done by these.
//!
//! The program is a command like any other: judged by the policy, confined, recorded. Its output is bounded, and so is its time.

use std::time::Duration;

use bytes::Bytes;

use super::{
    message::{ErrorCode, RpcError},
    refusal,
    run::{Resumption, Run},
    session::ExecSession,
};
use crate::{
    client::{self, denial_lines},
    printable,
    proto::v1::{self, create_terminal_request::Command, outcome::End, run_response::Event},
};

/// How long a file operation may take: what hangs (a FIFO, a dead mount) ends then.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
/// What is kept of a program's stderr, in bytes.
const ERROR_MAX_BYTES: usize = 1_024;
/// What is written at once, in bytes.
const INPUT_PIECE_BYTES: usize = 1 << 20;
/// The label that says which method a command belongs to.
const METHOD_LABEL: &str = "exec_server.method";

/// A program to be run.
#[derive(Debug, Clone)]
pub(super) struct FileProgram<'a> {
    /// The method that needs it.
    pub(super) method: &'a str,
    pub(super) name: &'a str,
    pub(super) args: &'a [&'a str],
    pub(super) input: &'a [u8],
    /// The most output that is taken. More ends the program.
    pub(super) max_bytes: usize,
}

/// What a program has printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed {
    /// At most as much as was asked for.
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    /// None: it was ended by a signal, a limit, or because it printed too much.
    pub(super) exit_code: Option<u32>,
    /// Whether it printed more than was asked for.
    pub(super) is_cut: bool,
}

impl Printed {
    pub(super) fn is_ok(&self) -> bool {
        self.exit_code == Some(0) && !self.is_cut
    }

    /// The error of a program that has failed, in its own words.
    pub(super) fn failure(&self) -> RpcError {
        let words = printable::line(self.stderr.trim()).into_owned();
        let words = if words.is_empty() { "the file operation has failed".to_owned() } else { words };
        RpcError::new(ErrorCode::Internal, "FILE_OPERATION_FAILED", &words)
    }
}

/// Runs a program. What it prints after its bound is not read, and it is stopped.
///
/// # Errors
/// If policy refuses it, it cannot be started, it takes too long, or the gateway goes away meanwhile.
pub(super) async fn run(session: &ExecSession, program: FileProgram<'_>) -> Result<Printed, RpcError> {
    let request = request(session, &program);
    let mut run = Run::start(session.client.clone(), request, Resumption::Never)
        .await
        .map_err(|status| refusal::not_started(&status))?;
    let (client, terminal) = (session.client.client(), run.terminal.clone());
    let input = Bytes::copy_from_slice(program.input);
    let feeding = tokio::spawn(async move { feed(client, terminal, input).await });
    let printed = collect(&mut run, program.max_bytes).await;
    feeding.abort();
    printed
}

async fn collect(run: &mut Run, max_bytes: usize) -> Result<Printed, RpcError> {
    let mut printed = Printed { stdout: Vec::new(), stderr: String::new(), exit_code: None, is_cut: false };
    let mut errors = Vec::new();
    loop {
        match run.next().await.map_err(|status| refusal::of_process(&status))? {
            Event::Started(_) => {}
            Event::Chunk(chunk) if chunk.stream() == v1::OutputStream::Stderr => {
                let room = ERROR_MAX_BYTES.saturating_sub(errors.len()).min(chunk.data.len());
                errors.extend_from_slice(&chunk.data[..room]);
            }
            Event::Chunk(chunk) => {
                let room = max_bytes - printed.stdout.len();
                printed.is_cut = chunk.data.len() > room;
                printed.stdout.extend_from_slice(&chunk.data[..chunk.data.len().min(room)]);
                if printed.is_cut {
                    // Dropped, the run stops its program.
                    return Ok(printed);
                }
            }
            Event::Finished(terminal) => {
                let outcome = terminal.outcome.unwrap_or_default();
                if outcome.cause() == v1::ExitCause::TimeLimit {
                    let message = format!("the file operation did not end in {} s", TIME_LIMIT.as_secs());
                    return Err(RpcError::new(ErrorCode::Refused, "TIME_LIMIT", &message));
                }
                printed.exit_code = match outcome.end {
                    Some(End::ExitCode(code)) => Some(code),
                    Some(End::Signal(_)) | None => None,
                };
                let denied: String = denial_lines(&outcome).map(|line| format!("; {line}")).collect();
                printed.stderr = String::from_utf8_lossy(&errors).into_owned() + &denied;
                return Ok(printed);
            }
        }
    }
}

fn request(session: &ExecSession, program: &FileProgram<'_>) -> v1::CreateTerminalRequest {
    let stdin = if program.input.is_empty() { v1::StdinMode::Closed } else { v1::StdinMode::Open };
    v1::CreateTerminalRequest {
        session_id: session.id.clone(),
        command: Some(Command::Program(program.name.to_owned())),
        args: program.args.iter().map(|arg| (*arg).to_owned()).collect(),
        // Its words become those of an error.
        env: vec![v1::EnvVar {
            name: "LC_ALL".to_owned(),
            value: "C.UTF-8".to_owned(),
            ..Default::default()
        }],
        output_mode: v1::OutputMode::Split.into(),
        stdin_mode: stdin.into(),
        on_ask: v1::OnAsk::Refuse.into(),
        time_limit: prost_types::Duration::try_from(TIME_LIMIT).ok(),
        labels: [(METHOD_LABEL.to_owned(), program.method.to_owned())].into(),
        ..client::new_terminal()
    }
}

/// Writes the input and its end. A program that ends before says itself why.
async fn feed(client: crate::client::Client, terminal: v1::Terminal, input: Bytes) {
    let pieces = input.chunks(INPUT_PIECE_BYTES).count();
    for (number, piece) in input.chunks(INPUT_PIECE_BYTES).enumerate() {
        let request = v1::WriteInputRequest {
            terminal_id: terminal.id.clone(),
            session_id: terminal.session_id.clone(),
            data: Bytes::copy_from_slice(piece),
            eof: number + 1 == pieces,
            offset: None,
        };
        match client.terminals.clone().write_input(request).await {
            Ok(answer) if answer.get_ref().written_bytes == piece.len() as u64 => {}
            Ok(_) | Err(_) => return,
        }
    }
}
