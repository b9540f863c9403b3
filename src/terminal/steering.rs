//! What is asked of a terminal whose command runs: to stop, a signal, input.
//!
//! Asks the supervisor, and says exactly what it answered. Releases nothing.

use std::{sync::Arc, time::Duration};

use super::{
    AskError, Gone, Terminals, outcome,
    records::{self, Ending},
    stage::Stage,
    terminal::{Claim, Terminal},
};
use crate::{
    failpoint,
    proto::supervisor::{StopCause, WriteStdin},
    sandbox::{control::ControlError, handle::Sandbox, requests::RequestError},
};

/// Whether more input may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfInput {
    /// Close stdin after this.
    AfterThis,
    /// More may come.
    NotYet,
}

impl Terminals {
    /// Begins to stop the command: it ends, whatever its supervisor does. That it has ended is no error.
    pub async fn kill(&self, terminal: &Arc<Terminal>, grace: Option<Duration>) -> Result<(), AskError> {
        self.stop(terminal, grace, StopCause::Killed, Ending::Kill).await
    }

    pub(super) async fn stop(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
        ending: Ending,
    ) -> Result<(), AskError> {
        match terminal.settled().await {
            Stage::Created | Stage::Running => {}
            Stage::Finished(_) => return Ok(()),
            Stage::Released(_) => return Err(Gone.into()),
        }
        let Some(live) = terminal.live() else { return Err(Gone.into()) };
        terminal.is_to_end_for(outcome::stopped_for(cause));
        terminal.must_end_within(grace);
        let record = records::kill_asked(terminal, ending, grace);
        match terminal.claim_first_kill() {
            Claim::Yours => self.recorder().note(&record),
            Claim::Taken => self.recorder().note_or_count(&record),
        }
        failpoint::reach("kill.recorded");
        let stopped = live.sandbox.stop(terminal.id.to_string(), cause, grace).await;
        failpoint::reach("kill.answered");
        match stopped {
            // A sandbox that is lost takes its commands with it.
            Ok(()) | Err(RequestError::Control(ControlError::Lost)) => Ok(()),
            // It has not been asked to end, and must all the same.
            Err(RequestError::Control(ControlError::Silent)) => {
                terminal.must_end_now();
                Ok(())
            }
            Err(RequestError::Control(error)) => Err(error.into()),
            Err(RequestError::Errno(errno)) => Err(AskError::Errno(errno)),
        }
    }

    /// Sends a signal to the main process's group.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), AskError> {
        let sandbox = self.running(terminal).await?;
        self.recorder().note_or_count(&records::signal(terminal, signal));
        match sandbox.signal(terminal.id.to_string(), signal).await {
            Ok(()) => Ok(()),
            Err(RequestError::Errno(libc::ENOENT | libc::ESRCH)) => Err(AskError::Ended),
            Err(RequestError::Errno(errno)) => Err(AskError::Errno(errno)),
            Err(RequestError::Control(error)) => Err(error.into()),
        }
    }

    /// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it.
    pub async fn write(
        &self,
        terminal: &Terminal,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, AskError> {
        let sandbox = self.running(terminal).await?;
        let terminal_id = terminal.id.to_string();
        let request = WriteStdin { terminal_id, data, eof: end == EndOfInput::AfterThis };
        let written = sandbox.write_stdin(request).await?;
        match written.errno {
            0 | libc::EPIPE => Ok(written.written),
            libc::EBADF => Err(AskError::StdinClosed),
            libc::ENOENT => Err(AskError::Ended),
            errno => Err(AskError::Errno(errno)),
        }
    }

    async fn running(&self, terminal: &Terminal) -> Result<Arc<Sandbox>, AskError> {
        match terminal.settled().await {
            Stage::Finished(_) => Err(AskError::Ended),
            Stage::Released(_) => Err(Gone.into()),
            Stage::Created | Stage::Running => {
                terminal.live().map(|live| live.sandbox.clone()).ok_or(AskError::Gone(Gone))
            }
        }
    }
}
