//! The books of what sessions and principals have, against their caps.
//!
//! A terminal reserves its place before anything is started, and its reservation gives it back by being dropped.
//! Output counts by its limit, not by what was written: what was granted can always be kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::Caps;
use crate::session::{Descriptors, DescriptorsReached, HeldDescriptors, Principal, Session, SessionId};

/// Descriptors that a terminal holds until it is released: the rings of its output, and what it was started with.
const TERMINAL_DESCRIPTORS: u64 = 4;
/// And that a sandbox of its own holds.
const SANDBOX_DESCRIPTORS: u64 = 8;

/// Which cap is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{scope} has reached its cap of {cap} {kind}")]
pub struct QuotaReached {
    /// Of what.
    pub kind: Kind,
    /// Of whom.
    pub scope: Scope,
    /// The cap.
    pub cap: u64,
}

impl QuotaReached {
    /// The cap's name in the configuration.
    pub fn name(&self) -> &'static str {
        match (self.kind, self.scope) {
            (Kind::Live, Scope::Session) => "live_terminals_per_session",
            (Kind::Live, Scope::Principal) => "live_terminals_per_principal",
            (Kind::Retained, Scope::Session) => "retained_terminals_per_session",
            (Kind::Retained, Scope::Principal) => "retained_terminals_per_principal",
            (Kind::Bytes, Scope::Session) => "retained_bytes_per_session",
            (Kind::Bytes, Scope::Principal) => "retained_bytes_per_principal",
            (Kind::Journal { .. }, _) => "journal_share",
            (Kind::Descriptors, _) => "descriptors_per_principal",
        }
    }
}

/// What is capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Terminals whose command runs.
    Live,
    /// Terminals that are not released.
    Retained,
    /// Bytes of output.
    Bytes,
    /// Bytes of records.
    Journal {
        /// Written in the last so many seconds.
        within_s: u64,
    },
    /// Descriptors of the gateway.
    Descriptors,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live => f.write_str("live terminals"),
            Self::Retained => f.write_str("retained terminals"),
            Self::Bytes => f.write_str("retained bytes"),
            Self::Descriptors => f.write_str("of the gateway's descriptors"),
            Self::Journal { within_s } => write!(f, "bytes in the journal within {within_s} s"),
        }
    }
}

/// Whose cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A session's.
    Session,
    /// A principal's.
    Principal,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Session => "the session",
            Self::Principal => "the principal",
        })
    }
}

/// What one session or principal has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
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

fn descriptors_of(sandbox: OwnSandbox) -> u64 {
    match sandbox {
        OwnSandbox::Yes => TERMINAL_DESCRIPTORS + SANDBOX_DESCRIPTORS,
        OwnSandbox::No => TERMINAL_DESCRIPTORS,
    }
}

/// The books.
#[derive(Debug)]
pub struct Ledger {
    caps: Caps,
    descriptors: Arc<Descriptors>,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    sessions: HashMap<SessionId, Counts>,
    principals: HashMap<Principal, Counts>,
}

impl Ledger {
    /// Empty books.
    pub fn new(caps: Caps, descriptors: Arc<Descriptors>) -> Arc<Self> {
        Arc::new(Self { caps, descriptors, books: Mutex::default() })
    }

    /// Takes a place for a terminal that starts now.
    pub fn reserve(
        self: &Arc<Self>,
        session: &Session,
        bytes: u64,
        sandbox: OwnSandbox,
    ) -> Result<Reservation, QuotaReached> {
        let mut books = self.lock();
        let of_session = books.sessions.get(&session.id).copied().unwrap_or_default();
        let of_principal = books.principals.get(&session.principal).copied().unwrap_or_default();
        let caps = &self.caps;
        let checks = [
            (
                Kind::Live,
                Scope::Session,
                u64::from(of_session.live),
                1,
                u64::from(caps.live_terminals_per_session),
            ),
            (
                Kind::Live,
                Scope::Principal,
                u64::from(of_principal.live),
                1,
                u64::from(caps.live_terminals_per_principal),
            ),
            (
                Kind::Retained,
                Scope::Session,
                u64::from(of_session.retained),
                1,
                u64::from(caps.retained_terminals_per_session),
            ),
            (
                Kind::Retained,
                Scope::Principal,
                u64::from(of_principal.retained),
                1,
                u64::from(caps.retained_terminals_per_principal),
            ),
            (Kind::Bytes, Scope::Session, of_session.bytes, bytes, caps.retained_bytes_per_session),
            (Kind::Bytes, Scope::Principal, of_principal.bytes, bytes, caps.retained_bytes_per_principal),
        ];
        for (kind, scope, held, more, cap) in checks {
            if held.saturating_add(more) > cap {
                return Err(QuotaReached { kind, scope, cap });
            }
        }
        let held = self.descriptors.take(session.principal, descriptors_of(sandbox)).map_err(
            |DescriptorsReached(cap)| QuotaReached { kind: Kind::Descriptors, scope: Scope::Principal, cap },
        )?;
        Ok(self.enter(&mut books, session, bytes, held))
    }

    fn enter(
        self: &Arc<Self>,
        books: &mut Books,
        session: &Session,
        bytes: u64,
        held: HeldDescriptors,
    ) -> Reservation {
        let reservation = Reservation {
            ledger: self.clone(),
            session: session.id,
            principal: session.principal,
            bytes,
            live: true,
            _descriptors: held,
        };
        books.update(&reservation, |counts| {
            counts.live += 1;
            counts.retained += 1;
            counts.bytes += bytes;
        });
        reservation
    }

    /// Takes the place of a terminal that is there already, whatever the caps say: it was granted by a gateway before
    /// this one, perhaps under others.
    pub fn restore(self: &Arc<Self>, session: &Session, bytes: u64) -> Reservation {
        let mut books = self.lock();
        let held = self.descriptors.take_anyway(session.principal, descriptors_of(OwnSandbox::No));
        self.enter(&mut books, session, bytes, held)
    }

    /// What a session has.
    pub fn of_session(&self, session: SessionId) -> Counts {
        self.lock().sessions.get(&session).copied().unwrap_or_default()
    }

    /// What all have.
    pub fn of_all(&self) -> Counts {
        let books = self.lock();
        books.principals.values().fold(Counts::default(), |all, one| Counts {
            live: all.live + one.live,
            retained: all.retained + one.retained,
            bytes: all.bytes + one.bytes,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().expect("no code panics while it holds the books")
    }
}

impl Books {
    fn update(&mut self, of: &Reservation, change: impl Fn(&mut Counts)) {
        change(self.sessions.entry(of.session).or_default());
        change(self.principals.entry(of.principal).or_default());
    }

    fn forget_empty(&mut self, of: &Reservation) {
        if self.sessions.get(&of.session) == Some(&Counts::default()) {
            self.sessions.remove(&of.session);
        }
        if self.principals.get(&of.principal) == Some(&Counts::default()) {
            self.principals.remove(&of.principal);
        }
    }
}

/// A terminal's place in the books.
#[derive(Debug)]
#[must_use = "a reservation that is dropped gives its place back"]
pub struct Reservation {
    ledger: Arc<Ledger>,
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
            self.ledger.lock().update(self, |counts| counts.live -= 1);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.finished();
        let mut books = self.ledger.lock();
        books.update(self, |counts| {
            counts.retained -= 1;
            counts.bytes -= self.bytes;
        });
        books.forget_empty(self);
    }
}
