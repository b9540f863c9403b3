//! Forwarded connections: bytes of a caller to a port inside of a sandbox, and back. One call is one connection.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::unfold;
use prost::bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::{abort::AbortOnDrop, errors, request};
use crate::{
    proto::v1::{
        ForwardConnected, ForwardRequest, ForwardResponse, ForwardStart, forward_request::Message,
        forward_response::Event,
    },
    terminal::{Forwarded, Traffic},
};

/// One message to the caller has at most so much.
const READ_BYTES: usize = 64 << 10;

/// The first message of a caller, and the port in it.
pub(super) async fn start(requests: &mut Streaming<ForwardRequest>) -> Result<(ForwardStart, u16), Status> {
    let first = requests.message().await?.and_then(|request| request.message);
    let Some(Message::Start(start)) = first else {
        return Err(errors::bad_field(request::attach_without_start()));
    };
    match u16::try_from(start.port) {
        Ok(port @ 1..) => Ok((start, port)),
        Ok(0) | Err(_) => Err(errors::bad_field(request::forward_port())),
    }
}

/// Carries one connection. It ends when both sides have nothing more to say, or when the call does.
pub(super) fn carry(
    forwarded: Forwarded,
    requests: Streaming<ForwardRequest>,
) -> impl Stream<Item = Result<ForwardResponse, Status>> + Send {
    let Forwarded { stream, traffic } = forwarded;
    let (read, write) = stream.into_split();
    let traffic = Arc::new(Mutex::new(traffic));
    let sending = tokio::spawn(send(requests, write, traffic.clone()));
    let connected = ForwardResponse { event: Some(Event::Connected(ForwardConnected {})) };
    let carried = Carried { read, traffic, _sending: AbortOnDrop(sending.abort_handle()) };
    let data = unfold(Some(carried), |carried| async move {
        let mut carried = carried?;
        match carried.next().await {
            Ok(Some(data)) => Some((Ok(ForwardResponse { event: Some(Event::Data(data)) }), Some(carried))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    });
    futures_util::StreamExt::chain(tokio_stream::once(Ok(connected)), data)
}

struct Carried {
    read: OwnedReadHalf,
    traffic: Arc<Mutex<Traffic>>,
    _sending: AbortOnDrop,
}

impl Carried {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        match self.read.read_buf(&mut buffer).await {
            Ok(0) => Ok(None),
            Ok(count) => {
                self.traffic.lock().unwrap_or_else(PoisonError::into_inner).received(count);
                Ok(Some(buffer.freeze()))
            }
            // The program inside has broken the connection off.
            Err(error) => Err(Status::aborted(format!("the connection has ended: {error}"))),
        }
    }
}

/// Until the caller has nothing more to say, or the program inside takes nothing more.
async fn send(
    mut requests: Streaming<ForwardRequest>,
    mut write: OwnedWriteHalf,
    traffic: Arc<Mutex<Traffic>>,
) {
    while let Ok(Some(request)) = requests.message().await {
        let Some(Message::Data(data)) = request.message else { break };
        if write.write_all(&data).await.is_err() {
            break;
        }
        traffic.lock().unwrap_or_else(PoisonError::into_inner).sent(data.len());
    }
    let _ = write.shutdown().await;
}
