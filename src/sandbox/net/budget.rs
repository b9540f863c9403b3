//! The bytes that the connections of the sandbox may still carry, where the profile bounds them for a session.
//!
//! A connection reserves before it reads or writes, so that none is carried that was not allowed. More are asked for before they run out.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use tokio::sync::Notify;

use crate::wire::net::BYTES_AT_ONCE;

/// With so few left more are asked for.
const LOW_BYTES: u64 = BYTES_AT_ONCE / 4;

/// Why a connection ends that may carry no more.
pub(super) const EXHAUSTED: &str = "the session has carried all bytes that it may";

/// What all connections of the sandbox share.
#[derive(Debug, Default)]
pub(super) struct Budget {
    state: Mutex<State>,
    is_exhausted: AtomicBool,
    low: Notify,
}

#[derive(Debug, Default)]
struct State {
    left: u64,
    /// Connections that wait for more, of which there are no more than connections.
    waiting: Vec<Waker>,
}

impl Budget {
    /// Bytes that were allowed and are not used.
    pub(super) fn left(&self) -> u64 {
        self.lock().left
    }

    /// Reserves at most so many bytes, and at least one. Waits while more are asked for.
    pub(super) fn poll_reserve(&self, wanted: usize, context: &Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let reserved = state.left.min(wanted as u64);
        state.left -= reserved;
        if state.left < LOW_BYTES && !self.is_exhausted.load(SeqCst) {
            self.low.notify_one();
        }
        if reserved > 0 || wanted == 0 {
            return Poll::Ready(Ok(usize::try_from(reserved).unwrap_or(wanted)));
        }
        if self.is_exhausted.load(SeqCst) {
            return Poll::Ready(Err(io::Error::other(EXHAUSTED)));
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Gives back what was reserved and not carried.
    pub(super) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.add(bytes as u64);
        }
    }

    /// Resolves when more should be asked for.
    pub(super) async fn wait_low(&self) {
        self.low.notified().await;
    }

    /// More are allowed.
    pub(super) fn add(&self, bytes: u64) {
        let mut state = self.lock();
        state.left = state.left.saturating_add(bytes);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// No more are allowed, until the gateway allows another connection.
    pub(super) fn exhaust(&self) {
        self.is_exhausted.store(true, SeqCst);
        self.add(0);
    }

    /// The gateway has allowed another connection: it may have more.
    pub(super) fn reopen(&self) {
        self.is_exhausted.store(false, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_is_allowed_and_what_is_not_carried_comes_back() {
        let budget = Budget::default();
        let context = Context::from_waker(Waker::noop());
        assert!(budget.poll_reserve(10, &context).is_pending());
        budget.add(15);
        assert!(matches!(budget.poll_reserve(10, &context), Poll::Ready(Ok(10))));
        budget.give_back(4);
        assert!(matches!(budget.poll_reserve(10, &context), Poll::Ready(Ok(9))));
        budget.exhaust();
        assert!(matches!(budget.poll_reserve(1, &context), Poll::Ready(Err(_))));
        budget.reopen();
        assert!(budget.poll_reserve(1, &context).is_pending());
        assert_eq!(budget.left(), 0);
    }
}
