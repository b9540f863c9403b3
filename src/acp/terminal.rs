//! One terminal of the gateway, as an agent sees it: text and an exit status.
//!
//! Output is fetched from where the last look ended, so that looking again costs what is new and nothing else. There
//! is one wait at the gateway however many ask. Once it is released nothing is asked of the gateway any more; the text
//! that was there can still be shown.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard};

use agent_client_protocol_schema::v1::{Error, SessionId, TerminalExitStatus};
use tokio::sync::{Mutex, OnceCell};
use tonic::{Code, Status};

use super::{content::SHOWN_BYTES, errors, exit, session::AcpSession, text::Tail};
use crate::{
    client::{self, Client, RetryingClient},
    proto::v1::{
        self, Outcome, StreamOutputRequest, TerminalState, WaitForExitRequest, stream_output_response::Event,
    },
};

/// The most that is fetched in one look while the command runs: one that floods must not hold the look up.
const FETCH_MAX_BYTES: u64 = 16 << 20;

/// One terminal.
#[derive(Debug)]
pub(super) struct AcpTerminal {
    /// The gateway's id, which is the protocol's too.
    pub(super) id: String,
    pub(super) session: Arc<AcpSession>,
    /// Where it was started.
    pub(super) cwd: String,
    /// The gateway's session that it runs in.
    gateway_session: String,
    client: RetryingClient,
    /// Held by the task that fetches: one at a time.
    fetch_lock: Mutex<()>,
    /// Never held while the gateway is asked, so that known output is shown without waiting for the gateway.
    snapshot: StdMutex<OutputSnapshot>,
    outcome: OnceCell<Outcome>,
}

/// What is known of the output.
#[derive(Debug)]
struct OutputSnapshot {
    tail: Tail,
    completeness: Completeness,
    /// The text as a JSON string, and what was produced when it was made.
    encoded: Option<(u64, Arc<str>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completeness {
    MoreMayCome,
    Complete,
}

/// What a terminal shows at one moment.
#[derive(Debug, Clone)]
pub(super) struct TerminalView {
    /// The retained text, as a JSON string.
    pub(super) encoded: Arc<str>,
    pub(super) truncated: bool,
    /// Once it has ended.
    pub(super) exit: Option<TerminalExitStatus>,
}

/// What was added to the output since another moment.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputDelta {
    /// The new text, as far as it is retained, at most as much as was asked for.
    pub(super) text: String,
    /// Where to ask from next time.
    pub(super) produced: u64,
    /// Once it has ended, and nothing more will come.
    pub(super) exit: Option<TerminalExitStatus>,
}

impl AcpTerminal {
    pub(super) fn new(client: RetryingClient, session: Arc<AcpSession>, started: v1::Terminal) -> Self {
        let limit = usize::try_from(started.output_byte_limit).unwrap_or(usize::MAX);
        let outcome = OnceCell::new_with(started.outcome);
        let snapshot =
            OutputSnapshot { tail: Tail::new(limit), completeness: Completeness::MoreMayCome, encoded: None };
        Self {
            id: started.id,
            session,
            cwd: started.cwd,
            gateway_session: started.session_id,
            client,
            fetch_lock: Mutex::default(),
            snapshot: StdMutex::new(snapshot),
            outcome,
        }
    }

    /// Whether this session may speak of it.
    pub(super) fn belongs_to(&self, session: &SessionId) -> bool {
        *self.session.id == *session.0 && !self.session.is_closed()
    }

    /// Whether its end is known here.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// The output and, once there is one, the exit status.
    pub(super) async fn view(&self) -> Result<TerminalView, Error> {
        self.refresh().await.map_err(|status| errors::from_status(&status))?;
        let mut snapshot = self.lock();
        Ok(TerminalView {
            encoded: snapshot.encoded(),
            truncated: snapshot.tail.is_truncated(),
            exit: self.exit_when_complete(&snapshot),
        })
    }

    /// What has come since `produced`, at most the last `limit_bytes` of it.
    pub(super) async fn output_since(
        &self,
        produced: u64,
        limit_bytes: usize,
    ) -> Result<OutputDelta, Status> {
        let refreshed = self.refresh().await;
        // One that is gone shows what it showed.
        if self.outcome.get().is_none() {
            refreshed?;
        }
        let snapshot = self.lock();
        Ok(OutputDelta {
            text: tail_of(snapshot.tail.since(produced), limit_bytes).to_owned(),
            produced: snapshot.tail.produced(),
            exit: self.exit_when_complete(&snapshot),
        })
    }

    /// The last text that was seen, at most `limit_bytes` of it, without asking anybody.
    pub(super) fn cached_tail(&self, limit_bytes: usize) -> String {
        tail_of(self.lock().tail.text(), limit_bytes).to_owned()
    }

    /// Waits until there is output after what was fetched, or the command has ended.
    pub(super) async fn wait_for_change(&self) -> Result<(), Status> {
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
        let outcome = self.outcome.get_or_try_init(|| self.wait_at_gateway()).await?;
        Ok(exit::status_of(outcome))
    }

    /// Begins to stop the command.
    pub(super) async fn kill(&self) -> Result<(), Error> {
        let request = v1::KillTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.gateway_session.clone(),
            grace: None,
        };
        let killed = self.client.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.terminals.clone().kill_terminal(request).await.map(drop) }
        });
        killed.await.map_err(|status| errors::from_status(&status))
    }

    /// Stops the command, takes in the last of its output, and frees everything at the gateway.
    pub(super) async fn release(&self) -> Result<(), Error> {
        let is_over = self.outcome.get().is_some();
        if !is_over && self.kill().await.is_ok() {
            // Waiters get the true end, and the last output can still be shown.
            let _ = self.wait_for_exit().await;
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
        let request = v1::ReleaseTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.gateway_session.clone(),
            grace: None,
        };
        let released = self.client.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().release_terminal(request).await.map(drop) }
        });
        match released.await {
            Ok(()) => Ok(()),
            // Collected, or closed with its session.
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(errors::from_status(&status)),
        }
    }

    /// Fetches what is new. A fetch that breaks off goes on where it was.
    async fn refresh(&self) -> Result<(), Status> {
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
                Some(Event::End(end)) => snapshot.end(&end, &self.outcome),
                None => {}
            }
            let fetched = snapshot.tail.next_offset() - from;
            if fetched > FETCH_MAX_BYTES && self.outcome.get().is_none() {
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

    async fn wait_at_gateway(&self) -> Result<Outcome, Error> {
        let request =
            WaitForExitRequest { terminal_id: self.id.clone(), session_id: self.gateway_session.clone() };
        let waited = self.client.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().wait_for_exit(request).await }
        });
        let ended = waited.await.map_err(|status| errors::from_status(&status))?.into_inner();
        ended.outcome.ok_or_else(errors::unknown_terminal)
    }

    /// The status goes with the whole output, never before it.
    fn exit_when_complete(&self, snapshot: &OutputSnapshot) -> Option<TerminalExitStatus> {
        match snapshot.completeness {
            Completeness::Complete => self.outcome.get().map(exit::status_of),
            Completeness::MoreMayCome => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutputSnapshot> {
        self.snapshot.lock().expect("no code panics while it holds the snapshot")
    }
}

impl OutputSnapshot {
    /// The gateway has given everything that is there.
    fn end(&mut self, end: &v1::OutputEnd, outcome: &OnceCell<Outcome>) {
        match end.state() {
            TerminalState::Finished | TerminalState::Released => {
                self.tail.finish();
                // Most agents show their model the output and the code, and nothing else.
                self.tail.add_notices(end.outcome.iter().flat_map(client::denial_lines));
                self.completeness = Completeness::Complete;
                if let Some(ended) = &end.outcome {
                    // A waiter may have been faster, with the same.
                    let _ = outcome.set(ended.clone());
                }
            }
            TerminalState::Unspecified | TerminalState::Created | TerminalState::Running => {}
        }
    }

    fn encoded(&mut self) -> Arc<str> {
        let produced = self.tail.produced();
        match &self.encoded {
            Some((then, encoded)) if *then == produced => encoded.clone(),
            Some(_) | None => {
                let encoded: Arc<str> =
                    serde_json::to_string(self.tail.text()).expect("a text is always JSON").into();
                self.encoded = Some((produced, encoded.clone()));
                encoded
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowMode {
    Yes,
    No,
}

/// The end of a text, at most `limit_bytes` of it, cut between characters.
fn tail_of(text: &str, limit_bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(limit_bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
