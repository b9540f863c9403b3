//! Waiting for events, with a deadline. Never a sleep for luck: every wait names what it waits for.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How long anything may take on a loaded machine before a test gives up. No timing is asserted by it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Looks again and again until `seen` answers, and fails with `what` at the deadline.
pub async fn eventually<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = seen() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Awaits `future`, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(answer) => answer,
        Err(_) => panic!("waited {DEADLINE:?} in vain for: {what}"),
    }
}
