//! How many bytes of responses one user's callers have not taken yet.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

use bytes::Bytes;
use tokio::sync::Notify;

/// What one user's callers have not taken.
#[derive(Debug)]
pub(super) struct UnsentResponses {
    held: AtomicU64,
    max: u64,
    room: Arc<Notify>,
}

impl UnsentResponses {
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { held: AtomicU64::new(0), max, room: Arc::default() })
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn has_room(&self) -> bool {
        self.held.load(Acquire) < self.max
    }

    /// Notified when there may be room again.
    pub(super) fn room(&self) -> Arc<Notify> {
        self.room.clone()
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.held.load(Acquire)
    }

    /// Counts bytes for as long as they exist, in whatever parts they are sent.
    pub(super) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        self.held.fetch_add(bytes.len() as u64, AcqRel);
        Bytes::from_owner(CountedBytes { bytes, responses: self.clone() })
    }
}

/// Bytes on their way, which are counted until this is dropped.
struct CountedBytes {
    bytes: Bytes,
    responses: Arc<UnsentResponses>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.responses.held.fetch_sub(self.bytes.len() as u64, AcqRel);
        if self.responses.has_room() {
            self.responses.room.notify_one();
        }
    }
}
