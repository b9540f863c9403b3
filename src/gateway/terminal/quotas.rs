//! The quotas of a session and of a principal, what is used of them, and the error when one is reached.
//!
//! A terminal makes a reservation before anything is started, and gives it back by dropping it. Output counts by its limit,
//! not by what was written, so that a terminal can always keep what it was granted.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    counters::labels,
    sandbox::cgroup::PrincipalLimits,
    session::{DescriptorQuota, DescriptorQuotaReached, HeldDescriptors, Principal, Session, SessionId},
};

/// Lines that wait for their turn in one kept shell.
pub(crate) const MAX_QUEUED_LINES: u32 = 16;

/// Caps. At a cap, a create is refused with RESOURCE_EXHAUSTED; what lives goes on, and can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Open sessions of one principal.
    pub sessions_per_principal: u32,
    /// Terminals of one session whose command runs.
    pub live_terminals_per_session: u32,
    /// Terminals of one principal whose command runs.
    pub live_terminals_per_principal: u32,
    /// Terminals of one session that are not released, running or finished.
    pub retained_terminals_per_session: u32,
    /// Terminals of one principal that are not released, running or finished.
    pub retained_terminals_per_principal: u32,
    /// Bytes of output that the terminals of one session may retain together, by their limits.
    pub retained_bytes_per_session: u64,
    /// Bytes of output that the terminals of one principal may retain together, by their limits.
    pub retained_bytes_per_principal: u64,
    /// Bytes of memory of one principal's sandboxes together; absent: 80 % of the host's.
    pub memory_bytes_per_principal: Option<u64>,
    /// Processes and threads of one principal's sandboxes together; absent: 80 % of what the host can have.
    pub pids_per_principal: Option<u64>,
    /// A principal's share of the processors against the others', as the kernel's `cpu.weight`.
    #[serde(deserialize_with = "weight")]
    pub cpu_weight_per_principal: u64,
}

impl Quotas {
    /// Those that the kernel holds.
    pub fn principal_limits(&self) -> PrincipalLimits {
        PrincipalLimits {
            memory_bytes: self.memory_bytes_per_principal,
            pids: self.pids_per_principal,
            cpu_weight: self.cpu_weight_per_principal,
        }
    }
}

fn weight<'de, D: Deserializer<'de>>(number: D) -> Result<u64, D::Error> {
    match u64::deserialize(number)? {
        weight @ 1..=10_000 => Ok(weight),
        other => Err(D::Error::custom(format!("a weight is from 1 to 10,000, not {other}"))),
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            sessions_per_principal: 512,
            live_terminals_per_session: 1_024,
            live_terminals_per_principal: 4_096,
            retained_terminals_per_session: 4_096,
            retained_terminals_per_principal: 8_192,
            retained_bytes_per_session: 8 << 30,
            retained_bytes_per_principal: 16 << 30,
            memory_bytes_per_principal: None,
            pids_per_principal: None,
            cpu_weight_per_principal: PrincipalLimits::default().cpu_weight,
        }
    }
}

labels! {
    /// A bound that refused something, by its name in the configuration.
    pub enum LimitName {
        /// `quotas.sessions_per_principal`.
        Sessions = "sessions_per_principal",
        /// `quotas.live_terminals_per_session`.
        LiveOfSession = "live_terminals_per_session",
        /// `quotas.live_terminals_per_principal`.
        LiveOfPrincipal = "live_terminals_per_principal",
        /// `quotas.retained_terminals_per_session`.
        RetainedOfSession = "retained_terminals_per_session",
        /// `quotas.retained_terminals_per_principal`.
        RetainedOfPrincipal = "retained_terminals_per_principal",
        /// `quotas.retained_bytes_per_session`.
        BytesOfSession = "retained_bytes_per_session",
        /// `quotas.retained_bytes_per_principal`.
        BytesOfPrincipal = "retained_bytes_per_principal",
        /// A principal's share of what the journal keeps for `journal.keep_for_at_least`.
        Journal = "journal_share",
        /// A principal's part of the gateway's descriptors.
        Descriptors = "descriptors_per_principal",
        /// `approvals.open_per_principal`.
        ApprovalsOfPrincipal = "approvals_open_per_principal",
        /// `approvals.open`.
        Approvals = "approvals_open",
    }
}

/// A cap that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) struct QuotaReached {
    /// Which one.
    pub limit: LimitName,
    /// The cap.
    pub max: u64,
    /// The time in which so much was used, where the cap is of a time.
    pub within: Option<Duration>,
}

impl fmt::Display for QuotaReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whose, unit) = match self.limit {
            LimitName::LiveOfSession => ("session", "live terminals"),
            LimitName::LiveOfPrincipal => ("principal", "live terminals"),
            LimitName::RetainedOfSession => ("session", "retained terminals"),
            LimitName::RetainedOfPrincipal => ("principal", "retained terminals"),
            LimitName::BytesOfSession => ("session", "retained bytes"),
            LimitName::BytesOfPrincipal => ("principal", "retained bytes"),
            LimitName::Journal => ("principal", "bytes in the journal"),
            LimitName::Descriptors => ("principal", "of the gateway's descriptors"),
            LimitName::Sessions => ("principal", "sessions"),
            LimitName::ApprovalsOfPrincipal => ("principal", "open questions"),
            LimitName::Approvals => ("gateway", "open questions"),
        };
        write!(f, "the {whose} has reached its cap of {} {unit}", self.max)?;
        self.within.map_or(Ok(()), |time| write!(f, " within {} s", time.as_secs()))
    }
}

/// Descriptors that a terminal holds until it is released: the rings of its output, and what it was started with.
const TERMINAL_DESCRIPTORS: u64 = 4;
/// And that a sandbox of its own holds.
const SANDBOX_DESCRIPTORS: u64 = 8;

/// What one session or principal has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QuotaUsage {
    /// Terminals whose command runs or is being started.
    pub live: u32,
    /// Terminals that are not released.
    pub retained: u32,
    /// Bytes of output reserved.
    pub bytes: u64,
}

/// Whether a terminal has a sandbox for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnSandbox {
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
pub(crate) struct QuotaTracker {
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
    pub(crate) fn new(quotas: Quotas, descriptors: Arc<DescriptorQuota>) -> Arc<Self> {
        Arc::new(Self { quotas, descriptors, usage: Mutex::default() })
    }

    /// Takes a place for a terminal that starts now.
    pub(crate) fn reserve(
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
            (LimitName::LiveOfSession, of_session.live.into(), 1, quotas.live_terminals_per_session.into()),
            (
                LimitName::LiveOfPrincipal,
                of_principal.live.into(),
                1,
                quotas.live_terminals_per_principal.into(),
            ),
            (
                LimitName::RetainedOfSession,
                of_session.retained.into(),
                1,
                quotas.retained_terminals_per_session.into(),
            ),
            (
                LimitName::RetainedOfPrincipal,
                of_principal.retained.into(),
                1,
                quotas.retained_terminals_per_principal.into(),
            ),
            (LimitName::BytesOfSession, of_session.bytes, bytes, quotas.retained_bytes_per_session),
            (LimitName::BytesOfPrincipal, of_principal.bytes, bytes, quotas.retained_bytes_per_principal),
        ];
        for (limit, held, more, max) in checks {
            let held: u64 = held;
            if held.saturating_add(more) > max {
                return Err(QuotaReached { limit, max, within: None });
            }
        }
        let descriptors = self.descriptors.reserve(session.principal, descriptor_count(sandbox)).map_err(
            |DescriptorQuotaReached(max)| QuotaReached { limit: LimitName::Descriptors, max, within: None },
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
    pub(crate) fn adopt(self: &Arc<Self>, session: &Session, bytes: u64) -> Reservation {
        let mut usage = self.lock();
        let descriptors =
            self.descriptors.reserve_unchecked(session.principal, descriptor_count(OwnSandbox::No));
        self.add(&mut usage, session, bytes, descriptors)
    }

    /// What a session has.
    pub(crate) fn session_usage(&self, session: SessionId) -> QuotaUsage {
        self.lock().sessions.get(&session).copied().unwrap_or_default()
    }

    /// What all have.
    pub(crate) fn total_usage(&self) -> QuotaUsage {
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
pub(crate) struct Reservation {
    tracker: Arc<QuotaTracker>,
    session: SessionId,
    principal: Principal,
    bytes: u64,
    live: bool,
    _descriptors: HeldDescriptors,
}

impl Reservation {
    /// The command has ended: the place among the live ones is free.
    pub(crate) fn finished(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Label as _;

    #[test]
    fn a_weight_is_one_that_the_kernel_takes() {
        let read = |weight: u64| toml::from_str::<Quotas>(&format!("cpu_weight_per_principal = {weight}"));
        for weight in [1, 10_000] {
            assert_eq!(read(weight).unwrap().principal_limits().cpu_weight, weight);
        }
        for weight in [0, 10_001] {
            assert!(read(weight).unwrap_err().to_string().contains("from 1 to 10,000"), "{weight}");
        }
    }

    #[test]
    fn what_the_kernel_holds_for_a_principal_is_what_is_configured() {
        let text = "memory_bytes_per_principal = 7\npids_per_principal = 8\ncpu_weight_per_principal = 9";
        let limits = toml::from_str::<Quotas>(text).unwrap().principal_limits();
        assert_eq!((limits.memory_bytes, limits.pids, limits.cpu_weight), (Some(7), Some(8), 9));
        let default = Quotas::default();
        assert_eq!(
            (default.retained_bytes_per_session, default.retained_bytes_per_principal),
            (8 << 30, 16 << 30)
        );
    }

    #[test]
    fn a_cap_that_is_reached_is_named_as_in_the_configuration() {
        let caps = [
            (LimitName::Sessions, "sessions_per_principal", "the principal", "sessions"),
            (LimitName::LiveOfSession, "live_terminals_per_session", "the session", "live terminals"),
            (LimitName::LiveOfPrincipal, "live_terminals_per_principal", "the principal", "live terminals"),
            (
                LimitName::RetainedOfSession,
                "retained_terminals_per_session",
                "the session",
                "retained terminals",
            ),
            (
                LimitName::RetainedOfPrincipal,
                "retained_terminals_per_principal",
                "the principal",
                "retained terminals",
            ),
            (LimitName::BytesOfSession, "retained_bytes_per_session", "the session", "retained bytes"),
            (LimitName::BytesOfPrincipal, "retained_bytes_per_principal", "the principal", "retained bytes"),
            (
                LimitName::Descriptors,
                "descriptors_per_principal",
                "the principal",
                "of the gateway's descriptors",
            ),
            (
                LimitName::ApprovalsOfPrincipal,
                "approvals_open_per_principal",
                "the principal",
                "open questions",
            ),
            (LimitName::Approvals, "approvals_open", "the gateway", "open questions"),
        ];
        for (limit, label, whose, unit) in caps {
            let reached = QuotaReached { limit, max: 3, within: None };
            let message = format!("{whose} has reached its cap of 3 {unit}");
            assert_eq!((limit.label(), reached.to_string()), (label, message));
        }
        let limit = LimitName::Journal;
        let reached = QuotaReached { limit, max: 3, within: Some(Duration::from_secs(9)) };
        let message = "the principal has reached its cap of 3 bytes in the journal within 9 s";
        assert_eq!((reached.limit.label(), reached.to_string()), ("journal_share", message.to_owned()));
    }
}
