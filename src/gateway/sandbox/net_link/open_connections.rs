//! The connections of a sandbox that were allowed and have not ended: its net process is kept until it has reported their ends.

use std::collections::HashSet;

use tokio::sync::watch;

/// By their ids. One net process has as many as there are places for connections and requests.
#[derive(Debug)]
pub(crate) struct OpenConnections(watch::Sender<HashSet<String>>);

impl Default for OpenConnections {
    fn default() -> Self {
        Self(watch::Sender::new(HashSet::new()))
    }
}

impl OpenConnections {
    pub(super) fn allowed(&self, id: &str) {
        self.0.send_if_modified(|open| open.insert(id.to_owned()));
    }

    pub(super) fn ended(&self, id: &str) {
        self.0.send_if_modified(|open| open.remove(id));
    }

    /// The process that carried them is gone.
    pub(super) fn clear(&self) {
        self.0.send_modify(HashSet::clear);
    }

    /// Resolves when none is open.
    pub(crate) async fn wait_none(&self) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(HashSet::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn the_last_end_is_waited_for() {
        let open = OpenConnections::default();
        open.wait_none().await;
        open.allowed("a");
        open.allowed("b");
        open.ended("a");
        let mut none = pin!(open.wait_none());
        assert!(futures_util::poll!(none.as_mut()).is_pending());
        open.ended("b");
        none.await;
        open.allowed("c");
        open.clear();
        open.wait_none().await;
    }
}
