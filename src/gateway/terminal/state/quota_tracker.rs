//! Tracks what sessions and principals use of their quotas.
//!
//! A terminal makes a reservation before anything is started, and gives it back by dropping it. Output counts by its limit,
//! not by what was written, so that a terminal can always keep what it was granted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use crate::{
    session::{DescriptorQuota, DescriptorQuotaReached, HeldDescriptors, Principal, Session, SessionId},
    terminal::quotas::{QuotaKind, QuotaReached, QuotaScope, Quotas},
};

/// Descriptors that a terminal holds until it is released: the rings of its output, and what it was started with.
const TERMINAL_DESCRIPTORS: u64 = 4;
/// And that a sandbox of its own holds.
const SANDBOX_DESCRIPTORS: u64 = 8;

/// What one session or principal has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Terminals whose command runs or is being started.
    pub live: u32,
    /// Terminals that are not released.
    pub retained: u32,
    /// Bytes of output reserved.
    pub bytes: u64,
}

/// Whether a terminal has a sandbox for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSandbox {
    /// It has: it holds secrets.
    Yes,
    /// It shares its session's.
    No,
}

fn descriptor_count(sandbox: OwnSandbox) -> u64 {
    match sandbox {
        OwnSandbox::Yes => TERMINAL_DESCRIPTORS + SANDBOX_DESCRIPTORS,
        OwnSandbox::No => TERMINAL_DESCRIPTORS,
    }
}

/// Tracks what sessions and principals use.
#[derive(Debug)]
pub struct QuotaTracker {
    quotas: Quotas,
    descriptors: Arc<DescriptorQuota>,
    usage: Mutex<UsageTable>,
}

#[derive(Debug, Default)]
struct UsageTable {
    sessions: HashMap<SessionId, QuotaUsage>,
    principals: HashMap<Principal, QuotaUsage>,
}

impl QuotaTracker {
    /// A tracker of no use yet.
    pub fn new(quotas: Quotas, descriptors: Arc<DescriptorQuota>) -> Arc<Self> {
        Arc::new(Self { quotas, descriptors, usage: Mutex::default() })
    }

    /// Takes a place for a terminal that starts now.
    pub fn reserve(
        self: &Arc<Self>,
        session: &Session,
        bytes: u64,
        sandbox: OwnSandbox,
    ) -> Result<Reservation, QuotaReached> {
        let mut usage = self.lock();
        let of_session = usage.sessions.get(&session.id).copied().unwrap_or_default();
        let of_principal = usage.principals.get(&session.principal).copied().unwrap_or_default();
        let quotas = &self.quotas;
        let checks = [
            (
                QuotaKind::Live,
                QuotaScope::Session,
                u64::from(of_session.live),
                1,
                u64::from(quotas.live_terminals_per_session),
            ),
            (
                QuotaKind::Live,
                QuotaScope::Principal,
                u64::from(of_principal.live),
                1,
                u64::from(quotas.live_terminals_per_principal),
            ),
            (
                QuotaKind::Retained,
                QuotaScope::Session,
                u64::from(of_session.retained),
                1,
                u64::from(quotas.retained_terminals_per_session),
            ),
            (
                QuotaKind::Retained,
                QuotaScope::Principal,
                u64::from(of_principal.retained),
                1,
                u64::from(quotas.retained_terminals_per_principal),
            ),
            (
                QuotaKind::Bytes,
                QuotaScope::Session,
                of_session.bytes,
                bytes,
                quotas.retained_bytes_per_session,
            ),
            (
                QuotaKind::Bytes,
                QuotaScope::Principal,
                of_principal.bytes,
                bytes,
                quotas.retained_bytes_per_principal,
            ),
        ];
        for (kind, scope, held, more, cap) in checks {
            if held.saturating_add(more) > cap {
                return Err(QuotaReached { kind, scope, max: cap });
            }
        }
        let descriptors = self.descriptors.reserve(session.principal, descriptor_count(sandbox)).map_err(
            |DescriptorQuotaReached(cap)| QuotaReached {
                kind: QuotaKind::Descriptors,
                scope: QuotaScope::Principal,
                max: cap,
            },
        )?;
        Ok(self.add(&mut usage, session, bytes, descriptors))
    }

    fn add(
        self: &Arc<Self>,
        usage: &mut UsageTable,
        session: &Session,
        bytes: u64,
        held: HeldDescriptors,
    ) -> Reservation {
        let reservation = Reservation {
            tracker: self.clone(),
            session: session.id,
            principal: session.principal,
            bytes,
            live: true,
            _descriptors: held,
        };
        usage.update(&reservation, |counts| {
            counts.live += 1;
            counts.retained += 1;
            counts.bytes += bytes;
        });
        reservation
    }

    /// Takes the place of a terminal that is there already, whatever the caps say: it was granted by a gateway before
    /// this one, perhaps under others.
    pub fn restore(self: &Arc<Self>, session: &Session, bytes: u64) -> Reservation {
        let mut usage = self.lock();
        let descriptors =
            self.descriptors.reserve_unchecked(session.principal, descriptor_count(OwnSandbox::No));
        self.add(&mut usage, session, bytes, descriptors)
    }

    /// What a session has.
    pub fn session_usage(&self, session: SessionId) -> QuotaUsage {
        self.lock().sessions.get(&session).copied().unwrap_or_default()
    }

    /// What all have.
    pub fn total_usage(&self) -> QuotaUsage {
        let usage = self.lock();
        usage.principals.values().fold(QuotaUsage::default(), |all, one| QuotaUsage {
            live: all.live + one.live,
            retained: all.retained + one.retained,
            bytes: all.bytes + one.bytes,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, UsageTable> {
        self.usage.lock().expect("no code panics while it holds the usage table")
    }
}

impl UsageTable {
    fn update(&mut self, of: &Reservation, change: impl Fn(&mut QuotaUsage)) {
        change(self.sessions.entry(of.session).or_default());
        change(self.principals.entry(of.principal).or_default());
    }

    fn forget_empty(&mut self, of: &Reservation) {
        if self.sessions.get(&of.session) == Some(&QuotaUsage::default()) {
            self.sessions.remove(&of.session);
        }
        if self.principals.get(&of.principal) == Some(&QuotaUsage::default()) {
            self.principals.remove(&of.principal);
        }
    }
}

/// What a terminal uses of its session's and principal's quotas.
#[derive(Debug)]
#[must_use = "a reservation that is dropped gives its place back"]
pub struct Reservation {
    tracker: Arc<QuotaTracker>,
    session: SessionId,
    principal: Principal,
    bytes: u64,
    live: bool,
    _descriptors: HeldDescriptors,
}

impl Reservation {
    /// The command has ended: the place among the live ones is free.
    pub fn finished(&mut self) {
        if std::mem::replace(&mut self.live, false) {
            self.tracker.lock().update(self, |counts| counts.live -= 1);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.finished();
        let mut usage = self.tracker.lock();
        usage.update(self, |counts| {
            counts.retained -= 1;
            counts.bytes -= self.bytes;
        });
        usage.forget_empty(self);
    }
}
