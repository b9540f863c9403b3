//! Writing to the standard input of commands: in pieces that the gateway takes, and by one caller of a command at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{errors::ToolError, start::COMMANDS_MAX};
use crate::{
    client::{RetryingClient, is_unanswered, reason_of},
    proto::v1,
};

/// What one call writes. The gateway takes requests of 3 MiB.
const PIECE_BYTES: usize = 1 << 20;
/// How long to wait while a caller elsewhere writes to the same command.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// How long a gateway that does not answer is left alone.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What is known of the standard inputs of a server's commands.
#[derive(Debug, Default)]
pub(super) struct Inputs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The commands that are written to.
    busy: BTreeSet<String>,
    /// Those whose input could not be written as their call gave it, and why.
    failed: BTreeMap<String, ToolError>,
}

/// The place of a command's one writer, until it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    inputs: Arc<Inputs>,
    id: String,
}

/// A write that broke off.
#[derive(Debug)]
pub(super) struct WriteFailure {
    /// What was written before.
    pub(super) written: u64,
    /// What the gateway says.
    pub(super) status: Status,
}

impl Inputs {
    /// The place of a command's writer, unless another has it.
    pub(super) fn writer(self: &Arc<Self>, id: &str) -> Option<Writer> {
        let is_free = self.lock().busy.insert(id.to_owned());
        is_free.then(|| Writer { inputs: self.clone(), id: id.to_owned() })
    }

    /// Why a command has not got all of its input.
    pub(super) fn failure(&self, id: &str) -> Option<ToolError> {
        self.lock().failed.get(id).cloned()
    }

    /// The command is removed.
    pub(super) fn forget(&self, id: &str) {
        self.lock().failed.remove(id);
    }

    fn fail(&self, id: &str, error: ToolError) {
        let mut state = self.lock();
        if state.failed.len() >= COMMANDS_MAX {
            // The first is the oldest command's: ids are in the order of time.
            state.failed.pop_first();
        }
        state.failed.insert(id.to_owned(), error);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inputs.lock().busy.remove(&self.id);
    }
}

/// Writes the whole standard input of a command that was just started. A command that does not read it is waited for all the same.
///
/// If it cannot be written, the command is stopped, which would otherwise wait for ever or take a part for the whole; why is kept for
/// its result.
pub(super) fn feed(inputs: &Arc<Inputs>, client: &RetryingClient, terminal: &v1::Terminal, stdin: String) {
    let (inputs, client, terminal) = (inputs.clone(), client.clone(), terminal.clone());
    // Nobody else knows the command yet.
    let writer = inputs.writer(&terminal.id);
    tokio::spawn(async move {
        let length = stdin.len() as u64;
        let written = write_pieces(&client, &terminal, stdin, true, true).await;
        drop(writer);
        match written {
            Ok(_) => {}
            // It has ended, and has not wanted the rest.
            Err(WriteFailure { status, .. }) if is_end_of_command(&status) => {}
            Err(WriteFailure { written, status }) => {
                tracing::warn!(terminal.id = terminal.id, error = %status, "the input of a command cannot be written");
                inputs.fail(&terminal.id, ToolError::input_not_written(written, length, &status));
                stop(&client, &terminal).await;
            }
        }
    });
}

/// Writes to a command's standard input. Returns how much: less than all means that the command has closed it.
pub(super) async fn write(
    client: &RetryingClient,
    terminal: &v1::Terminal,
    text: String,
    eof: bool,
) -> Result<u64, WriteFailure> {
    match write_pieces(client, terminal, text, eof, false).await {
        // It has ended between two pieces.
        Err(WriteFailure { written, status }) if written > 0 && is_end_of_command(&status) => Ok(written),
        result => result,
    }
}

async fn write_pieces(
    client: &RetryingClient,
    terminal: &v1::Terminal,
    text: String,
    eof: bool,
    is_whole: bool,
) -> Result<u64, WriteFailure> {
    let mut rest = Bytes::from(text);
    let mut written = 0;
    loop {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        let (length, is_last) = (piece.len() as u64, rest.is_empty());
        let request = v1::WriteInputRequest {
            terminal_id: terminal.id.clone(),
            session_id: terminal.session_id.clone(),
            data: piece,
            eof: eof && is_last,
            offset: is_whole.then_some(written),
        };
        match write_piece(client, request, is_whole || written > 0).await {
            Ok(taken) => {
                written += taken;
                if is_last || taken < length {
                    return Ok(written);
                }
            }
            Err(status) => return Err(WriteFailure { written, status }),
        }
    }
}

/// Writes one piece. `waits`: also until a caller elsewhere has written.
async fn write_piece(
    client: &RetryingClient,
    request: v1::WriteInputRequest,
    waits: bool,
) -> Result<u64, Status> {
    loop {
        let request = request.clone();
        let answered = match request.offset {
            // What was taken at this offset is not taken twice.
            Some(_) => client.write_input(request).await,
            // Once: input that was written twice is another input.
            None => {
                let written = client.client().terminals.write_input(request).await;
                written.map(|answer| answer.into_inner().written_bytes)
            }
        };
        match answered {
            Ok(written) => return Ok(written),
            // Nothing of it was taken.
            Err(status) if waits && reason_of(&status) == "INPUT_BUSY" => sleep(BUSY_PAUSE).await,
            Err(status) => return Err(status),
        }
    }
}

/// Whether nobody is left who could read.
fn is_end_of_command(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition) || reason_of(status) == "SANDBOX_LOST"
}

async fn stop(client: &RetryingClient, terminal: &v1::Terminal) {
    loop {
        match client.kill_terminal(&terminal.id, &terminal.session_id).await {
            Ok(()) => return,
            // It runs on without a gateway, and waits.
            Err(status) if is_unanswered(&status) || status.code() == Code::DeadlineExceeded => {
                sleep(RETRY_PAUSE).await;
            }
            // It has ended by itself.
            Err(status) => return tracing::info!(error = %status, "a command is not stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_one_writer_at_a_time() {
        let inputs = Arc::<Inputs>::default();
        let writer = inputs.writer("term_1");
        assert!(writer.is_some() && inputs.writer("term_1").is_none() && inputs.writer("term_2").is_some());
        drop(writer);
        assert!(inputs.writer("term_1").is_some());
    }

    #[test]
    fn failures_are_kept_for_as_many_commands_as_there_may_be() {
        let inputs = Inputs::default();
        let failed = |number: usize| format!("term_{number:03}");
        for number in 0..=COMMANDS_MAX {
            inputs.fail(&failed(number), ToolError::input_not_written(1, 2, &Status::internal("no")));
        }
        assert_eq!(inputs.failure(&failed(0)), None);
        let kept = inputs.failure(&failed(1)).expect("it is kept");
        assert_eq!(
            kept.message,
            "The standard input could not be written: no. 1 of 2 bytes were written, and the command was stopped."
        );
        inputs.forget(&failed(1));
        assert_eq!(inputs.failure(&failed(1)), None);
    }
}
