//! Counts callers that wait for a terminal, so that a drain can wait for them.
//!
//! Waits, streams of output and runs are counted. Watches are not, because they never end.

use std::sync::Arc;

use tokio::sync::watch;

/// How many there are.
#[derive(Debug, Clone)]
pub struct Waiters(Arc<watch::Sender<usize>>);

impl Default for Waiters {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Waiters {
    /// One more, for as long as the answer lives.
    pub fn register(&self) -> WaiterGuard {
        self.0.send_modify(|count| *count += 1);
        WaiterGuard(self.0.clone())
    }

    /// Waits until there is nobody.
    pub async fn wait_until_none(&self) {
        // The sender is part of `self`: it cannot be gone.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// One caller who waits.
#[derive(Debug)]
pub struct WaiterGuard(Arc<watch::Sender<usize>>);

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_there_when_the_last_has_gone() {
        let waiters = Waiters::default();
        waiters.wait_until_none().await;
        let (first, second) = (waiters.register(), waiters.register());
        drop(first);
        let waiting = tokio::spawn({
            let waiters = waiters.clone();
            async move { waiters.wait_until_none().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        waiting.await.unwrap();
    }
}
