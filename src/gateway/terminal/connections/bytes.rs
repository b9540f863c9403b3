//! The bytes that the connections of a session were allowed, where its profile bounds them.
//!
//! Net processes are allowed some at a time, and carry none that were not allowed. What one of them had left when it died is spent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    session::{Session, SessionId},
    wire::net::BYTES_AT_ONCE,
};

/// The bytes of all sessions.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectBytes(Mutex<HashMap<SessionId, Allowed>>);

#[derive(Debug)]
struct Allowed {
    session: Weak<Session>,
    bytes: u64,
}

impl ConnectBytes {
    /// Allows some more of at most so many. `None`: all were allowed.
    pub(in crate::terminal) fn allow(&self, session: &Arc<Session>, max_bytes: u64) -> Option<u64> {
        let mut all = self.lock();
        // There are no more than sessions.
        all.retain(|_, allowed| allowed.session.strong_count() > 0);
        let allowed =
            all.entry(session.id).or_insert_with(|| Allowed { session: Arc::downgrade(session), bytes: 0 });
        let more = max_bytes.saturating_sub(allowed.bytes).min(BYTES_AT_ONCE);
        allowed.bytes += more;
        (more > 0).then_some(more)
    }

    /// Whether a session may carry more than what one of its sandboxes has left.
    pub(in crate::terminal) fn has_more(&self, session: SessionId, max_bytes: u64, left: u64) -> bool {
        left > 0 || self.lock().get(&session).is_none_or(|allowed| allowed.bytes < max_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Allowed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
