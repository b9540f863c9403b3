//! The response streams: output from an offset, the events of a run, changes of terminals.
//!
//! A stream reads output only as fast as its caller receives it.

use std::{collections::VecDeque, sync::Arc};

use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::{errors, response};
use crate::{
    proto::v1::{
        OutputEnd, ResumeRunResponse, RunResponse, StreamOutputResponse, WatchTerminalsResponse,
        resume_run_response, run_response, stream_output_response,
    },
    session::{Principal, Session},
    terminal::{
        Terminal, Terminals, WaiterGuard,
        reader::{Cursor, Follow},
        run::{Run, RunProgress},
    },
};

/// A stream that a drain lets come to its end, within its time.
pub fn counted_as_waiter<T>(
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
pub fn output(
    terminal: Arc<Terminal>,
    cursor: Cursor,
    follow: Follow,
) -> impl Stream<Item = Result<StreamOutputResponse, Status>> + Send {
    unfold(Some((terminal, cursor)), move |reading| async move {
        let (terminal, mut cursor) = reading?;
        match cursor.next(follow).await {
            Ok(Some(piece)) => {
                let event = response::piece(cursor.channel(), piece);
                Some((Ok(event), Some((terminal, cursor))))
            }
            Ok(None) => Some((Ok(end(&terminal, &cursor)), None)),
            Err(error) => Some((Err(errors::read(&error)), None)),
        }
    })
}

/// The last event of a stream.
pub fn end(terminal: &Terminal, cursor: &Cursor) -> StreamOutputResponse {
    let stage = terminal.stage();
    let next = terminal.offsets(cursor.channel()).map_or(0, |(_, next)| next);
    let end = OutputEnd {
        next_offset: cursor.offset().min(next),
        state: response::state(&stage).into(),
        outcome: stage.outcome().map(|outcome| (**outcome).clone()),
        output_lost: terminal.output_lost(),
    };
    StreamOutputResponse { event: Some(stream_output_response::Event::End(end)) }
}

/// A run's events. Dropped before the last one, it stops the command.
pub fn run(run: Run) -> impl Stream<Item = Result<RunResponse, Status>> + Send {
    unfold(Some(run), |run| async move {
        let mut run = run?;
        let event = match run.next().await {
            Ok(Some(RunProgress::Started(terminal))) => {
                run_response::Event::Started(response::terminal(&terminal))
            }
            Ok(Some(RunProgress::Output { channel, offset, data })) => {
                run_response::Event::Chunk(response::chunk(channel, offset, data))
            }
            Ok(Some(RunProgress::Finished(terminal))) => {
                run_response::Event::Finished(response::terminal(&terminal))
            }
            Ok(None) => return None,
            Err(error) => return Some((Err(errors::run(&error)), None)),
        };
        Some((Ok(RunResponse { event: Some(event) }), Some(run)))
    })
}

/// The events of a run that goes on.
pub fn resumed_run(events: Run) -> impl Stream<Item = Result<ResumeRunResponse, Status>> + Send {
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
pub fn watch(
    terminals: Arc<Terminals>,
    principal: Principal,
    session: Option<Arc<Session>>,
) -> impl Stream<Item = Result<WatchTerminalsResponse, Status>> + Send {
    let changes = terminals.changes();
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
        self.snapshot = self.terminals.list(self.principal, session).into();
        self
    }

    async fn next(&mut self) -> Option<WatchTerminalsResponse> {
        loop {
            if let Some(terminal) = self.snapshot.pop_front() {
                return Some(WatchTerminalsResponse { terminal: Some(response::terminal(&terminal)) });
            }
            tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(terminal) => self.push_change(terminal),
                    Err(RecvError::Lagged(_)) => {
                        let session = self.session.as_ref().map(|session| session.id);
                        self.snapshot = self.terminals.list(self.principal, session).into();
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
pub async fn closed(session: Option<&Session>) {
    match session {
        Some(session) => session.wait_closed().await,
        None => std::future::pending().await,
    }
}
