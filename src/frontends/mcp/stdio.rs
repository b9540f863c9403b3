//! One client on this process's stdio: messages on a pair of streams, one a line.
//!
//! The library's own reader says nothing to the sender of a line that is too long, or that is no JSON; this one answers, with the id of the
//! request where it can be found.

use std::io;

use rmcp::{
    ErrorData, RoleServer,
    model::RequestId,
    service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde::de::IgnoredAny;
use tokio::{
    io::{AsyncRead, AsyncWrite, Empty},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{CLOSE_TIMEOUT, FLUSH_TIMEOUT, LINE_MAX_BYTES, McpOptions, server::McpServer};
use crate::{
    client::Client,
    json_rpc::{InputLine, LineReader, Peeked},
    printable,
};

/// The longest problem that is told, in bytes.
const PROBLEM_MAX_BYTES: usize = 512;
/// Some writers put it before their first message.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Why a client was not served.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The client did not begin as the protocol says.
    #[error("the client did not open the protocol: {0}")]
    Handshake(String),
    /// The connection's task has failed.
    #[error("the connection to the client has failed")]
    Connection(#[source] tokio::task::JoinError),
}

/// Serves the client on this process's stdio until it goes away or `stopped` resolves. Returns when its session is
/// closed.
pub async fn run(
    client: Client,
    options: McpOptions,
    stopped: impl Future<Output = ()>,
) -> Result<(), McpError> {
    let server = McpServer::new(client, options);
    let cancelled = CancellationToken::new();
    let transport = StdioTransport::new(crate::stdio::stdin(), crate::stdio::stdout());
    let serving = serve(server.clone(), transport, cancelled.clone());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopped => {
            cancelled.cancel();
            timeout(FLUSH_TIMEOUT, serving).await.unwrap_or(Ok(()))
        }
    };
    if timeout(CLOSE_TIMEOUT, server.close()).await.is_err() {
        tracing::warn!("the gateway does not say that the session is closed: it ends with this process");
    }
    served
}

async fn serve<R, W>(
    server: McpServer,
    transport: StdioTransport<R, W>,
    cancelled: CancellationToken,
) -> Result<(), McpError>
where
    R: tokio::io::AsyncRead + Send + Unpin + 'static,
    W: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    match rmcp::service::serve_server_with_ct(server, transport, cancelled).await {
        Ok(running) => running.waiting().await.map(drop).map_err(McpError::Connection),
        // It came, said nothing and went away, or was told to: nothing was asked.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => {
            Err(McpError::Handshake(crate::printable::bounded_line(&error.to_string(), 512).into_owned()))
        }
    }
}

/// Reads and writes messages.
struct StdioTransport<R, W: AsyncWrite> {
    from: LineReader<R>,
    /// The library's, which is only written to.
    to: AsyncRwTransport<RoleServer, Empty, W>,
    /// The answer to a line that was not taken. The next line is read when it is written.
    answering: Option<JoinHandle<io::Result<()>>>,
}

/// What a line that is not taken is answered with.
type Refusal = Box<(ErrorData, Option<RequestId>)>;

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn new(from: R, to: W) -> Self {
        Self {
            from: LineReader::new(from, LINE_MAX_BYTES),
            to: AsyncRwTransport::new_server(tokio::io::empty(), to),
            answering: None,
        }
    }
}

impl<R, W> Transport<RoleServer> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.to.send(message)
    }

    /// May be dropped and called again without losing a message.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                // A client that does not read is noticed when it is written to.
                let _ = answering.await;
                self.answering = None;
            }
            let line = match self.from.next().await {
                Ok(line) => line?,
                Err(error) => {
                    tracing::error!(%error, "cannot read from the client");
                    return None;
                }
            };
            match message_of(&line) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refusal) => {
                    let (error, id) = *refusal;
                    tracing::info!(problem = %error.message, "a message of the client is not taken");
                    let answer = self.to.send(TxJsonRpcMessage::<RoleServer>::error(error, id));
                    self.answering = Some(tokio::spawn(answer));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.to.close().await
    }
}

/// The message of a line; none where nothing is said, or nothing that must be understood.
fn message_of(line: &InputLine) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Refusal> {
    let bytes = match line {
        InputLine::Complete(bytes) => bytes,
        // What has no end is no message.
        InputLine::Unfinished(_) => return Ok(None),
        InputLine::TooLong { beginning, end } => {
            let seen = Peeked::of(beginning);
            let id = seen.method.and_then(|_| request_id(&seen).or_else(|| last_id(end)));
            let problem = format!("a message may have {LINE_MAX_BYTES} bytes, and this one is longer");
            return Err(Box::new((ErrorData::invalid_request(problem, None), id)));
        }
    };
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii();
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(bytes).map(Some).or_else(|error| not_read(bytes, &error).map_or(Ok(None), Err))
}

/// What a line that cannot be read is answered with; none if it is a notification.
fn not_read(bytes: &[u8], error: &serde_json::Error) -> Option<Refusal> {
    let seen = Peeked::of(bytes);
    let id = request_id(&seen);
    let bounded = |problem: &str| printable::bounded_line(problem, PROBLEM_MAX_BYTES).into_owned();
    let error = if let Err(error) = std::str::from_utf8(bytes) {
        ErrorData::parse_error(bounded(&format!("a message must be UTF-8: {error}")), None)
    } else if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        ErrorData::parse_error(bounded(&format!("a message must be JSON: {error}")), None)
    } else if seen.method.is_some() && seen.id.is_none() {
        return None;
    } else {
        ErrorData::invalid_request(bounded(&format!("this is no message of the protocol: {error}")), None)
    };
    Some(Box::new((error, id)))
}

/// The id that is the last member of a message, where many clients write it.
fn last_id(end: &[u8]) -> Option<RequestId> {
    const KEY: &[u8] = b"\"id\"";
    let members = end.trim_ascii_end().strip_suffix(b"}")?;
    let behind_key = memchr::memmem::rfind(members, KEY)? + KEY.len();
    let value = members[behind_key..].trim_ascii_start().strip_prefix(b":")?;
    // A number or a string, and nothing behind it: so the bracket was the message's own.
    serde_json::from_slice(value).ok()
}

/// The id of a request of which this is known; none of an answer, whose id the client has not given.
fn request_id(seen: &Peeked<'_>) -> Option<RequestId> {
    seen.method?;
    serde_json::from_str(seen.id?.get()).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rmcp::model::ErrorCode;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn refused(text: &str) -> Option<(i32, Option<Value>)> {
        let (error, id) = *message_of(&InputLine::Complete(Bytes::copy_from_slice(text.as_bytes()))).err()?;
        Some((error.code.0, id.map(RequestId::into_json_value)))
    }

    #[test]
    fn what_cannot_be_read_is_answered_as_json_rpc_says() {
        let (parse, request) = (ErrorCode::PARSE_ERROR.0, ErrorCode::INVALID_REQUEST.0);
        for (text, expected) in [
            ("hello", Some((parse, None))),
            (r#"{"jsonrpc":"2.0","id":5,"method":"ping""#, Some((parse, Some(5.into())))),
            // It may be the beginning of 12.
            (r#"{"method":"ping","id":1"#, Some((parse, None))),
            // An answer's id is not the client's.
            (r#"{"jsonrpc":"2.0","id":5,"result":{"#, Some((parse, None))),
            ("[]", Some((request, None))),
            (r#"{"jsonrpc":"2.0","id":"x","method":"ping","result":1}"#, Some((request, Some("x".into())))),
            (r#"{"jsonrpc":"2.0","method":"notifications/x","params":[1]}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None),
            (" \r", None),
        ] {
            assert_eq!(refused(text), expected, "{text}");
        }
        let marked = InputLine::Complete(Bytes::from_static(
            b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
        ));
        assert!(matches!(message_of(&marked), Ok(Some(_))));
        assert!(message_of(&InputLine::Complete(Bytes::from_static(b"\xff\xfe"))).is_err());
    }

    #[test]
    fn the_id_of_a_long_request_is_found_at_its_beginning_or_its_end() {
        let id = |beginning: &str, end: &str| {
            let line = InputLine::TooLong {
                beginning: Bytes::copy_from_slice(beginning.as_bytes()),
                end: Bytes::copy_from_slice(end.as_bytes()),
            };
            let (_, id) = *message_of(&line).expect_err("it is too long");
            id.map(RequestId::into_json_value)
        };
        let call = r#"{"method":"tools/call","params":{"a":"bb"#;
        assert_eq!(id(r#"{"id":7,"method":"tools/call","params":{"a"#, r#"bb"}}"#), Some(7.into()));
        assert_eq!(id(call, r#"bb"},"jsonrpc":"2.0","id":7}"#), Some(7.into()));
        assert_eq!(id(call, r#"bb"},"id" : "x" } "#), Some("x".into()));
        for end in [r#"bb"}}"#, r#"bb","id":7}}"#, r#"bb\"id\":7}"}"#, r#""id"}"#, r#""id":{"id":7}}"#] {
            assert_eq!(id(call, end), None, "{end}");
        }
        assert_eq!(id(r#"{"result":{"a":"bb"#, r#"bb"},"id":7}"#), None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_one_line_and_is_answered() {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (from, to) = tokio::io::split(ours);
        let mut transport = StdioTransport::new(from, to);
        let (mut answers, mut requests) = tokio::io::split(theirs);
        let client = tokio::spawn(async move {
            let long = "x".repeat(LINE_MAX_BYTES);
            let lines = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"params\":{{\"a\":\"{long}\"}},\"id\":3}}\n\
                 {{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}}\n"
            );
            requests.write_all(lines.as_bytes()).await.expect("it is read");
            requests.shutdown().await.expect("it can be closed");
        });
        let message = transport.receive().await.expect("the second line");
        assert_eq!(message.into_request().expect("a request").1, RequestId::Number(4));
        assert!(transport.receive().await.is_none());
        client.await.expect("it does not panic");
        transport.close().await.expect("it can be closed");
        drop(transport);
        let mut answered = String::new();
        answers.read_to_string(&mut answered).await.expect("it is UTF-8");
        let answer: Value = serde_json::from_str(&answered).expect("one answer");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&3.into(), &(-32_600).into()));
    }
}
