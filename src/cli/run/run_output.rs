//! The events of a run as they come, over restarts of its gateway, and the output written to this process's own.
//!
//! After a restart it goes on at the byte that it has come to: none is missed, none comes twice.

use tonic::{Status, Streaming};

use super::{report::RunEnd, run_control::stop};
use crate::{
    cli::{
        console::{
            error::{self, CliError},
            exit_status,
            person_terminal::{LeaveWhenDropped, OutputStream},
            stdio::{self, WriteOutcome},
        },
        gateway_link::{
            connection::Terminals,
            reconnect::{Outage, Restarts},
        },
    },
    client::RunStream,
    proto::v1::{self, run_response::Event},
};

/// Bytes of output to retain of each stream. Half of them may be on the way to this process when a gateway dies.
pub(super) const RETAINED_BYTES: u64 = 4 << 20;

/// A run under way.
pub(super) struct RunEvents {
    terminals: Terminals,
    terminal_id: String,
    /// Of the next bytes of stdout and stderr.
    offsets: [u64; 2],
    stream: RunStream,
    restarts: Restarts,
}

impl RunEvents {
    /// Of a run of which the first event has come.
    pub(in crate::cli) fn new(
        terminals: Terminals,
        terminal_id: String,
        stream: Streaming<v1::RunResponse>,
        restarts: Restarts,
    ) -> Self {
        Self { terminals, terminal_id, offsets: [0; 2], stream: RunStream::Begun(stream), restarts }
    }

    /// Writes each chunk to its own stream as it comes, until the command has ended. The command waits while this process's
    /// reader does.
    pub(in crate::cli) async fn forward(mut self) -> Result<RunEnd, CliError> {
        let mut stdout = crate::stdio::stdout();
        let mut stderr = crate::stdio::stderr();
        let (own_stdout, own_stderr) = (OutputStream::stdout(), OutputStream::stderr());
        let _left = LeaveWhenDropped;
        let mut is_reader_gone = false;
        loop {
            match self.next().await? {
                Event::Chunk(chunk) if !is_reader_gone => {
                    let written = if chunk.stream() == v1::OutputStream::Stderr {
                        stdio::write_all(&mut stderr, &own_stderr.shown(&chunk.data)).await
                    } else {
                        stdio::write_all(&mut stdout, &own_stdout.shown(&chunk.data)).await
                    };
                    match written {
                        Ok(WriteOutcome::Complete) => {}
                        Ok(WriteOutcome::ReaderGone) => {
                            is_reader_gone = true;
                            stop(self.terminals.clone(), self.terminal_id.clone(), None);
                        }
                        Err(error) => {
                            stop(self.terminals.clone(), self.terminal_id.clone(), None);
                            return Err(CliError::caused_by("cannot write the command's output", error));
                        }
                    }
                }
                Event::Finished(terminal) => {
                    let outcome = terminal.outcome.as_ref();
                    let exit_status = if is_reader_gone {
                        exit_status::BROKEN_PIPE
                    } else {
                        outcome.map_or(error::PROVOST_FAILED, exit_status::from_outcome)
                    };
                    return Ok(RunEnd { exit_status, terminal: Some(terminal) });
                }
                Event::Chunk(_) | Event::Started(_) => {}
            }
        }
    }

    /// The next event, of this gateway or of one after it.
    async fn next(&mut self) -> Result<Event, CliError> {
        let mut outage = Outage::new(self.restarts);
        loop {
            let lost = match self.stream.next().await {
                Ok(Some(event)) => {
                    if let Event::Chunk(chunk) = &event {
                        let place = usize::from(chunk.stream() == v1::OutputStream::Stderr);
                        self.offsets[place] = chunk.offset + chunk.data.len() as u64;
                    }
                    return Ok(event);
                }
                Ok(None) => Status::unavailable("the gateway ended the call before the command had"),
                Err(status) => status,
            };
            self.stream = RunStream::Lost;
            outage.wait(lost).await?;
            let request = v1::ResumeRunRequest {
                terminal_id: self.terminal_id.clone(),
                session_id: String::new(),
                stdout_offset: self.offsets[0],
                stderr_offset: self.offsets[1],
            };
            match self.terminals.resume_run(request).await {
                Ok(resumed) => self.stream = RunStream::Resumed(resumed.into_inner()),
                Err(status) => outage.wait(status).await?,
            }
        }
    }
}
