//! The connections that are open: when another policy is in force each is asked about, and can be closed for a reason.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Context,
};

use futures_util::task::AtomicWaker;

use crate::proto::net::Attempt;

/// One connection that is open.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) attempt: Attempt,
    pub(super) connection_id: String,
    /// That was dialled; of a unix socket there is none.
    pub(super) address: Option<IpAddr>,
    reason: OnceLock<String>,
    waker: AtomicWaker,
}

impl OpenConnection {
    /// Ends it. Both sides see that as its end.
    pub(super) fn close(&self, reason: String) {
        // It is closed once.
        let _ = self.reason.set(reason);
        self.waker.wake();
    }

    /// Why it was closed. Wakes when it is.
    pub(super) fn poll_closed(&self, context: &Context<'_>) -> Option<&str> {
        self.waker.register(context.waker());
        self.reason.get().map(String::as_str)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    by_number: Mutex<BTreeMap<u64, Arc<OpenConnection>>>,
    last_number: AtomicU64,
}

/// The place of one connection among them, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenPlace {
    all: Arc<OpenConnections>,
    number: u64,
    pub(super) connection: Arc<OpenConnection>,
}

impl OpenConnections {
    /// Adds one.
    pub(super) fn add(
        self: &Arc<Self>,
        attempt: Attempt,
        connection_id: String,
        address: Option<IpAddr>,
    ) -> OpenPlace {
        let connection = Arc::new(OpenConnection {
            attempt,
            connection_id,
            address,
            reason: OnceLock::new(),
            waker: AtomicWaker::new(),
        });
        let number = self.last_number.fetch_add(1, Relaxed);
        self.lock().insert(number, connection.clone());
        OpenPlace { all: self.clone(), number, connection }
    }

    /// Those that are open now.
    pub(super) fn list(&self) -> Vec<Arc<OpenConnection>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<OpenConnection>>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
