//! Controls a terminal whose command runs: stop, signal, input.
//!
//! The supervisor is asked, and its answer returned. Nothing is released.

use std::{sync::Arc, time::Duration};

use crate::{
    failpoint,
    policy::PtySize,
    proto::supervisor::{StopCause, WriteStdin},
    sandbox::{control::ControlError, handle::Sandbox, requests::RequestError},
    terminal::{
        audit::{
            recorder::Recorder,
            records::{self, KillReason},
        },
        errors::{OperationError, TerminalReleased},
        state::{claim::Claim, outcome, stage::Stage, terminal::Terminal},
    },
};

/// Whether more input may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfInput {
    /// Close stdin after this.
    AfterThis,
    /// More may come.
    NotYet,
}

/// Begins to stop the command: it ends, whatever its supervisor does. That it has ended is no error.
pub async fn kill(
    recorder: &Recorder,
    terminal: &Arc<Terminal>,
    grace: Option<Duration>,
) -> Result<(), OperationError> {
    stop(recorder, terminal, grace, StopCause::Killed, KillReason::Kill).await
}

pub(in crate::terminal) async fn stop(
    recorder: &Recorder,
    terminal: &Arc<Terminal>,
    grace: Option<Duration>,
    cause: StopCause,
    reason: KillReason,
) -> Result<(), OperationError> {
    match terminal.wait_settled().await {
        Stage::Created | Stage::Running => {}
        Stage::Finished(_) => return Ok(()),
        Stage::Released(_) => return Err(TerminalReleased.into()),
    }
    let Some(live) = terminal.live() else { return Err(TerminalReleased.into()) };
    terminal.end_claims.set_cause(outcome::cause_of_stop(cause));
    terminal.enforce_end_within(grace);
    let record = records::kill_requested(terminal.subject(), reason, grace);
    match terminal.end_claims.claim_first_kill() {
        Claim::Granted => recorder.record_best_effort(&record),
        Claim::Taken => recorder.record_or_count(&record),
    }
    failpoint::reach("kill.recorded");
    let stopped = live.sandbox.stop(terminal.id.to_string(), cause, grace).await;
    failpoint::reach("kill.answered");
    match stopped {
        // A sandbox that is lost takes its commands with it.
        Ok(()) | Err(RequestError::Control(ControlError::Lost)) => Ok(()),
        // It has not been asked to end, and must all the same.
        Err(RequestError::Control(ControlError::TimedOut)) => {
            terminal.enforce_end_now();
            Ok(())
        }
        Err(RequestError::Control(error)) => Err(error.into()),
        Err(RequestError::Errno(errno)) => Err(OperationError::Errno(errno)),
    }
}

/// Sends a signal to the main process's group.
pub async fn signal(recorder: &Recorder, terminal: &Terminal, signal: i32) -> Result<(), OperationError> {
    let sandbox = running(terminal).await?;
    recorder.record_or_count(&records::signal_sent(terminal.subject(), signal));
    match sandbox.signal(terminal.id.to_string(), signal).await {
        Ok(()) => Ok(()),
        Err(RequestError::Errno(libc::ENOENT | libc::ESRCH)) => Err(OperationError::Ended),
        Err(RequestError::Errno(errno)) => Err(OperationError::Errno(errno)),
        Err(RequestError::Control(error)) => Err(error.into()),
    }
}

/// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it.
pub async fn write_stdin(
    terminal: &Terminal,
    offset: Option<u64>,
    data: prost::bytes::Bytes,
    end: EndOfInput,
) -> Result<u64, OperationError> {
    let sandbox = running(terminal).await?;
    let terminal_id = terminal.id.to_string();
    let request = WriteStdin { terminal_id, data, eof: end == EndOfInput::AfterThis, offset };
    let written = sandbox.write_stdin(request).await?;
    match written.errno {
        0 | libc::EPIPE => Ok(written.written),
        libc::EBADF => Err(OperationError::StdinClosed),
        libc::ENOENT => Err(OperationError::Ended),
        libc::EINVAL if offset.is_some() => Err(OperationError::InputGap),
        errno => Err(OperationError::Errno(errno)),
    }
}

/// Changes the size of a pseudo-terminal.
pub async fn resize(terminal: &Terminal, size: PtySize) -> Result<(), OperationError> {
    if terminal.pty_size().is_none() {
        return Err(OperationError::NoPty);
    }
    let sandbox = running(terminal).await?;
    match sandbox.resize(terminal.id.to_string(), size).await {
        Ok(()) => {
            terminal.pty.set(size);
            Ok(())
        }
        Err(RequestError::Errno(libc::ENOENT | libc::ESRCH)) => Err(OperationError::Ended),
        Err(RequestError::Errno(errno)) => Err(OperationError::Errno(errno)),
        Err(RequestError::Control(error)) => Err(error.into()),
    }
}

/// What a supervisor has answered to a question about a terminal that runs.
pub(super) fn answered<T>(answer: Result<T, RequestError>) -> Result<T, OperationError> {
    answer.map_err(|error| match error {
        RequestError::Errno(libc::ENOENT | libc::ESRCH) => OperationError::Ended,
        RequestError::Errno(libc::ENOTTY) => OperationError::NoPty,
        RequestError::Errno(errno) => OperationError::Errno(errno),
        RequestError::Control(error) => error.into(),
    })
}

pub(super) async fn running(terminal: &Terminal) -> Result<Arc<Sandbox>, OperationError> {
    match terminal.wait_settled().await {
        Stage::Finished(_) => Err(OperationError::Ended),
        Stage::Released(_) => Err(TerminalReleased.into()),
        Stage::Created | Stage::Running => {
            terminal.live().map(|live| live.sandbox.clone()).ok_or(OperationError::Released(TerminalReleased))
        }
    }
}

/// While a line runs in a kept shell, the input is the line's.
///
/// # Errors
/// [`OperationError::LineRunning`].
pub fn check_input_free(terminal: &Terminal) -> Result<(), OperationError> {
    match &terminal.kept_shell {
        Some(shell) if !shell.admits_others() => Err(OperationError::LineRunning),
        Some(_) | None => Ok(()),
    }
}
