//! Admits calls: each needs a slot in its user's share, and room for the bytes of its request and its response.
//!
//! The length of a request counts when it is announced, before memory is allocated for it. A request that is too slow, or arrives in too
//! many small pieces, is refused. This module reads no message, and a call may be refused before it is looked at.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::{
    Status,
    body::Body,
    codegen::http::{Request, Response},
};
use tower::{Layer, Service};

use super::{
    responses::CountedResponse,
    scheduler::{CallQueue, ScheduledCall},
    shares::{Admission, CallRefusal, CallSlot, UserShare},
};
use crate::{counters::Label, grpc::errors, session::Peer};

/// The largest request: one frame of the control protocol holds it, with room for what the gateway adds.
pub(in super::super) const REQUEST_MAX_BYTES: usize = 3 << 20;
/// A request must have arrived in this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pieces that a request may come in, whatever their size.
const PIECES_FREE: u64 = 1_024;
/// Beyond these, each must bring this many bytes, on average.
const PIECE_MIN_BYTES: u64 = 64;
/// A message of a caller who goes on sending.
const CONTINUOUS_MESSAGE_MAX_BYTES: u64 = (64 << 10) + 64;
/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Calls that are answered by a stream, by the last part of their path.
const STREAMING_CALLS: [&str; 12] = [
    "Terminals/Attach",
    "Terminals/Forward",
    "Terminals/RunLine",
    "StreamOutput",
    "Run",
    "WatchTerminals",
    "WatchApprovals",
    "WatchScreen",
    "Health/Watch",
    "QueryRecords",
    "FollowRecords",
    "Info",
];
/// Calls whose callers go on sending, for as long as they like.
const CONTINUOUS_CALLS: [&str; 2] = ["Terminals/Attach", "Terminals/Forward"];
/// Calls that end or hand over something, or wait: they are made whether or not there is room for what they answer.
const PRIORITY_CALLS: [&str; 11] = [
    "KillTerminal",
    "ReleaseTerminal",
    "SignalTerminal",
    "WriteInput",
    "WriteLineInput",
    "InterruptLine",
    "CloseSession",
    "WaitForExit",
    "ResolveApproval",
    "ReportBypass",
    "Health/Check",
];

/// How a call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseKind {
    /// Piece by piece.
    Streaming,
    /// At once, and the call has changed something when it is.
    Priority,
    /// At once.
    Unary,
}

impl ResponseKind {
    fn of(path: &str) -> Self {
        let is_one_of = |names: &[&str]| names.iter().any(|name| path.ends_with(name));
        if is_one_of(&STREAMING_CALLS) {
            Self::Streaming
        } else if is_one_of(&PRIORITY_CALLS) {
            Self::Priority
        } else {
            Self::Unary
        }
    }
}

/// Puts [`AdmissionService`] in front of the services.
#[derive(Debug, Clone)]
pub(in super::super) struct AdmissionLayer(pub(in super::super) Arc<Admission>);

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, services: S) -> AdmissionService<S> {
        AdmissionService { admission: self.0.clone(), services }
    }
}

/// The services, behind the bounds.
#[derive(Debug, Clone)]
pub(in super::super) struct AdmissionService<S> {
    admission: Arc<Admission>,
    services: S,
}

impl<S> Service<Request<Body>> for AdmissionService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.services.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Without a caller the services refuse it themselves.
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Box::pin(self.services.call(request));
        };
        let share = self.admission.share(peer.principal);
        let Some(call) = CallSlot::take(&share) else {
            let refused = refuse(&self.admission, CallRefusal::Calls, &share);
            return Box::pin(async move { Ok(refused) });
        };
        let kind = ResponseKind::of(request.uri().path());
        let held = Arc::new(HeldRequestBytes { share: share.clone(), bytes: AtomicU64::new(0) });
        let is_continuous = CONTINUOUS_CALLS.iter().any(|name| request.uri().path().ends_with(name));
        let called = self.services.call(request.map(|body| {
            let counted = CountedBody::new(body, held.clone(), self.admission.clone());
            Body::new(if is_continuous { counted.continuous() } else { counted })
        }));
        let admission = self.admission.clone();
        let (responses, scheduler) = (share.responses.clone(), share.scheduler.clone());
        let queue = if kind == ResponseKind::Priority { CallQueue::Priority } else { CallQueue::Normal };
        let respond = async move {
            // Looked at in its turn: those before it may have taken what there was.
            if kind == ResponseKind::Unary && !responses.has_room() {
                return Ok(refuse(&admission, CallRefusal::ResponseBytes, &share));
            }
            let (parts, body) = match called.await {
                Ok(answer) => answer.into_parts(),
                Err(error) => return Err(error),
            };
            // What the call keeps of its request from here on is counted where it is kept.
            drop(held);
            if kind == ResponseKind::Streaming {
                return Ok(Response::from_parts(
                    parts,
                    Body::new(CountedResponse::streaming(body, responses, call)),
                ));
            }
            Ok(match CountedResponse::unary(body, responses, call).await {
                Some(answer) => Response::from_parts(parts, Body::new(answer)),
                None => refuse(&admission, CallRefusal::ResponseBytes, &share),
            })
        };
        Box::pin(ScheduledCall::new(respond, scheduler, queue))
    }
}

fn refuse(admission: &Admission, refusal: CallRefusal, share: &UserShare) -> Response<Body> {
    admission.counters.calls.inc(refusal);
    status(refusal, share).into_http()
}

/// Bytes of a request that are counted against its user.
#[derive(Debug)]
struct HeldRequestBytes {
    share: Arc<UserShare>,
    bytes: AtomicU64,
}

impl HeldRequestBytes {
    fn try_add(&self, more: u64) -> bool {
        let is_held = self.share.reserve_request_bytes(more);
        if is_held {
            self.bytes.fetch_add(more, AcqRel);
        }
        is_held
    }
}

impl Drop for HeldRequestBytes {
    fn drop(&mut self) {
        self.share.release_request_bytes(self.bytes.load(Acquire));
    }
}

/// A request's body, counted as it arrives.
struct CountedBody {
    body: Body,
    held: Arc<HeldRequestBytes>,
    admission: Arc<Admission>,
    prefix: Vec<u8>,
    /// How much of what was counted ahead has not arrived.
    announced: u64,
    arrived: u64,
    chunks: u64,
    /// Messages follow one another: each may have this much, which is counted once.
    message_max: Option<u64>,
    /// From the first time on that it had to be waited for.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl CountedBody {
    fn new(body: Body, held: Arc<HeldRequestBytes>, admission: Arc<Admission>) -> Self {
        let prefix = Vec::with_capacity(PREFIX_BYTES);
        Self {
            body,
            held,
            admission,
            prefix,
            announced: 0,
            arrived: 0,
            chunks: 0,
            message_max: None,
            timeout: None,
        }
    }

    /// The limits of a caller who goes on sending. The first message must arrive in time. One of the others is held at a time: the next
    /// is taken when the terminal has taken it.
    fn continuous(self) -> Self {
        Self { message_max: Some(CONTINUOUS_MESSAGE_MAX_BYTES), ..self }
    }

    /// Follows the bounds of the messages, each of which is a prefix and as many bytes as that says.
    fn count_continuous(&mut self, data: &Bytes, message_max: u64) -> Result<(), BodyRefusal> {
        if self.chunks == 0 && !self.held.try_add(message_max) {
            return Err(CallRefusal::RequestBytes.into());
        }
        self.chunks += 1;
        let mut rest = &data[..];
        while !rest.is_empty() {
            let missing = PREFIX_BYTES - self.prefix.len();
            let (head, tail) = rest.split_at(missing.min(rest.len()));
            self.prefix.extend_from_slice(head);
            if missing > 0 && self.prefix.len() == PREFIX_BYTES {
                self.announced = u64::from((&self.prefix[1..]).get_u32());
                if self.announced > message_max {
                    return Err(BodyRefusal::MessageTooLong { bytes: self.announced, max: message_max });
                }
            }
            let taken = tail.len().min(usize::try_from(self.announced).unwrap_or(usize::MAX));
            self.announced -= taken as u64;
            rest = &tail[taken..];
            if self.prefix.len() == PREFIX_BYTES && self.announced == 0 {
                self.prefix.clear();
                self.arrived += 1;
            }
        }
        Ok(())
    }

    fn count(&mut self, data: &Bytes) -> Result<(), BodyRefusal> {
        if let Some(message_max) = self.message_max {
            return self.count_continuous(data, message_max);
        }
        self.chunks += 1;
        self.arrived += data.len() as u64;
        if self.chunks > PIECES_FREE + self.arrived / PIECE_MIN_BYTES {
            return Err(CallRefusal::Pieces.into());
        }
        let missing = PREFIX_BYTES - self.prefix.len();
        let (head, rest) = data.split_at(missing.min(data.len()));
        self.prefix.extend_from_slice(head);
        if missing > 0 && self.prefix.len() == PREFIX_BYTES {
            self.announced = u64::from((&self.prefix[1..]).get_u32());
            // A length beyond what any request may have is refused by the decoder before it takes memory.
            let max = REQUEST_MAX_BYTES as u64;
            if self.announced <= max && !self.held.try_add(self.announced) {
                return Err(CallRefusal::RequestBytes.into());
            }
        }
        let excess = (rest.len() as u64).saturating_sub(self.announced);
        self.announced = self.announced.saturating_sub(rest.len() as u64);
        if excess > 0 && !self.held.try_add(excess) {
            return Err(CallRefusal::RequestBytes.into());
        }
        Ok(())
    }

    fn refuse(&self, refusal: BodyRefusal) -> Status {
        match refusal {
            BodyRefusal::Share(refusal) => {
                self.admission.counters.calls.inc(refusal);
                status(refusal, &self.held.share)
            }
            BodyRefusal::MessageTooLong { bytes, max } => {
                self.admission.counters.calls.inc(CallRefusal::RequestBytes);
                message_too_long(bytes, max)
            }
        }
    }
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            // The first message of a caller who goes on sending has arrived.
            Poll::Pending if this.message_max.is_some() && this.arrived > 0 => Poll::Pending,
            Poll::Pending => {
                let limit = this.timeout.get_or_insert_with(|| Box::pin(sleep(BODY_TIMEOUT)));
                match limit.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => Poll::Ready(Some(Err(this.refuse(CallRefusal::Slow.into())))),
                }
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && let Err(refusal) = this.count(data)
                {
                    return Poll::Ready(Some(Err(this.refuse(refusal))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a request's body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyRefusal {
    /// For what its user may have.
    Share(CallRefusal),
    /// One of the messages that follow one another has more bytes than one may have.
    MessageTooLong { bytes: u64, max: u64 },
}

impl From<CallRefusal> for BodyRefusal {
    fn from(refusal: CallRefusal) -> Self {
        Self::Share(refusal)
    }
}

/// A message of a caller who goes on sending.
fn message_too_long(bytes: u64, max: u64) -> Status {
    let message = format!(
        "a message of a call that goes on may have {max} bytes with all its fields, and this one has {bytes}: send it in \
         pieces"
    );
    errors::share_reached("message_bytes", max, message)
}

/// What a caller is told.
fn status(refusal: CallRefusal, share: &UserShare) -> Status {
    let (cap, message) = match refusal {
        CallRefusal::Slow => return errors::request_too_slow(BODY_TIMEOUT.as_secs()),
        CallRefusal::Calls => {
            let cap = share.calls_max as u64;
            (cap, format!("{cap} calls of this user are under way, the most there may be"))
        }
        CallRefusal::RequestBytes => {
            let cap = share.request_bytes_max;
            (cap, format!("this user's requests that are under way may have {cap} bytes together"))
        }
        CallRefusal::ResponseBytes => {
            let cap = share.responses.max();
            (cap, format!("this user's callers have not taken {cap} bytes of answers, the most there may be"))
        }
        CallRefusal::Pieces => {
            let message =
                format!("pieces of a request beyond {PIECES_FREE} must have {PIECE_MIN_BYTES} bytes");
            (PIECES_FREE, message)
        }
    };
    errors::share_reached(refusal.label(), cap, message)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn which_calls_are_answered_by_streams_is_what_the_api_says() {
        let mut seen = 0;
        for described in [crate::proto::v1::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET] {
            let files = FileDescriptorSet::decode(described).unwrap();
            for (file, service) in
                files.file.iter().flat_map(|file| file.service.iter().map(move |one| (file, one)))
            {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let is_stream = ResponseKind::of(&path) == ResponseKind::Streaming;
                    assert_eq!(is_stream, method.server_streaming(), "{path}");
                    let goes_on = CONTINUOUS_CALLS.iter().any(|name| path.ends_with(name));
                    assert_eq!(goes_on, method.client_streaming(), "{path}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 20, "{seen} calls are described");
        let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        assert_eq!(ResponseKind::of(reflection), ResponseKind::Streaming);
    }

    #[test]
    fn a_message_that_is_too_long_is_told_its_length_and_the_bound() {
        let status = message_too_long(CONTINUOUS_MESSAGE_MAX_BYTES + 1, CONTINUOUS_MESSAGE_MAX_BYTES);
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(status.message().contains("65600 bytes") && status.message().contains("65601"), "{status}");
    }
}
