//! Response bodies, counted against their user's budget until the transport has sent or discarded their bytes.
//!
//! When the budget is used up, a stream waits and a unary call is refused, before it is made if it changes nothing. The
//! last response may exceed the budget, so that a caller who reads what it asked for can get any response.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::futures::OwnedNotified;
use tonic::{Status, body::Body};

use super::shares::{CallSlot, UnsentResponses};

/// A whole answer up to this size is never refused. The number of calls bounds these.
const SMALL_RESPONSE_BYTES: usize = 4 << 10;

/// An answer's body, with its call's place, which it holds to its end.
pub(super) struct CountedResponse {
    body: Body,
    /// The frame of a response that comes whole.
    first: Option<Frame<Bytes>>,
    responses: Arc<UnsentResponses>,
    /// Whether its next piece waits for room: that of a stream does.
    has_backpressure: bool,
    /// While there is no room.
    room_notified: Option<Pin<Box<OwnedNotified>>>,
    _slot: CallSlot,
}

impl CountedResponse {
    /// The response of a stream: made as its caller takes it.
    pub(super) fn streaming(body: Body, responses: Arc<UnsentResponses>, call: CallSlot) -> Self {
        Self { body, first: None, responses, has_backpressure: true, room_notified: None, _slot: call }
    }

    /// The response of a call with one, which is made now. `None`: there is no room for it.
    pub(super) async fn unary(mut body: Body, answers: Arc<UnsentResponses>, call: CallSlot) -> Option<Self> {
        let had_room = answers.has_room();
        // It is there; should it not be, it comes as a stream does.
        let made = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await;
        let mut answer = Self::streaming(body, answers, call);
        if let Poll::Ready(Some(Ok(frame))) = made {
            if !had_room && frame.data_ref().is_some_and(|data| data.len() > SMALL_RESPONSE_BYTES) {
                return None;
            }
            answer.first = Some(answer.count(frame));
            // Nothing but trailers follows.
            answer.has_backpressure = false;
        } else if let Poll::Ready(Some(Err(status))) = made {
            answer.body = Body::new(FailedBody(Some(status)));
        }
        Some(answer)
    }

    fn count(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.map_data(|data| self.responses.count(data))
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut has_waited = false;
        loop {
            if let Some(waiting) = &mut self.room_notified {
                ready!(waiting.as_mut().poll(context));
                self.room_notified = None;
                has_waited = true;
            }
            if self.responses.has_room() {
                return Poll::Ready(has_waited);
            }
            let mut waiting = Box::pin(self.responses.room().notified_owned());
            waiting.as_mut().enable();
            // Bytes that were given back before this one waited have woken nobody.
            if self.responses.has_room() {
                return Poll::Ready(true);
            }
            self.room_notified = Some(waiting);
        }
    }
}

impl hyper::body::Body for CountedResponse {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let has_waited = self.has_backpressure && ready!(self.poll_room(context));
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let counted = polled.map(|next| next.map(|frame| frame.map(|frame| self.count(frame))));
        // One that has waited was woken alone: it wakes the next, as long as there is room.
        if has_waited && self.responses.has_room() {
            self.responses.room().notify_one();
        }
        counted
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body that ends with an error.
struct FailedBody(Option<Status>);

impl hyper::body::Body for FailedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    fn body_of(size: usize) -> Body {
        let whole = Full::new(Bytes::from(vec![7; size]));
        Body::new(whole.map_err(|never: Infallible| -> Status { match never {} }))
    }

    #[tokio::test]
    async fn what_is_not_taken_keeps_further_answers_out_until_it_is() {
        let answers = UnsentResponses::new(10_000);
        let mut first = CountedResponse::unary(body_of(50_000), answers.clone(), CallSlot::for_test())
            .await
            .expect("there was room");
        assert!(!answers.has_room());
        assert!(
            CountedResponse::unary(body_of(5_000), answers.clone(), CallSlot::for_test()).await.is_none()
        );
        let small = CountedResponse::unary(body_of(4_000), answers.clone(), CallSlot::for_test()).await;
        let small = small.expect("it is small").collect().await.expect("its end waits for no room");
        assert_eq!(small.to_bytes().len(), 4_000);

        let frames = futures_util::stream::iter(
            (0..3).map(|_| Ok::<_, Status>(Frame::data(Bytes::from_static(b"abc")))),
        );
        let streamed = Body::new(StreamBody::new(frames));
        let mut streamed = CountedResponse::streaming(streamed, answers.clone(), CallSlot::for_test());
        let waits =
            poll_fn(|context| Poll::Ready(Pin::new(&mut streamed).poll_frame(context).is_pending())).await;
        assert!(waits, "there is no room");

        let data =
            first.frame().await.expect("it has a frame").expect("of data").into_data().expect("of data");
        assert_eq!(data.len(), 50_000);
        // Parts of it are still on their way.
        let part = data.slice(10..20);
        drop(data);
        assert!(!answers.has_room());
        drop(part);
        assert!(answers.has_room());
        assert_eq!(streamed.collect().await.expect("it goes on").to_bytes(), &b"abcabcabc"[..]);
        assert_eq!(answers.held(), 0, "all was given back");
    }
}
