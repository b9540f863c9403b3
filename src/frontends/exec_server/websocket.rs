//! The exec-server protocol by websockets on a loopback address, for processes of this user that have the token: a message of the protocol in
//! each of a websocket's messages, with the bounds that lines have.
//!
//! Each client has a session of its own. One whose connection breaks can resume its session, for a while; nobody else can, because
//! nobody else gets a connection. The opening of a websocket is that of RFC 6455, section 4.2. It needs the token, which the client brings
//! in a header or, where it can send none, as the path of the URL.
//!
//! What a ping asks for comes back after all that was sent before it was read. By that it is known what the client has when its
//! connection breaks.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
        SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
    },
    upgrade::{self, Upgraded},
};
use hyper_util::rt::TokioIo;
use ring::digest;
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        error::ProtocolError,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{
    CLOSE_TIMEOUT, ExecServerOptions, LINE_MAX_BYTES, QUEUE,
    server::Server,
    sessions::{Detachment, Sessions},
};
use crate::{
    client::{Client, RetryingClient},
    json_rpc::{self, Disconnected, LineQueue, QueuedLine, Receipt},
    local_http::{self, Body, ListenError, LocalAddress, LocalListener, Token, only},
};

/// Websockets at once.
pub(super) const CLIENTS_MAX: usize = 64;
/// What the protocol appends to a websocket's key.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bytes of a websocket's key.
const KEY_BYTES: usize = 16;
/// How long what is still to be written may take, at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take to see why its connection is closed.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may leave the answer to its ping unread. Then it counts as gone.
const PONG_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may be connected without a session.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);

/// Bound, and not yet served.
#[derive(Debug)]
pub struct WebSocketEndpoint(LocalListener);

/// What every request is checked by and handed to.
#[derive(Debug)]
struct Endpoint {
    address: LocalAddress,
    token: Token,
    sessions: Arc<Sessions>,
    places: Arc<Semaphore>,
    clients: TaskTracker,
    stopped: CancellationToken,
}

impl WebSocketEndpoint {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`ListenError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        LocalListener::bind(address).await.map(Self)
    }

    /// The URL that clients are to use, without the token.
    pub fn url(&self) -> String {
        format!("ws://{}/", self.0.address().socket())
    }

    /// Serves until `stopped` resolves. Returns when all sessions are closed. A session without a connection is kept for `kept`.
    pub async fn serve(
        self,
        client: Client,
        options: ExecServerOptions,
        token: Token,
        kept: Duration,
        stopped: impl Future<Output = ()>,
    ) {
        let sessions = Sessions::new(RetryingClient::new(client), options, Detachment::Kept(kept));
        let endpoint = Arc::new(Endpoint {
            address: self.0.address(),
            token,
            sessions: Arc::new(sessions),
            places: Arc::new(Semaphore::new(CLIENTS_MAX)),
            clients: TaskTracker::new(),
            stopped: CancellationToken::new(),
        });
        let answer = {
            let endpoint = endpoint.clone();
            move |request| {
                let endpoint = endpoint.clone();
                async move { endpoint.answer(request) }
            }
        };
        let connections = TaskTracker::new();
        tokio::select! {
            never = self.0.serve(&connections, answer) => match never {},
            () = stopped => {}
        }
        endpoint.stopped.cancel();
        endpoint.clients.close();
        let closing = async {
            endpoint.clients.wait().await;
            endpoint.sessions.close_all().await;
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::warn!(
                "the gateway does not say that the sessions are closed: they end with this process"
            );
        }
    }
}

impl Endpoint {
    /// Answers a request, and serves the websocket that it opens.
    fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let accepted = match answer(&request, self.address, &self.token) {
            Ok(accepted) => accepted,
            Err(refused) => return refused,
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return local_http::text(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected\n");
        };
        let upgrading = upgrade::on(&mut request);
        let (sessions, stopped) = (self.sessions.clone(), self.stopped.clone());
        self.clients.spawn(async move {
            match upgrading.await {
                Ok(upgraded) => serve(upgraded, sessions, stopped).await,
                Err(error) => tracing::info!(%error, "a connection did not become a websocket"),
            }
            drop(place);
        });
        accepted
    }
}

/// What a request is answered.
fn answer<B>(
    request: &Request<B>,
    address: LocalAddress,
    token: &Token,
) -> Result<Response<Body>, Response<Body>> {
    let headers = request.headers();
    address.admits(headers).map_err(|(status, message)| local_http::text(status, message))?;
    if !is_authorized(request, token) {
        return Err(local_http::unauthorized());
    }
    let is_upgrade = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && has_word(headers, &CONNECTION, "upgrade")
        && has_word(headers, &UPGRADE, "websocket");
    let is_known = only(headers, &SEC_WEBSOCKET_VERSION) == Ok(Some("13"));
    if !is_upgrade || !is_known {
        let mut refused = local_http::text(StatusCode::UPGRADE_REQUIRED, "this is for websockets\n");
        refused.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        refused.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(refused);
    }
    // What follows an opening is the websocket's: with a body it would be open to argument where that begins.
    if headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING) {
        return Err(local_http::text(StatusCode::BAD_REQUEST, "an opening has no body\n"));
    }
    let key = only(headers, &SEC_WEBSOCKET_KEY).unwrap_or_default().unwrap_or_default();
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
    let accept =
        is_key.then(|| accept_of(key.as_bytes())).and_then(|accept| HeaderValue::from_str(&accept).ok());
    let Some(accept) = accept else {
        return Err(local_http::text(StatusCode::BAD_REQUEST, "the websocket's key is missing or wrong\n"));
    };
    let mut accepted = local_http::text(StatusCode::SWITCHING_PROTOCOLS, "");
    let added = accepted.headers_mut();
    added.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    added.insert(UPGRADE, HeaderValue::from_static("websocket"));
    added.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(accepted)
}

/// The token as a header, which then must be right, or else as the path.
fn is_authorized<B>(request: &Request<B>, token: &Token) -> bool {
    match request.headers().contains_key(AUTHORIZATION) {
        true => token.is_in(request.headers()),
        false => request.uri().path().strip_prefix('/').is_some_and(|given| token.is(given)),
    }
}

/// Whether a list of words in a header has this one.
fn has_word(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
}

/// SHA-1 is the protocol's, and protects nothing: it shows that the server speaks it.
fn accept_of(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(ACCEPT_SUFFIX.as_bytes());
    STANDARD.encode(context.finish())
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Serves a client until its connection ends or `stopped` is cancelled. Its session goes on without it for a while.
async fn serve(upgraded: Upgraded, sessions: Arc<Sessions>, stopped: CancellationToken) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(LINE_MAX_BYTES))
        .max_frame_size(Some(LINE_MAX_BYTES));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (sink, mut stream) = socket.split();
    let (sender, queue) = json_rpc::line_channel(QUEUE);
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
            let _ = timeout(CLIENT_CLOSE_TIMEOUT, drain(socket, is_lost)).await;
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
                    let _ = timeout(CLIENT_CLOSE_TIMEOUT, self.flushed()).await;
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
                Some(QueuedLine { line, receipt, room: _room }) => {
                    let sent = sink.send(message_of(&line)).await;
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

/// A line as a message, which needs no end.
fn message_of(line: &Bytes) -> Message {
    let text = line.slice(..line.len().saturating_sub(1));
    // What we write is UTF-8.
    Utf8Bytes::try_from(text.clone()).map_or_else(|_| Message::Binary(text), Message::Text)
}

/// One ping is under way at once, and stands for all that was sent before it.
#[derive(Default)]
struct Pings {
    /// The receipts of messages after the last ping.
    sent: Vec<Receipt>,
    /// The receipts of messages before it.
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
    fn a_key_is_accepted_as_the_rfc_shows() {
        assert_eq!(accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

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
