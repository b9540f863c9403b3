//! Runs a command in one call: created, streamed without loss, waited for, released.
//!
//! When the caller goes away, the command is stopped and released. A resumable run goes on when its gateway goes away, and its
//! caller releases it; one that does not come back for it in time is taken as gone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    proto::supervisor::StopCause,
    reason::Reason,
    terminal::{
        errors::OperationError,
        output::{Cursor, OutputPiece, OutputReadError},
        spec::{Backpressure, Channel},
        stage::{Claim, Stage},
        state::Terminal,
        terminals::Terminals,
    },
};

/// What happens in a run, in order.
#[derive(Debug)]
pub(crate) enum RunProgress {
    /// Exec has succeeded, or the run is resumed.
    Started(Arc<Terminal>),
    /// Output.
    Output {
        /// The stream that it comes from.
        channel: Channel,
        /// The offset of the first byte.
        offset: u64,
        /// At least one byte.
        data: Bytes,
    },
    /// Ended, and released unless it is resumable.
    Finished(Arc<Terminal>),
}

/// A run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Its output cannot be read.
    #[error(transparent)]
    Read(#[from] OutputReadError),
    /// Bytes were overwritten before they were read, although the command waits for this run.
    #[error("output was lost: bytes {from} to {to}")]
    Lost {
        /// The first one.
        from: u64,
        /// The one after the last.
        to: u64,
    },
    /// It could not be released.
    #[error(transparent)]
    Release(#[from] OperationError),
}

impl From<&RunError> for Reason {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Read(error) => error.into(),
            RunError::Lost { .. } => Self::OutputLost,
            RunError::Release(error) => error.into(),
        }
    }
}

/// A run under way. Dropped before its end, it stops and releases its command.
#[derive(Debug)]
pub(crate) struct Run {
    terminals: Arc<Terminals>,
    terminal: Arc<Terminal>,
    cursors: Vec<Cursor>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Streaming,
    Done,
}

/// How long the caller of a resumable run may take to come back, before its command is stopped.
const CALLER_AWAITED_FOR: Duration = Duration::from_secs(10);

impl Terminals {
    /// A run of a terminal that was just created for it.
    pub(crate) fn run(self: &Arc<Self>, terminal: Arc<Terminal>) -> Run {
        self.run_from(terminal, [0; 2])
    }

    /// Begins to stream a resumable run, whose request may have been sent before.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub(crate) fn take_run(self: &Arc<Self>, terminal: Arc<Terminal>) -> Result<Run, OperationError> {
        let is_run = terminal.spec.backpressure == Backpressure::ForResumableRun;
        // What a request of another kind with this id has created is none.
        if !is_run || terminal.run_caller.arrive() == Claim::Taken {
            return Err(OperationError::RunNotAwaited);
        }
        Ok(self.run(terminal))
    }

    /// Goes on with a resumable run of an earlier gateway, from these offsets of stdout and stderr on.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub(crate) fn resume_run(
        self: &Arc<Self>,
        terminal: Arc<Terminal>,
        offsets: [u64; 2],
    ) -> Result<Run, OperationError> {
        match terminal.run_caller.come_back() {
            Claim::Taken => Err(OperationError::RunNotAwaited),
            Claim::Granted => Ok(self.run_from(terminal, offsets)),
        }
    }

    fn run_from(self: &Arc<Self>, terminal: Arc<Terminal>, offsets: [u64; 2]) -> Run {
        let cursors = Cursor::for_run(&terminal, offsets);
        Run { terminals: self.clone(), terminal, cursors, phase: Phase::Starting }
    }

    /// Waits for the caller of a resumable run, who may be waiting for this gateway.
    pub(super) fn await_caller(self: &Arc<Self>, terminal: &Arc<Terminal>) {
        if terminal.run_caller.expect() == Claim::Taken {
            return;
        }
        let (this, terminal) = (self.clone(), terminal.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(CALLER_AWAITED_FOR) => {}
                () = terminal.wait_released() => return,
            }
            if terminal.run_caller.give_up() == Claim::Granted {
                this.release_run(&terminal);
            }
        });
    }

    /// Stops a run whose caller cannot come back.
    pub(super) fn release_run(self: &Arc<Self>, terminal: &Arc<Terminal>) {
        let (this, terminal) = (self.clone(), terminal.clone());
        tokio::spawn(async move {
            tracing::info!(terminal.id = %terminal.id, "the caller of a run is gone: it is stopped");
            // A release by another call is as good.
            let _ = this.release(&terminal, None, StopCause::Killed).await;
        });
    }
}

impl Run {
    fn is_resumable(&self) -> bool {
        self.terminal.spec.backpressure == Backpressure::ForResumableRun
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<RunProgress>, RunError> {
        match self.phase {
            Phase::Starting => {
                self.phase = Phase::Streaming;
                Ok(Some(RunProgress::Started(self.terminal.clone())))
            }
            Phase::Streaming => match self.next_output().await? {
                Some((channel, OutputPiece::Data { offset, data })) => {
                    Ok(Some(RunProgress::Output { channel, offset, data }))
                }
                Some((_, OutputPiece::Gap { from, to })) => Err(RunError::Lost { from, to }),
                None => {
                    self.phase = Phase::Done;
                    if !self.is_resumable() {
                        self.release().await?;
                    }
                    Ok(Some(RunProgress::Finished(self.terminal.clone())))
                }
            },
            Phase::Done => Ok(None),
        }
    }

    /// Output of whichever stream has some; `None` when the command has ended and all of it was read.
    async fn next_output(&mut self) -> Result<Option<(Channel, OutputPiece)>, OutputReadError> {
        let terminal = self.terminal.clone();
        loop {
            let changed = terminal.progress().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            // The stage before the rings: of a finished terminal everything is there.
            let over = terminal.stage().is_over();
            for cursor in &mut self.cursors {
                if let Some(piece) = cursor.try_next().await? {
                    return Ok(Some((cursor.channel(), piece)));
                }
            }
            if over {
                return Ok(None);
            }
            let mut ready = false;
            for cursor in &self.cursors {
                ready |= cursor.arm();
            }
            if !ready {
                changed.await;
            }
        }
    }

    async fn release(&self) -> Result<(), OperationError> {
        if matches!(self.terminal.stage(), Stage::Released(_)) {
            return Ok(());
        }
        match self.terminals.release(&self.terminal, None, StopCause::Killed).await {
            // Another call releases it: with the session, or by id.
            Ok(()) | Err(OperationError::Released(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A gateway that ends leaves the run to the next one.
        let is_left = self.is_resumable() && self.terminal.holds.is_left();
        if self.phase == Phase::Done || is_left {
            return;
        }
        let (terminals, terminal) = (self.terminals.clone(), self.terminal.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The terminal's own grace: the caller has gone, the command may still clean up.
                let grace: Option<Duration> = None;
                if let Err(error) = terminals.release(&terminal, grace, StopCause::Killed).await {
                    tracing::debug!(terminal.id = %terminal.id, error = %error, "abandoned run already released");
                }
            });
        }
    }
}
