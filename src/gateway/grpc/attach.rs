//! Attached callers: output to them, their keys and window sizes to the terminal.
//!
//! Output is read as the caller takes it. Input is written by a task of its own, which ends with the stream: a caller who
//! does not read can still type.

use std::{sync::Arc, time::Duration};

use futures_util::stream::unfold;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::{abort::AbortOnDrop, errors, request, response};
use crate::{
    display::{picture::Picture, restore},
    policy::PtySize,
    proto::v1::{
        AttachRequest, AttachResponse, AttachStart, Pty, RestoredScreen, StreamOutputResponse,
        attach_request::Message, attach_response::Event, stream_output_response,
    },
    terminal::{
        AttachedGuard, Channel, EndOfInput, OperationError, Terminal, Terminals,
        output::{Cursor, Follow, OutputPiece},
    },
};

/// How long to wait when another caller's input fills the buffer of the terminal.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// How long a screen may take to get the size that its terminal has got. It is restored as it is then.
const RESIZED_WITHIN: Duration = Duration::from_millis(500);
/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Output before the screen in which the beginning of a control sequence is looked for.
const UNFINISHED_MAX_BYTES: u64 = 4 << 10;

/// The first message of a caller.
pub(super) async fn start(requests: &mut Streaming<AttachRequest>) -> Result<AttachStart, Status> {
    match requests.message().await?.and_then(|request| request.message) {
        Some(Message::Start(start)) => Ok(start),
        Some(Message::Input(_) | Message::Resize(_) | Message::EndOfInput(_)) | None => {
            Err(errors::bad_field(request::attach_without_start()))
        }
    }
}

/// Attaches a caller. The command never waits for it.
pub(super) async fn attach(
    terminals: Arc<Terminals>,
    terminal: Arc<Terminal>,
    start: AttachStart,
    requests: Streaming<AttachRequest>,
) -> Result<impl Stream<Item = Result<AttachResponse, Status>> + Send, Status> {
    terminal.wait_settled().await;
    if let Some(size) = start.size {
        resize(&terminal, "start.size.", &size).await?;
    }
    let restored = match start.restore_screen {
        true => restored_screen(&terminals, &terminal).await,
        false => None,
    };
    let (oldest, next) = terminal.offsets(Channel::Stdout).unwrap_or_default();
    let offset = match &restored {
        Some(screen) => screen.offset,
        None => start.tail_bytes.map_or(start.offset, |tail| next.saturating_sub(tail).max(oldest)),
    };
    let cursor = Cursor::without_hold(terminal.clone(), Channel::Stdout, offset)
        .map_err(|error| errors::read(&error))?;
    let (failed, failure) = oneshot::channel();
    let typing = tokio::spawn({
        let terminal = terminal.clone();
        async move {
            if let Err(status) = pass_input(&terminal, requests).await {
                // The stream may have ended meanwhile.
                let _ = failed.send(status);
            }
        }
    });
    let attached = Attached {
        _guard: terminal.attach(),
        greeting: Some(response::terminal(&terminal)),
        restored,
        terminal,
        cursor,
        failure: Some(failure),
        _typing: AbortOnDrop(typing.abort_handle()),
    };
    Ok(unfold(Some(attached), |attached| async move {
        let mut attached = attached?;
        match attached.next().await {
            Ok(event @ Event::End(_)) => Some((Ok(AttachResponse { event: Some(event) }), None)),
            Ok(event) => Some((Ok(AttachResponse { event: Some(event) }), Some(attached))),
            Err(status) => Some((Err(status), None)),
        }
    }))
}

struct Attached {
    _guard: AttachedGuard,
    greeting: Option<crate::proto::v1::Terminal>,
    restored: Option<RestoredScreen>,
    terminal: Arc<Terminal>,
    cursor: Cursor,
    /// `None` when input has ended without a failure.
    failure: Option<oneshot::Receiver<Status>>,
    /// Ends its task when it is dropped.
    _typing: AbortOnDrop,
}

impl Attached {
    async fn next(&mut self) -> Result<Event, Status> {
        if let Some(terminal) = self.greeting.take() {
            return Ok(Event::Attached(terminal));
        }
        if let Some(screen) = self.restored.take() {
            return Ok(Event::Restored(screen));
        }
        loop {
            let piece = tokio::select! {
                piece = self.cursor.next(Follow::UntilEnd) => piece,
                failure = failed(&mut self.failure) => match failure {
                    Some(status) => return Err(status),
                    None => {
                        self.failure = None;
                        continue;
                    }
                },
            };
            let piece = piece.map_err(|error| errors::read(&error))?;
            let response = match piece {
                Some(piece) => response::piece(Channel::Stdout, piece),
                None => response::end(&self.terminal, &self.cursor),
            };
            return Ok(event(response));
        }
    }
}

/// What the terminal's screen shows now. `None`: it has no screen that can be shown.
async fn restored_screen(terminals: &Terminals, terminal: &Arc<Terminal>) -> Option<RestoredScreen> {
    let size = terminal.pty_size()?;
    let link = terminals.screens().link(terminal).await.ok()?;
    let id = terminal.id.to_string();
    let look = || async { link.snapshot_with_continuation(&id).await.ok() };
    let (picture, continuation) = in_size(size, RESIZED_WITHIN, look).await?;
    let looked_at = picture.offset.saturating_sub(UNFINISHED_MAX_BYTES);
    let mut before = Cursor::without_hold(terminal.clone(), Channel::Stdout, looked_at).ok()?;
    let mut unfinished = 0;
    if let Ok(Some(OutputPiece::Data { offset, data })) = before.try_next().await {
        let length = usize::try_from(picture.offset.saturating_sub(offset)).unwrap_or(usize::MAX);
        unfinished = restore::unfinished_bytes(&data[..length.min(data.len())]) as u64;
    }
    let offset = picture.offset.saturating_sub(unfinished);
    Some(RestoredScreen { data: restore::sequences(&picture, continuation.as_ref()).into(), offset })
}

/// Looks until the picture has the size, for so long. Then it is the picture as it is.
async fn in_size<T, F>(
    size: PtySize,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> Option<(Arc<Picture>, T)>
where
    F: Future<Output = Option<(Arc<Picture>, T)>>,
{
    let resized_by = Instant::now() + within;
    loop {
        let (picture, rest) = look().await?;
        let has_size = (picture.size.columns(), picture.size.rows()) == (size.columns(), size.rows());
        if has_size || Instant::now() >= resized_by {
            return Some((picture, rest));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

async fn failed(failure: &mut Option<oneshot::Receiver<Status>>) -> Option<Status> {
    match failure {
        Some(failure) => failure.await.ok(),
        None => std::future::pending().await,
    }
}

/// The same event of the other stream.
fn event(response: StreamOutputResponse) -> Event {
    match response.event {
        Some(stream_output_response::Event::Chunk(chunk)) => Event::Chunk(chunk),
        Some(stream_output_response::Event::Gap(gap)) => Event::Gap(gap),
        Some(stream_output_response::Event::End(end)) => Event::End(end),
        None => Event::End(Default::default()),
    }
}

/// Until the caller has nothing more to say. That the command has ended is no failure: its end comes with the output.
async fn pass_input(terminal: &Terminal, mut requests: Streaming<AttachRequest>) -> Result<(), Status> {
    while let Some(request) = requests.message().await? {
        match request.message {
            Some(Message::Input(bytes)) => write(terminal, bytes, EndOfInput::NotYet).await?,
            Some(Message::EndOfInput(_)) => {
                write(terminal, prost::bytes::Bytes::new(), EndOfInput::AfterThis).await?;
            }
            Some(Message::Resize(size)) => resize(terminal, "resize.", &size).await?,
            Some(Message::Start(_)) | None => {
                return Err(errors::bad_field(request::attach_without_start()));
            }
        }
    }
    Ok(())
}

async fn write(terminal: &Terminal, bytes: prost::bytes::Bytes, end: EndOfInput) -> Result<(), Status> {
    loop {
        match terminal.write(None, bytes.clone(), end).await {
            Ok(_) | Err(OperationError::Ended | OperationError::Released(_)) => return Ok(()),
            Err(OperationError::Errno(nix::libc::EAGAIN)) => sleep(RETRY_AFTER).await,
            Err(error) => return Err(errors::terminal_request(&error)),
        }
    }
}

async fn resize(terminal: &Terminal, within: &str, size: &Pty) -> Result<(), Status> {
    let size = request::pty_size(within, size.columns, size.rows).map_err(errors::bad_field)?;
    match terminal.resize(size).await {
        Ok(()) | Err(OperationError::Ended | OperationError::Released(_)) => Ok(()),
        Err(error) => Err(errors::terminal_request(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::{mode::Modes, size::ScreenSize};

    fn picture(columns: u32, rows: u32) -> Arc<Picture> {
        Arc::new(Picture {
            size: ScreenSize::new(columns, rows).unwrap(),
            rows: Vec::new(),
            cursor: Default::default(),
            modes: Modes::default(),
            title: String::new(),
            bells: 0,
            scrollback_rows: 0,
            offset: 0,
            built_from: 0,
            resets: 0,
        })
    }

    #[tokio::test]
    async fn a_screen_is_looked_at_until_it_has_its_terminals_size_or_the_time_is_over() {
        let (long, none) = (Duration::from_secs(3_600), Duration::ZERO);
        for (sizes, within, looks) in [
            (&[(80, 24)][..], long, Some(1)),
            (&[(81, 24), (80, 25), (80, 24)], long, Some(3)),
            (&[(81, 24)], none, Some(1)),
            (&[(80, 24)], none, Some(1)),
            // It is gone meanwhile.
            (&[(81, 24)], long, None),
        ] {
            let mut left = sizes.iter().zip(1..);
            let look = || {
                let found = left.next().map(|((columns, rows), number)| (picture(*columns, *rows), number));
                async move { found }
            };
            let found = in_size(PtySize::new(80, 24).unwrap(), within, look).await;
            assert_eq!(found.map(|(_, number)| number), looks, "{sizes:?} within {within:?}");
        }
    }
}
