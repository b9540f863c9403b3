//! Calls, as they come in: a place for each in its user's share, and for the bytes of its request while they arrive.
//!
//! A request's length counts when it is claimed, before memory is taken for it. A request that is too slow, or comes in
//! crumbs, is refused. Reads no message.

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

use super::{Admission, CallRefusal, Share, take_one};
use crate::{grpc::errors, session::Peer, tally::Word};

/// A request must have arrived in this time.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Pieces that a request may come in, whatever their size.
const PIECES_FREE: u64 = 1_024;
/// Beyond these, each must bring this many bytes, on average.
const PIECE_MIN_BYTES: u64 = 64;
/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Puts [`Calls`] in front of the services.
#[derive(Debug, Clone)]
pub(in super::super) struct CallLayer(pub(in super::super) Arc<Admission>);

impl<S> Layer<S> for CallLayer {
    type Service = Calls<S>;

    fn layer(&self, services: S) -> Calls<S> {
        Calls { admission: self.0.clone(), services }
    }
}

/// The services, behind the bounds.
#[derive(Debug, Clone)]
pub(in super::super) struct Calls<S> {
    admission: Arc<Admission>,
    services: S,
}

impl<S> Service<Request<Body>> for Calls<S>
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
        if !take_one(&share.calls, share.calls_max) {
            self.admission.counters.calls.one(CallRefusal::Calls);
            let refused = status(CallRefusal::Calls, &share);
            return Box::pin(async move { Ok(refused.into_http()) });
        }
        let call = CallPlace(share.clone());
        let held = Arc::new(Held { share, bytes: AtomicU64::new(0) });
        let counted = |body| CountedBody::new(body, held.clone(), self.admission.clone());
        let answered = self.services.call(request.map(|body| Body::new(counted(body))));
        Box::pin(async move {
            let answer = answered.await;
            // What the call keeps of its request from here on is counted where it is kept.
            drop(held);
            Ok(answer?.map(|body| Body::new(Answer { body, _call: call })))
        })
    }
}

/// The place of a call in its user's share.
#[derive(Debug)]
struct CallPlace(Arc<Share>);

impl Drop for CallPlace {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, AcqRel);
    }
}

/// Bytes of a request that are counted against its user.
#[derive(Debug)]
struct Held {
    share: Arc<Share>,
    bytes: AtomicU64,
}

impl Held {
    fn take(&self, more: u64) -> bool {
        let is_held = self.share.hold_bytes(more);
        if is_held {
            self.bytes.fetch_add(more, AcqRel);
        }
        is_held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.give_bytes_back(self.bytes.load(Acquire));
    }
}

/// An answer, with the call's place, which it holds to its end.
struct Answer {
    body: Body,
    _call: CallPlace,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request's body, counted as it arrives.
struct CountedBody {
    body: Body,
    held: Arc<Held>,
    admission: Arc<Admission>,
    prefix: Vec<u8>,
    /// Of what was counted ahead, what has not arrived.
    claimed: u64,
    arrived: u64,
    pieces: u64,
    /// From the first time on that it had to be waited for.
    limit: Option<Pin<Box<Sleep>>>,
}

impl CountedBody {
    fn new(body: Body, held: Arc<Held>, admission: Arc<Admission>) -> Self {
        let prefix = Vec::with_capacity(PREFIX_BYTES);
        Self { body, held, admission, prefix, claimed: 0, arrived: 0, pieces: 0, limit: None }
    }

    fn count(&mut self, data: &Bytes) -> Result<(), CallRefusal> {
        self.pieces += 1;
        self.arrived += data.len() as u64;
        if self.pieces > PIECES_FREE + self.arrived / PIECE_MIN_BYTES {
            return Err(CallRefusal::Pieces);
        }
        let missing = PREFIX_BYTES - self.prefix.len();
        let (head, rest) = data.split_at(missing.min(data.len()));
        self.prefix.extend_from_slice(head);
        if missing > 0 && self.prefix.len() == PREFIX_BYTES {
            self.claimed = u64::from((&self.prefix[1..]).get_u32());
            // A length beyond what any request may have is refused by the decoder before it takes memory.
            let most = super::super::REQUEST_MAX_BYTES as u64;
            if self.claimed <= most && !self.held.take(self.claimed) {
                return Err(CallRefusal::RequestBytes);
            }
        }
        let beyond = (rest.len() as u64).saturating_sub(self.claimed);
        self.claimed = self.claimed.saturating_sub(rest.len() as u64);
        if beyond > 0 && !self.held.take(beyond) {
            return Err(CallRefusal::RequestBytes);
        }
        Ok(())
    }

    fn refuse(&self, refusal: CallRefusal) -> Status {
        self.admission.counters.calls.one(refusal);
        status(refusal, &self.held.share)
    }
}

fn status(refusal: CallRefusal, share: &Share) -> Status {
    let (cap, message) = match refusal {
        CallRefusal::Slow => return errors::request_too_slow(BODY_LIMIT.as_secs()),
        CallRefusal::Calls => {
            let cap = share.calls_max as u64;
            (cap, format!("{cap} calls of this user are under way, the most there may be"))
        }
        CallRefusal::RequestBytes => {
            let cap = share.request_bytes_max;
            (cap, format!("this user's requests that are under way may have {cap} bytes together"))
        }
        CallRefusal::Pieces => {
            let message =
                format!("pieces of a request beyond {PIECES_FREE} must have {PIECE_MIN_BYTES} bytes");
            (PIECES_FREE, message)
        }
    };
    errors::share_reached(refusal.word(), cap, message)
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
            Poll::Pending => {
                let limit = this.limit.get_or_insert_with(|| Box::pin(sleep(BODY_LIMIT)));
                match limit.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => Poll::Ready(Some(Err(this.refuse(CallRefusal::Slow)))),
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
