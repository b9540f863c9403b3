//! The share of each user: how many connections, calls and bytes it holds, and how many it may hold; and how many bytes of responses its
//! callers have not taken yet.
//!
//! A slot of a share is given back when it is dropped.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire},
        },
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::scheduler::{CallScheduler, TokenBucket};
use crate::{
    counters::{Counter, CounterVec, labels},
    session::Principal,
};

/// Connections of one user, at most; fewer where the gateway may open few files.
const CONNECTIONS: usize = 512;
/// Connections of one user, with two descriptors each, take at most a quarter of those that the gateway may have; a third descriptor of
/// each is what its commands read.
const CONNECTIONS_DIVISOR: usize = 8;
/// While all connections together take half of those descriptors, a user has no more than this.
const CONNECTIONS_CROWDED: usize = 16;
/// Connections that one user may make in a second, and at once.
const CONNECTS_PER_S: f64 = 500.0;
const CONNECTS_BURST: f64 = 1_000.0;
/// Calls of one user that may be under way, waits and streams included.
const CALLS: usize = 8_192;
/// Bytes of one user's requests, as claimed or as arrived, until their calls are answered.
const REQUEST_BYTES: u64 = 32 << 20;
/// Bytes of answers that callers of one user have not taken.
const RESPONSE_BYTES: u64 = 32 << 20;
/// Seconds of a processor that one user's calls, and the HTTP/2 of its connections, may take in a second, and at once. There are two
/// workers.
const CPU_PER_S: f64 = 0.5;
const CPU_BURST: f64 = 0.02;
/// Units that the HTTP/2 frames of one user may cost in a second, and at once. `connection` has the costs.
const FRAME_UNITS_PER_S: f64 = 100_000.0;
const FRAME_UNITS_BURST: f64 = 200_000.0;
/// Root and the gateway's own user have so many times as much.
const TRUSTED_MULTIPLIER: u32 = 4;
/// Users that are remembered although they hold nothing; beyond that they are forgotten.
const IDLE_USERS: usize = 1_024;

labels! {
    /// A connection that was closed, or an accept that was put off.
    pub enum ConnectionRefusal {
        /// The user has as many connections as it may.
        Share = "share",
        /// The user connects too often.
        Rate = "rate",
        /// The gateway has no descriptor left.
        Descriptors = "descriptors",
        /// The kernel does not report whose it is.
        Unknown = "unknown",
        /// No HTTP/2 came in time.
        Handshake = "handshake",
    }
}

labels! {
    /// A call that was refused before it was looked at.
    pub enum CallRefusal {
        /// The user has as many calls under way as it may.
        Calls = "calls",
        /// The user's requests under way have as many bytes as they may.
        RequestBytes = "request_bytes",
        /// The user's callers have not taken as many bytes of answers as there may be.
        ResponseBytes = "answer_bytes",
        /// The request came in too small pieces.
        Pieces = "pieces",
        /// The request did not arrive in time.
        Slow = "slow",
    }
}

/// What was refused, for the metrics.
#[derive(Debug, Default)]
pub(in super::super) struct Counters {
    pub(in super::super) connections: CounterVec<ConnectionRefusal>,
    pub(in super::super) calls: CounterVec<CallRefusal>,
    /// Times that a connection had to wait as its user's frames came too fast.
    pub(in super::super) throttled: Counter,
}

/// All users' shares.
#[derive(Debug)]
pub(in super::super) struct Admission {
    own_uid: u32,
    connections_max: usize,
    shares: Mutex<HashMap<Principal, Arc<UserShare>>>,
    open: AtomicUsize,
    pub(in super::super) counters: Counters,
}

impl Admission {
    /// Nobody holds anything. `descriptors` is how many this process may have open.
    pub(in super::super) fn new(own_uid: u32, descriptors: u64) -> Arc<Self> {
        let connections_max = usize::try_from(descriptors).unwrap_or(usize::MAX) / CONNECTIONS_DIVISOR;
        Arc::new(Self {
            own_uid,
            connections_max: connections_max.max(1),
            shares: Mutex::default(),
            open: AtomicUsize::new(0),
            counters: Counters::default(),
        })
    }

    /// How many connections are open.
    pub(in super::super) fn open(&self) -> usize {
        self.open.load(Acquire)
    }

    pub(super) fn share(&self, principal: Principal) -> Arc<UserShare> {
        let mut shares = self.shares.lock().expect("no code panics while it holds the shares");
        if shares.len() > IDLE_USERS && !shares.contains_key(&principal) {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let new = || Arc::new(UserShare::new(self.multiplier(principal), self.connections_max));
        shares.entry(principal).or_insert_with(new).clone()
    }

    fn multiplier(&self, principal: Principal) -> u32 {
        if principal.uid == 0 || principal.uid == self.own_uid { TRUSTED_MULTIPLIER } else { 1 }
    }

    /// Takes a place for a new connection of this user.
    pub(super) fn admit(self: &Arc<Self>, principal: Principal) -> Result<ConnectionSlot, ConnectionRefusal> {
        let share = self.share(principal);
        if !share.connects.try_take_one() {
            return Err(ConnectionRefusal::Rate);
        }
        // A quarter of the descriptors are this part of one user's connections, twice.
        let is_crowded = self.open() >= 2 * self.connections_max;
        let max =
            if is_crowded { share.connections_max.min(CONNECTIONS_CROWDED) } else { share.connections_max };
        if !try_increment(&share.connections, max) {
            return Err(ConnectionRefusal::Share);
        }
        self.open.fetch_add(1, AcqRel);
        Ok(ConnectionSlot { admission: self.clone(), share })
    }
}

/// What one user holds, and how much it may.
#[derive(Debug)]
pub(super) struct UserShare {
    connections: AtomicUsize,
    connections_max: usize,
    connects: TokenBucket,
    pub(super) calls: AtomicUsize,
    pub(super) calls_max: usize,
    pub(super) request_bytes: AtomicU64,
    pub(super) request_bytes_max: u64,
    frame_units: TokenBucket,
    /// Descriptors that are being closed.
    pub(super) closing: AtomicUsize,
    pub(super) responses: Arc<UnsentResponses>,
    pub(super) scheduler: Arc<CallScheduler>,
}

impl UserShare {
    pub(super) fn new(multiplier: u32, connections_of_descriptors: usize) -> Self {
        let (factor, count) = (f64::from(multiplier), multiplier as usize);
        Self {
            connections: AtomicUsize::new(0),
            connections_max: (CONNECTIONS * count).min(connections_of_descriptors),
            connects: TokenBucket::new(CONNECTS_PER_S * factor, CONNECTS_BURST * factor),
            calls: AtomicUsize::new(0),
            calls_max: CALLS * count,
            request_bytes: AtomicU64::new(0),
            request_bytes_max: REQUEST_BYTES * u64::from(multiplier),
            frame_units: TokenBucket::new(FRAME_UNITS_PER_S * factor, FRAME_UNITS_BURST * factor),
            closing: AtomicUsize::new(0),
            responses: UnsentResponses::new(RESPONSE_BYTES * u64::from(multiplier)),
            scheduler: CallScheduler::new(CPU_PER_S * factor, CPU_BURST * factor),
        }
    }

    /// Pays for frames that have arrived. How long the user has to wait when that was more than it may.
    pub(super) fn charge_frames(&self, units: u32) -> Option<Duration> {
        self.frame_units.take(f64::from(units))
    }

    pub(super) fn reserve_request_bytes(&self, more: u64) -> bool {
        let fits = |held: u64| held.checked_add(more).filter(|bytes| *bytes <= self.request_bytes_max);
        self.request_bytes.fetch_update(AcqRel, Acquire, fits).is_ok()
    }

    pub(super) fn release_request_bytes(&self, bytes: u64) {
        self.request_bytes.fetch_sub(bytes, AcqRel);
    }
}

/// The place of one connection in its user's share, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) admission: Arc<Admission>,
    pub(super) share: Arc<UserShare>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.share.connections.fetch_sub(1, AcqRel);
        self.admission.open.fetch_sub(1, AcqRel);
    }
}

/// The place of a call in its user's share.
#[derive(Debug)]
pub(super) struct CallSlot(Arc<UserShare>);

impl CallSlot {
    /// `None`: the user has as many calls under way as it may.
    pub(super) fn take(share: &Arc<UserShare>) -> Option<Self> {
        try_increment(&share.calls, share.calls_max).then(|| Self(share.clone()))
    }

    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        Self::take(&Arc::new(UserShare::new(1, 1))).expect("the share is empty")
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, AcqRel);
    }
}

fn try_increment(held: &AtomicUsize, max: usize) -> bool {
    held.fetch_update(AcqRel, Acquire, |count| (count < max).then_some(count + 1)).is_ok()
}

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
