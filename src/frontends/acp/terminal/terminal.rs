//! One terminal of the gateway, or one line of a kept shell, as an agent sees it: text and an exit status.
//!
//! Output is fetched from where the last look ended, so that looking again costs what is new and nothing else. There
//! is one wait at the gateway however many ask. Once it is released nothing is asked of the gateway any more; the text
//! that was there can still be shown.

use std::{
    sync::{Arc, Mutex as StdMutex, MutexGuard},
    time::Duration,
};

use agent_client_protocol_schema::v1::{Error, SessionId, TerminalExitStatus};
use tokio::{
    sync::{Mutex, OnceCell, watch},
    time::timeout,
};
use tonic::{Code, Status};

use super::{
    content::SHOWN_BYTES,
    exit,
    output::{Completeness, LineOutput, OutputSnapshot, tail_of},
};
use crate::{
    acp::{
        errors,
        sessions::{AcpSession, SessionShell},
    },
    client::{Client, RetryingClient},
    proto::v1::{
        self, GetShellRequest, GetShellResponse, InterruptLineRequest, ShellActivity, StreamOutputRequest,
        stream_output_response::Event,
    },
};

/// The most that is fetched in one look while the command runs: one that floods must not hold the look up.
const FETCH_MAX_BYTES: u64 = 16 << 20;
/// How long an interrupted line may go on before its shell is released with it.
const INTERRUPT_GRACE: Duration = Duration::from_secs(5);
/// How often a shell is asked whether a line is over that nobody follows any more.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// One terminal.
#[derive(Debug)]
pub(in crate::acp) struct AcpTerminal {
    /// The gateway's id, which is the protocol's too. Of a line: the shell's, and the line's behind it.
    pub(in crate::acp) id: String,
    pub(in crate::acp) session: Arc<AcpSession>,
    /// Where it was started.
    pub(in crate::acp) cwd: String,
    /// The gateway's session that it runs in.
    gateway_session: String,
    client: RetryingClient,
    /// Held by the task that fetches: one at a time.
    fetch_lock: Mutex<()>,
    /// Never held while the gateway is asked, so that known output is shown without waiting for the gateway.
    snapshot: StdMutex<OutputSnapshot>,
    exit: OnceCell<TerminalExitStatus>,
    /// Set for a line of a kept shell, whose output and end a task of its own takes in.
    pub(in crate::acp) line: Option<ShellLine>,
}

/// What a terminal shows at one moment.
#[derive(Debug, Clone)]
pub(super) struct TerminalView {
    /// The retained text, as a JSON string.
    pub(super) encoded: Arc<str>,
    pub(super) truncated: bool,
    /// Once it has ended.
    pub(in crate::acp) exit: Option<TerminalExitStatus>,
}

/// What was added to the output since another moment.
#[derive(Debug, Clone, Default)]
pub(in crate::acp) struct OutputDelta {
    /// The new text, as far as it is retained, at most as much as was asked for.
    pub(in crate::acp) text: String,
    /// Where to ask from next time.
    pub(in crate::acp) produced: u64,
    /// Once it has ended, and nothing more will come.
    pub(in crate::acp) exit: Option<TerminalExitStatus>,
}

impl AcpTerminal {
    pub(in crate::acp) fn new(
        client: RetryingClient,
        session: Arc<AcpSession>,
        started: v1::Terminal,
    ) -> Self {
        let limit = usize::try_from(started.output_byte_limit).unwrap_or(usize::MAX);
        Self {
            id: started.id,
            session,
            cwd: started.cwd,
            gateway_session: started.session_id,
            client,
            fetch_lock: Mutex::default(),
            snapshot: StdMutex::new(OutputSnapshot::new(limit)),
            exit: OnceCell::new_with(started.outcome.as_ref().map(exit::status_of)),
            line: None,
        }
    }

    /// A line of the session's kept shell, of whose output at most `limit_bytes` are kept.
    pub(super) fn of_line(
        client: RetryingClient,
        session: Arc<AcpSession>,
        line: ShellLine,
        cwd: String,
        limit_bytes: usize,
    ) -> Self {
        Self {
            id: line.protocol_id(),
            session,
            cwd,
            gateway_session: line.shell.session_id.clone(),
            client,
            fetch_lock: Mutex::default(),
            snapshot: StdMutex::new(OutputSnapshot::new(limit_bytes)),
            exit: OnceCell::new(),
            line: Some(line),
        }
    }

    /// Whether this session may speak of it.
    pub(super) fn belongs_to(&self, session: &SessionId) -> bool {
        *self.session.id == *session.0 && !self.session.is_closed()
    }

    /// Whether its end is known here.
    pub(in crate::acp) fn has_ended(&self) -> bool {
        self.exit.get().is_some()
    }

    /// The output and, once there is one, the exit status.
    pub(super) async fn view(&self) -> Result<TerminalView, Error> {
        self.refresh().await.map_err(|status| errors::from_status(&status))?;
        let mut snapshot = self.lock();
        snapshot.looked_at = snapshot.tail.produced();
        Ok(TerminalView {
            encoded: snapshot.encoded(),
            truncated: snapshot.tail.is_truncated(),
            exit: self.exit_when_complete(&snapshot),
        })
    }

    /// What has come since `produced`, at most the last `limit_bytes` of it.
    pub(in crate::acp) async fn output_since(
        &self,
        produced: u64,
        limit_bytes: usize,
    ) -> Result<OutputDelta, Status> {
        let refreshed = self.refresh().await;
        // One that is gone shows what it showed.
        if self.exit.get().is_none() {
            refreshed?;
        }
        let mut snapshot = self.lock();
        snapshot.looked_at = snapshot.tail.produced();
        Ok(OutputDelta {
            text: tail_of(snapshot.tail.since(produced), limit_bytes).to_owned(),
            produced: snapshot.tail.produced(),
            exit: self.exit_when_complete(&snapshot),
        })
    }

    /// The last text that was seen, at most `limit_bytes` of it, without asking anybody.
    pub(in crate::acp) fn cached_tail(&self, limit_bytes: usize) -> String {
        tail_of(self.lock().tail.text(), limit_bytes).to_owned()
    }

    /// Waits until there is output after what was fetched, or the command has ended.
    pub(in crate::acp) async fn wait_for_change(&self) -> Result<(), Status> {
        if let Some(line) = &self.line {
            line.wait_until(|| self.lock().is_changed()).await;
            return Ok(());
        }
        let offset = {
            let snapshot = self.lock();
            if snapshot.completeness == Completeness::Complete {
                return Ok(());
            }
            snapshot.tail.next_offset()
        };
        let mut events = self.stream(self.client.client(), offset, FollowMode::Yes).await?;
        events.message().await.map(drop)
    }

    /// Waits for the end. Everybody gets the same.
    pub(super) async fn wait_for_exit(&self) -> Result<TerminalExitStatus, Error> {
        if let Some(line) = &self.line {
            line.wait_until(|| self.exit.get().is_some()).await;
        }
        Ok(self.exit.get_or_try_init(|| self.wait_at_gateway()).await?.clone())
    }

    /// Begins to stop the command; interrupts a line.
    pub(in crate::acp) async fn kill(&self) -> Result<(), Error> {
        if let Some(line) = &self.line {
            let interrupted = if self.has_ended() { Ok(()) } else { line.interrupt(&self.client).await };
            return interrupted.map_err(|status| errors::from_status(&status));
        }
        let killed = self.client.kill_terminal(&self.id, &self.gateway_session).await;
        killed.map_err(|status| errors::from_status(&status))
    }

    /// Stops the command, takes in the last of its output, and frees everything at the gateway.
    pub(in crate::acp) async fn release(&self) -> Result<(), Error> {
        if !self.has_ended() && self.kill().await.is_ok() {
            // Waiters get the true end, and the last output can still be shown.
            let ending = self.wait_for_exit();
            match &self.line {
                Some(_) => drop(timeout(INTERRUPT_GRACE, ending).await),
                None => drop(ending.await),
            }
        }
        let released = match &self.line {
            // The shell stays; a line that goes on all the same ends with it.
            Some(_) if self.has_ended() => Ok(()),
            Some(line) => self.release_at_gateway(&line.shell.terminal_id).await,
            None => Ok(()),
        };
        if self.line.is_some() && !self.has_ended() {
            // Its end comes with the shell's; what is not known by then never is.
            let _ = timeout(INTERRUPT_GRACE, self.wait_for_exit()).await;
            self.end_line(TerminalExitStatus::new(), None);
        }
        // What cannot be had any more is not shown: the release matters.
        let _ = self.refresh().await;
        {
            let _turn = self.fetch_lock.lock().await;
            let mut snapshot = self.lock();
            snapshot.completeness = Completeness::Complete;
            snapshot.encoded = None;
            snapshot.tail.shrink_to(SHOWN_BYTES);
        }
        released?;
        match &self.line {
            Some(_) => Ok(()),
            None => self.release_at_gateway(&self.id).await,
        }
    }

    async fn release_at_gateway(&self, id: &str) -> Result<(), Error> {
        // It may be collected already, or closed with its session.
        let released = self.client.release_terminal(id, &self.gateway_session).await;
        released.map_err(|status| errors::from_status(&status))
    }

    /// Takes in output of a line, or that some was missed.
    pub(super) fn take_line_output(&self, output: LineOutput<'_>) {
        {
            let mut snapshot = self.lock();
            let next = snapshot.tail.next_offset();
            match output {
                LineOutput::Text(bytes) => snapshot.tail.push(next, bytes),
                LineOutput::Gap => snapshot.tail.skip(next + 1),
            }
        }
        self.line.iter().for_each(ShellLine::has_changed);
    }

    /// The line is over. A second end counts for nothing.
    pub(super) fn end_line(&self, status: TerminalExitStatus, notice: Option<&str>) {
        {
            let mut snapshot = self.lock();
            if self.exit.set(status).is_ok() {
                snapshot.tail.finish();
                snapshot.tail.add_notices(notice.into_iter().map(str::to_owned));
                snapshot.completeness = Completeness::Complete;
            }
        }
        self.line.iter().for_each(ShellLine::has_changed);
    }

    /// Fetches what is new. A fetch that breaks off goes on where it was.
    async fn refresh(&self) -> Result<(), Status> {
        if self.line.is_some() {
            return Ok(());
        }
        self.client.call_with_timeout(|client| self.fetch(client)).await
    }

    async fn fetch(&self, client: Client) -> Result<(), Status> {
        let _turn = self.fetch_lock.lock().await;
        let from = {
            let snapshot = self.lock();
            if snapshot.completeness == Completeness::Complete {
                return Ok(());
            }
            snapshot.tail.next_offset()
        };
        let mut events = self.stream(client, from, FollowMode::No).await?;
        while let Some(event) = events.message().await? {
            let mut snapshot = self.lock();
            match event.event {
                Some(Event::Chunk(chunk)) => snapshot.tail.push(chunk.offset, &chunk.data),
                Some(Event::Gap(gap)) => snapshot.tail.skip(gap.to_offset),
                Some(Event::End(end)) => snapshot.end(&end, &self.exit),
                None => {}
            }
            let fetched = snapshot.tail.next_offset() - from;
            if fetched > FETCH_MAX_BYTES && self.exit.get().is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn stream(
        &self,
        client: Client,
        offset: u64,
        follow: FollowMode,
    ) -> Result<tonic::Streaming<v1::StreamOutputResponse>, Status> {
        let request = StreamOutputRequest {
            terminal_id: self.id.clone(),
            session_id: self.gateway_session.clone(),
            stream: v1::OutputStream::Stdout.into(),
            offset,
            follow: follow == FollowMode::Yes,
        };
        Ok(client.terminals.clone().stream_output(request).await?.into_inner())
    }

    async fn wait_at_gateway(&self) -> Result<TerminalExitStatus, Error> {
        let waited = self.client.wait_for_exit(&self.id, &self.gateway_session).await;
        let ended = waited.map_err(|status| errors::from_status(&status))?;
        ended.outcome.as_ref().map(exit::status_of).ok_or_else(errors::unknown_terminal)
    }

    /// The status goes with the whole output, never before it.
    fn exit_when_complete(&self, snapshot: &OutputSnapshot) -> Option<TerminalExitStatus> {
        match snapshot.completeness {
            Completeness::Complete => self.exit.get().cloned(),
            Completeness::MoreMayCome => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutputSnapshot> {
        self.snapshot.lock().expect("no code panics while it holds the snapshot")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowMode {
    Yes,
    No,
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
pub(in crate::acp) struct ShellLine {
    pub(in crate::acp) shell: SessionShell,
    line_id: String,
    changed: watch::Sender<()>,
}

impl ShellLine {
    pub(in crate::acp) fn new(shell: SessionShell, line_id: String) -> Self {
        Self { shell, line_id, changed: watch::Sender::new(()) }
    }

    /// The protocol's id of it.
    fn protocol_id(&self) -> String {
        format!("{}-{}", self.shell.terminal_id, self.line_id)
    }

    /// There is more output, or the end.
    fn has_changed(&self) {
        self.changed.send_replace(());
    }

    /// Waits until what its task takes in makes this so.
    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does what Ctrl-C does, if the line still has the shell.
    async fn interrupt(&self, client: &RetryingClient) -> Result<(), Status> {
        if self.shell.status(client).await?.line_id != self.line_id {
            return Ok(());
        }
        let SessionShell { session_id, terminal_id } = self.shell.clone();
        let request = InterruptLineRequest { terminal_id, session_id };
        client.client().terminals.interrupt_line(request).await.map(drop)
    }

    /// Waits until the shell is at its prompt, has ended, or is gone.
    pub(super) async fn wait_unfollowed(&self, client: &RetryingClient) {
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
