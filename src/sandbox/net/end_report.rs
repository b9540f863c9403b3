//! Reports the end of what was allowed to the gateway, once, whatever becomes of it.
//!
//! The gateway writes that a connection is allowed before anything is dialled. So the report is made when the verdict comes, also
//! for a program that has gone meanwhile: each such record gets its end, unless the gateway or this process dies.

use std::time::Instant;

use tokio::sync::mpsc;

use crate::proto::net::{Attempt, Ended, from_net::Message};

/// Reports the end when it is dropped.
#[derive(Debug)]
pub(super) struct EndReport {
    outgoing: mpsc::Sender<Message>,
    began: Instant,
    pub(super) ended: Ended,
}

impl EndReport {
    /// Makes the report of what was allowed just now: it has failed for this reason, until [`EndReport::begun`] says otherwise.
    pub(super) fn new(
        outgoing: mpsc::Sender<Message>,
        attempt: Attempt,
        connection_id: String,
        failure: &str,
    ) -> Self {
        let ended =
            Ended { attempt: Some(attempt), connection_id, failure: failure.to_owned(), ..Ended::default() };
        Self { outgoing, began: Instant::now(), ended }
    }

    /// A program uses what was allowed.
    pub(super) fn begun(&mut self) {
        self.ended.failure.clear();
    }

    pub(super) fn failed(&mut self, failure: &str) {
        failure.clone_into(&mut self.ended.failure);
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ended = Ended { duration_ms, ..std::mem::take(&mut self.ended) };
        // Nothing can wait here; there is room for the ends of all. See `MAX_QUEUED_MESSAGES` of `link`.
        let _ = self.outgoing.try_send(Message::Ended(ended));
    }
}
