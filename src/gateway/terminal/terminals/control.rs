//! What callers do with a terminal that is there: stream, stop and signal it, write to it, run lines in it, look at its screen,
//! release it.

use std::{sync::Arc, time::Duration};

use crate::{
    display::picture::Picture,
    policy::PtySize,
    proto::supervisor::StopCause,
    sandbox::screen_link::ScreenLink,
    terminal::{
        control::{self, EndOfInput},
        errors::{ForwardError, OperationError, RunLineError, ScreenAccessError},
        forward::{self, Forwarded},
        release,
        run::Run,
        shells::{
            run_line::{NewLine, ShellStatus},
            running_line::RunningLine,
        },
        state::terminal::Terminal,
        terminals::Terminals,
    },
};

impl Terminals {
    /// A run of a terminal that was just created for it.
    pub fn run(&self, terminal: Arc<Terminal>) -> Run {
        Run::new(self.context.registry().clone(), self.context.recorder().clone(), terminal)
    }

    /// Begins to stream a resumable run, whose request may have been sent before.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub fn take_run(&self, terminal: Arc<Terminal>) -> Result<Run, OperationError> {
        Run::take(self.context.registry().clone(), self.context.recorder().clone(), terminal)
    }

    /// Goes on with a resumable run of an earlier gateway, from these offsets of stdout and stderr on.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub fn resume_run(&self, terminal: Arc<Terminal>, offsets: [u64; 2]) -> Result<Run, OperationError> {
        Run::resume(self.context.registry().clone(), self.context.recorder().clone(), terminal, offsets)
    }

    /// Begins to stop the command: it ends, whatever its supervisor does. That it has ended is no error.
    pub async fn kill(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
    ) -> Result<(), OperationError> {
        control::kill(self.context.recorder(), terminal, grace).await
    }

    /// Sends a signal to the main process's group.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), OperationError> {
        control::signal(self.context.recorder(), terminal, signal).await
    }

    /// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it.
    pub async fn write(
        &self,
        terminal: &Terminal,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        control::check_input_free(terminal)?;
        control::write_stdin(terminal, None, data, end).await
    }

    /// As [`Self::write`], of data that stands at this offset of all the input: what was taken before is skipped.
    pub async fn write_at(
        &self,
        terminal: &Terminal,
        offset: u64,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        control::check_input_free(terminal)?;
        control::write_stdin(terminal, Some(offset), data, end).await
    }

    /// Runs a line in a kept shell. Returns when the shell is about to begin it.
    pub async fn run_line(
        &self,
        terminal: &Arc<Terminal>,
        new: NewLine,
    ) -> Result<RunningLine, RunLineError> {
        self.context.run_line(terminal, new).await
    }

    /// Writes to what a line runs.
    pub async fn write_line_input(
        &self,
        terminal: &Terminal,
        line_id: &str,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<(), OperationError> {
        self.context.write_line_input(terminal, line_id, data, end).await
    }

    /// Sends SIGINT to what runs in the foreground of a kept shell.
    pub async fn interrupt_line(&self, terminal: &Terminal) -> Result<(), OperationError> {
        self.context.interrupt_line(terminal).await
    }

    /// What a kept shell does.
    pub async fn shell_status(&self, terminal: &Arc<Terminal>) -> Result<ShellStatus, OperationError> {
        self.context.shell_status(terminal).await
    }

    /// Changes the size of a pseudo-terminal; its foreground process group gets SIGWINCH.
    pub async fn resize(&self, terminal: &Terminal, size: PtySize) -> Result<(), OperationError> {
        control::resize(terminal, size).await
    }

    /// Connects to a port on the loopback of a terminal's sandbox.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward(&self, terminal: &Terminal, port: u16) -> Result<Forwarded, ForwardError> {
        forward::connect(self.context.forwards(), self.context.recorder(), terminal, port).await
    }

    /// The link that has a terminal's screen.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub async fn screen(&self, terminal: &Terminal) -> Result<Arc<ScreenLink>, ScreenAccessError> {
        terminal.wait_settled().await;
        self.context.screens().link(terminal).await
    }

    /// The screen of a terminal as all that was written before shows it, and the link that has it.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub async fn screen_snapshot(
        &self,
        terminal: &Terminal,
    ) -> Result<(Arc<ScreenLink>, Arc<Picture>), ScreenAccessError> {
        terminal.wait_settled().await;
        self.context.screens().snapshot(terminal).await
    }

    /// Stops the command if it runs, and frees everything. Answers when nothing is left. Of many who ask, one
    /// succeeds. Once begun, it is done even when the caller goes away.
    pub async fn release(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), OperationError> {
        release::release(self.context.registry(), self.context.recorder(), terminal, grace, cause).await
    }
}
