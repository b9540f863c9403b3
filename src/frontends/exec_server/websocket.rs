//! One client's websocket: a message of the protocol in each of its messages, with the bounds that lines have.
//!
//! What a ping asks for comes back after all that was sent before it was read. By that it is known what the client has when its
//! connection breaks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        error::ProtocolError,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    lines::{self, Disconnected, LINE_MAX_BYTES, LineQueue, OutputLine, Receipt},
    server::Server,
    sessions::Sessions,
};

/// How long what is still to be written may take, at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take to see why its connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may leave the answer to its ping unread. Then it counts as gone.
const PONG_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may be connected without a session.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Serves a client until its connection ends or `stopped` is cancelled. Its session goes on without it for a while.
pub(super) async fn serve(upgraded: Upgraded, sessions: Arc<Sessions>, stopped: CancellationToken) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(LINE_MAX_BYTES))
        .max_frame_size(Some(LINE_MAX_BYTES));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (sink, mut stream) = socket.split();
    let (sender, queue) = lines::line_channel();
    let (answered, answers) = watch::channel(0);
    let mut server = Server::new(sessions, sender);
    let (closing, close) = oneshot::channel();
    let (flush, flushes) = mpsc::channel(1);
    let writing = AbortOnDropHandle::new(tokio::spawn(write(queue, sink, Asked { answers, flushes, close })));
    let mut reading = Reading { answered, flush };
    let closed = tokio::select! {
        closed = reading.run(&mut stream, &mut server) => closed,
        () = stopped.cancelled() => Some(frame(CloseCode::Away, "the server ends")),
    };
    if let Some(closed) = closed {
        let is_lost = matches!(closed.code, CloseCode::Size | CloseCode::Protocol | CloseCode::Invalid);
        // Without a writer nobody is there to be told.
        let _ = closing.send(closed);
        if let Ok(Ok(sink)) = timeout(FLUSH_TIMEOUT, writing).await
            && let Ok(socket) = sink.reunite(stream)
        {
            let _ = timeout(CLOSE_TIMEOUT, drain(socket, is_lost)).await;
        }
    }
    server.disconnected().await;
}

/// Takes what the client is still sending, until it has seen the reason: a connection that is dropped with something unread is reset,
/// and the reason with it. Of one whose messages are lost it is not known where the next one begins.
async fn drain(mut socket: Socket, is_lost: bool) {
    if is_lost {
        let _ = tokio::io::copy(&mut socket.into_inner(), &mut tokio::io::sink()).await;
        return;
    }
    while let Some(Ok(received)) = socket.next().await {
        if received.is_close() {
            return;
        }
    }
}

/// What reading asks of the other half.
struct Reading {
    /// The number of the last ping that the client has answered.
    answered: watch::Sender<u64>,
    /// To be told when all has been written.
    flush: mpsc::Sender<oneshot::Sender<()>>,
}

/// What is asked of the half that writes.
struct Asked {
    answers: watch::Receiver<u64>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    close: oneshot::Receiver<CloseFrame>,
}

impl Reading {
    /// Takes what the client sends until it sends no more. Returns what is wrong, if the client is to be told.
    async fn run(&mut self, stream: &mut SplitStream<Socket>, server: &mut Server) -> Option<CloseFrame> {
        let deadline = Instant::now() + INITIALIZE_TIMEOUT;
        loop {
            let received = match server.has_session() {
                true => stream.next().await,
                false => match timeout_at(deadline, stream.next()).await {
                    Ok(received) => received,
                    Err(_) => return Some(frame(CloseCode::Policy, "initialize was not sent in time")),
                },
            };
            let taken = match received? {
                Ok(Message::Text(text)) => server.take(text.as_bytes()).await,
                Ok(Message::Binary(bytes)) => server.take(&bytes).await,
                Ok(Message::Pong(bytes)) => {
                    if let Ok(number) = <[u8; 8]>::try_from(&bytes[..]) {
                        self.answered.send_replace(u64::from_be_bytes(number));
                    }
                    Ok(())
                }
                // The library answers, without a bound: nothing more is read until the answer is written.
                Ok(Message::Ping(_)) => {
                    timeout(PONG_TIMEOUT, self.flushed()).await.unwrap_or(Err(Disconnected))
                }
                Ok(Message::Frame(_)) => Ok(()),
                Ok(Message::Close(_)) => {
                    // The library answers this, too. A client that does not read it has gone away.
                    let _ = timeout(CLOSE_TIMEOUT, self.flushed()).await;
                    return None;
                }
                Err(error) => return problem(&error),
            };
            if taken.is_err() {
                return None;
            }
        }
    }

    /// Waits until everything is written.
    async fn flushed(&self) -> Result<(), Disconnected> {
        let (done, is_done) = oneshot::channel();
        self.flush.send(done).await.map_err(|_| Disconnected)?;
        is_done.await.map_err(|_| Disconnected)
    }
}

/// What a client is told of what it has sent. It was not read, and where the next message begins is not known: the client has to come
/// back.
fn problem(error: &Error) -> Option<CloseFrame> {
    tracing::info!(%error, "a connection has failed");
    match error {
        Error::Capacity(_) => {
            Some(frame(CloseCode::Size, &format!("a message has at most {LINE_MAX_BYTES} bytes")))
        }
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(frame(CloseCode::Protocol, "that is no frame of a client")),
        Error::Utf8(_) => Some(frame(CloseCode::Invalid, "a text is UTF-8")),
        _ => None,
    }
}

fn frame(code: CloseCode, reason: &str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

/// Writes what comes until all senders are gone or nobody reads. Receipts are given when the client has answered a ping that was sent
/// after their messages. Returns the socket's half.
async fn write(
    mut queue: LineQueue,
    mut sink: SplitSink<Socket, Message>,
    mut asked: Asked,
) -> SplitSink<Socket, Message> {
    let mut pings = Pings::default();
    loop {
        let sent = tokio::select! {
            line = queue.next() => match line {
                Some(OutputLine { text, receipt, room: _room }) => {
                    let sent = sink.send(Message::text(text)).await;
                    pings.sent.extend(receipt);
                    sent
                }
                None => return sink,
            },
            changed = asked.answers.changed() => match changed {
                Ok(()) => {
                    pings.answered(*asked.answers.borrow_and_update());
                    Ok(())
                }
                Err(_) => return sink,
            },
            Some(done) = asked.flushes.recv() => {
                let flushed = sink.flush().await;
                // Who has asked may have gone.
                let _ = done.send(());
                flushed
            }
            closed = &mut asked.close => {
                if let Ok(closed) = closed {
                    let _ = sink.send(Message::Close(Some(closed))).await;
                }
                return sink;
            }
        };
        let sent = match (sent, pings.next()) {
            (Ok(()), Some(ping)) => sink.send(ping).await,
            (sent, _) => sent,
        };
        if sent.is_err() {
            return sink;
        }
    }
}

/// One ping is under way at once, and stands for all that was sent before it.
#[derive(Default)]
struct Pings {
    /// Of messages after the last ping.
    sent: Vec<Receipt>,
    /// Of messages before it.
    asked: Vec<Receipt>,
    number: u64,
}

impl Pings {
    /// The ping to send, if there is one to send.
    fn next(&mut self) -> Option<Message> {
        if self.sent.is_empty() || !self.asked.is_empty() {
            return None;
        }
        self.asked = std::mem::take(&mut self.sent);
        self.number += 1;
        Some(Message::Ping(Bytes::copy_from_slice(&self.number.to_be_bytes())))
    }

    /// The client has answered the ping of this number.
    fn answered(&mut self, number: u64) {
        if number == self.number {
            self.asked.drain(..).for_each(|receipt| receipt());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_receipt_is_given_with_the_answer_to_the_ping_after_its_message() {
        let given = Arc::new(Mutex::new(Vec::new()));
        let receipt = |name: &'static str| -> Receipt {
            let given = given.clone();
            Box::new(move || given.lock().unwrap().push(name))
        };
        let mut pings = Pings::default();
        assert!(pings.next().is_none(), "nothing was sent");
        pings.sent.push(receipt("a"));
        assert!(pings.next().is_some());
        pings.sent.push(receipt("b"));
        assert!(pings.next().is_none(), "one is under way");
        pings.answered(7);
        assert!(given.lock().unwrap().is_empty(), "that is the answer to another");
        pings.answered(1);
        assert_eq!(*given.lock().unwrap(), ["a"]);
        assert!(pings.next().is_some());
        pings.answered(1);
        assert_eq!(*given.lock().unwrap(), ["a"]);
        pings.answered(2);
        assert_eq!(*given.lock().unwrap(), ["a", "b"]);
    }
}
