//! Makes responses from the gateway's types: messages, and the streams of output from an offset, of a run's events, of changes of
//! terminals.
//!
//! A stream reads output only as fast as its caller receives it.

use std::{collections::VecDeque, sync::Arc};

use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::{
    byte_text,
    grpc::errors,
    policy::{AbsPath, StreamMode, profile::Network},
    proto::v1::{
        EnvVar, KeptShell, Lifetime as LifetimeWord, Network as NetworkWord, OutputChunk, OutputEnd,
        OutputGap, OutputPosition, OutputStream, ProcessIdentity, Pty, ResumeRunResponse, RunResponse,
        Session as SessionWord, StreamOutputResponse, Terminal as TerminalWord, TerminalState,
        WatchTerminalsResponse, resume_run_response, run_response, stream_output_response,
    },
    session::{Lifetime, Principal, Session},
    terminal::{
        Channel, QuotaUsage, Stage, Terminal, TerminalId, Terminals, WaiterGuard,
        outcome::timestamp,
        output::{Cursor, Follow, OutputPiece},
        run::{Run, RunProgress},
    },
};

/// A session.
pub(super) fn session(session: &Session, counts: QuotaUsage, primary: Option<TerminalId>) -> SessionWord {
    SessionWord {
        id: session.id.to_string(),
        owner: session.principal.to_string(),
        roots: session.writable_roots().map(AbsPath::shown).collect(),
        read_only_roots: session.read_only_roots().map(AbsPath::shown).collect(),
        name: session.name.clone().unwrap_or_default(),
        owner_process: session
            .owner_process
            .as_ref()
            .map(|process| ProcessIdentity { pid: process.pid, start_ticks: process.start_ticks }),
        repository: session.repository.to_report(),
        network: match session.network {
            None => NetworkWord::Unspecified,
            Some(Network::None) => NetworkWord::None,
            Some(Network::Host) => NetworkWord::Host,
            Some(Network::Proxy) => NetworkWord::Proxy,
        }
        .into(),
        cwd: session.cwd.shown(),
        env: session
            .env
            .iter()
            .map(|entry| EnvVar {
                name: shown(entry.name()),
                value: shown(entry.value()),
                ..EnvVar::default()
            })
            .collect(),
        labels: session.labels.clone().into_iter().collect(),
        profile: session.profile.clone(),
        front_end: session.front_end.clone(),
        git_left_out: session.git_left_out().to_vec(),
        lifetime: match session.lifetime {
            Lifetime::Explicit => LifetimeWord::Explicit,
            Lifetime::OwnerProcess => LifetimeWord::OwnerProcess,
        }
        .into(),
        created_at: Some(timestamp(session.created_at)),
        live_terminals: counts.live,
        finished_terminals: counts.retained - counts.live,
        primary_terminal_id: primary.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// A terminal, at this moment.
pub(super) fn terminal(terminal: &Terminal) -> TerminalWord {
    let stage = terminal.stage();
    let summary = &terminal.spec;
    let live = terminal.live();
    TerminalWord {
        id: terminal.id.to_string(),
        session_id: terminal.session.id.to_string(),
        state: state(&stage).into(),
        command: shown(&summary.command),
        args: summary.args.iter().map(|argument| shown(argument)).collect(),
        cwd: shown(&summary.cwd),
        profile: summary.profile.to_string(),
        labels: summary.labels.clone().into_iter().collect(),
        created_at: Some(timestamp(terminal.created_at)),
        started_at: live.map(|live| {
            timestamp(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(live.started.started_at_ns))
        }),
        outcome: stage.outcome().map(|outcome| (**outcome).clone()),
        receipt: terminal.receipt(),
        output: positions(terminal),
        pid: live.map_or(0, |live| live.started.pid),
        output_byte_limit: summary.output_limit_bytes,
        output_lost: terminal.output_lost(),
        pty: terminal.pty_size().map(|size| Pty {
            columns: size.columns().into(),
            rows: size.rows().into(),
            term: String::new(),
        }),
        kept_shell: summary.kept_shell.map(|_| KeptShell {}),
        stdin_given: terminal.has_given_stdin(),
    }
}

/// A text of a caller, of which bytes that are no UTF-8 are numbers.
pub(super) fn shown(text: &str) -> String {
    byte_text::shown(text).into_owned()
}

fn positions(terminal: &Terminal) -> Vec<OutputPosition> {
    let channels: &[Channel] = match terminal.spec.streams {
        StreamMode::Merged | StreamMode::Pty(_) => &[Channel::Stdout],
        StreamMode::Split => &[Channel::Stdout, Channel::Stderr],
    };
    channels
        .iter()
        .filter_map(|channel| {
            let (oldest_offset, next_offset) = terminal.offsets(*channel)?;
            Some(OutputPosition { stream: stream(*channel).into(), oldest_offset, next_offset })
        })
        .collect()
}

/// A state.
pub(super) fn state(stage: &Stage) -> TerminalState {
    match stage {
        Stage::Created => TerminalState::Created,
        Stage::Running => TerminalState::Running,
        Stage::Finished(_) => TerminalState::Finished,
        Stage::Released(_) => TerminalState::Released,
    }
}

/// Which output.
pub(super) fn stream(channel: Channel) -> OutputStream {
    match channel {
        Channel::Stdout => OutputStream::Stdout,
        Channel::Stderr => OutputStream::Stderr,
    }
}

/// A piece of output.
pub(super) fn piece(channel: Channel, piece: OutputPiece) -> StreamOutputResponse {
    let event = match piece {
        OutputPiece::Data { offset, data } => {
            stream_output_response::Event::Chunk(chunk(channel, offset, data))
        }
        OutputPiece::Gap { from, to } => stream_output_response::Event::Gap(OutputGap {
            stream: stream(channel).into(),
            from_offset: from,
            to_offset: to,
        }),
    };
    StreamOutputResponse { event: Some(event) }
}

/// Bytes of output.
pub(super) fn chunk(channel: Channel, offset: u64, data: prost::bytes::Bytes) -> OutputChunk {
    OutputChunk { stream: stream(channel).into(), offset, data }
}

/// A stream that a drain lets come to its end, within its time.
pub(super) fn counted_as_waiter<T>(
    waiter: WaiterGuard,
    stream: impl Stream<Item = T> + Send,
) -> impl Stream<Item = T> + Send {
    stream.map(move |item| {
        // It goes with the stream.
        let _ = &waiter;
        item
    })
}

/// Output as it comes, and one last event.
pub(super) fn output(
    terminal: Arc<Terminal>,
    cursor: Cursor,
    follow: Follow,
) -> impl Stream<Item = Result<StreamOutputResponse, Status>> + Send {
    unfold(Some((terminal, cursor)), move |reading| async move {
        let (terminal, mut cursor) = reading?;
        match cursor.next(follow).await {
            Ok(Some(piece)) => {
                let event = self::piece(cursor.channel(), piece);
                Some((Ok(event), Some((terminal, cursor))))
            }
            Ok(None) => Some((Ok(end(&terminal, &cursor)), None)),
            Err(error) => Some((Err(errors::read(&error)), None)),
        }
    })
}

/// The last event of a stream.
pub(super) fn end(terminal: &Terminal, cursor: &Cursor) -> StreamOutputResponse {
    let stage = terminal.stage();
    let next = terminal.offsets(cursor.channel()).map_or(0, |(_, next)| next);
    let end = OutputEnd {
        next_offset: cursor.offset().min(next),
        state: self::state(&stage).into(),
        outcome: stage.outcome().map(|outcome| (**outcome).clone()),
        output_lost: terminal.output_lost(),
    };
    StreamOutputResponse { event: Some(stream_output_response::Event::End(end)) }
}

/// A run's events. Dropped before the last one, it stops the command.
pub(super) fn run(run: Run) -> impl Stream<Item = Result<RunResponse, Status>> + Send {
    unfold(Some(run), |run| async move {
        let mut run = run?;
        let event = match run.next().await {
            Ok(Some(RunProgress::Started(terminal))) => {
                run_response::Event::Started(self::terminal(&terminal))
            }
            Ok(Some(RunProgress::Output { channel, offset, data })) => {
                run_response::Event::Chunk(self::chunk(channel, offset, data))
            }
            Ok(Some(RunProgress::Finished(terminal))) => {
                run_response::Event::Finished(self::terminal(&terminal))
            }
            Ok(None) => return None,
            Err(error) => return Some((Err(errors::run(&error)), None)),
        };
        Some((Ok(RunResponse { event: Some(event) }), Some(run)))
    })
}

/// The events of a run that goes on.
pub(super) fn resumed_run(events: Run) -> impl Stream<Item = Result<ResumeRunResponse, Status>> + Send {
    run(events).map(|response| {
        let event = response?.event.map(|event| match event {
            run_response::Event::Started(terminal) => resume_run_response::Event::Resumed(terminal),
            run_response::Event::Chunk(chunk) => resume_run_response::Event::Chunk(chunk),
            run_response::Event::Finished(terminal) => resume_run_response::Event::Finished(terminal),
        });
        Ok(ResumeRunResponse { event })
    })
}

/// Each terminal's present state, and then every change. A watcher that falls behind by more than is kept is told
/// every terminal's present state again.
pub(super) fn watch(
    terminals: Arc<Terminals>,
    principal: Principal,
    session: Option<Arc<Session>>,
) -> impl Stream<Item = Result<WatchTerminalsResponse, Status>> + Send {
    let changes = terminals.registry().changes();
    let watch = TerminalWatch { terminals, principal, session, changes, snapshot: VecDeque::new() };
    unfold(watch.with_snapshot(), |mut watch| async move {
        let terminal = watch.next().await?;
        Some((Ok(terminal), watch))
    })
}

struct TerminalWatch {
    terminals: Arc<Terminals>,
    principal: Principal,
    session: Option<Arc<Session>>,
    changes: Receiver<Arc<Terminal>>,
    snapshot: VecDeque<Arc<Terminal>>,
}

impl TerminalWatch {
    fn with_snapshot(mut self) -> Self {
        let session = self.session.as_ref().map(|session| session.id);
        self.snapshot = self.terminals.registry().list(self.principal, session).into();
        self
    }

    async fn next(&mut self) -> Option<WatchTerminalsResponse> {
        loop {
            if let Some(terminal) = self.snapshot.pop_front() {
                return Some(WatchTerminalsResponse { terminal: Some(self::terminal(&terminal)) });
            }
            tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(terminal) => self.push_change(terminal),
                    Err(RecvError::Lagged(_)) => {
                        let session = self.session.as_ref().map(|session| session.id);
                        self.snapshot = self.terminals.registry().list(self.principal, session).into();
                    }
                    Err(RecvError::Closed) => return None,
                },
                () = closed(self.session.as_deref()) => return None,
            }
        }
    }

    fn push_change(&mut self, terminal: Arc<Terminal>) {
        let of_session = self.session.as_ref().is_none_or(|session| session.id == terminal.session.id);
        if of_session && terminal.session.principal == self.principal {
            self.snapshot.push_back(terminal);
        }
    }
}

/// When the session is closed; never, without one.
pub(super) async fn closed(session: Option<&Session>) {
    match session {
        Some(session) => session.wait_closed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_output_is_told_by_its_name() {
        assert_eq!(stream(Channel::Stdout), OutputStream::Stdout);
        assert_eq!(stream(Channel::Stderr), OutputStream::Stderr);
    }
}
