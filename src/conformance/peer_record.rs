//! What has come in on a JSON-RPC connection: looked at, and waited for.

use std::time::Duration;

use super::{
    fault::Fault,
    peer::{JsonRpcPeer, Mark, ReceivedMessage},
};

impl JsonRpcPeer {
    /// Waits for a message that came in at `since` or later and that `wanted` takes.
    pub(super) async fn wait_for_message(
        &self,
        what: &str,
        since: Mark,
        wanted: impl Fn(&ReceivedMessage) -> bool,
    ) -> Result<ReceivedMessage, Fault> {
        let searching = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = self.received_since(since).into_iter().find(&wanted) {
                    return Ok(found);
                }
                if self.has_ended() {
                    return Err(Fault::Ended("a message was still expected"));
                }
                changed.await;
            }
        };
        match tokio::time::timeout(self.answer_timeout, searching).await {
            Ok(found) => found,
            Err(_) => Err(Fault::Silent { what: what.to_owned(), waited: self.answer_timeout }),
        }
    }

    /// Everything that came in at `since` or later.
    pub(super) fn received_since(&self, since: Mark) -> Vec<ReceivedMessage> {
        let state = self.state();
        state.received[since.0.saturating_sub(state.dropped).min(state.received.len())..].to_vec()
    }

    /// Everything that came in at `since` or later and before `until`.
    pub(super) fn received_between(&self, since: Mark, until: Mark) -> Vec<ReceivedMessage> {
        let mut received = self.received_since(since);
        received.truncate(until.0.saturating_sub(since.0));
        received
    }

    /// Now, in the record.
    pub(super) fn mark(&self) -> Mark {
        let state = self.state();
        Mark(state.received.len() + state.dropped)
    }

    /// Waits for a message that came after `seen`; false when the connection has ended without one.
    pub(super) async fn wait_past(&self, seen: Mark) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.mark().0 > seen.0 {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            changed.await;
        }
    }

    /// Waits until the other side has ended the connection.
    pub(super) async fn wait_for_end(&self, timeout: Duration) -> bool {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.has_ended() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(timeout, waiting).await.is_ok()
    }
}
