//! Ends a sandbox to which no gateway comes.
//!
//! A gateway finds a sandbox by the control socket in its state directory. When the file of the socket is unlinked, none can come: then
//! the sandbox ends after a while. How long it waits for a gateway that could come is configuration.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use nix::sys::stat::fstat;

use crate::supervisor::ready::WithoutGatewayLimits;

/// The time between two looks at the file, once a sandbox has waited for as long as it does if the file is gone.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// What its commands have between TERM and KILL, at most.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Since when there is no gateway, and until when the sandbox waits for one.
#[derive(Debug)]
pub(super) struct WithoutGateway {
    limits: WithoutGatewayLimits,
    since: Option<Instant>,
    look_at: Option<Instant>,
}

impl WithoutGateway {
    pub(super) fn new(limits: WithoutGatewayLimits) -> Self {
        Self { limits, since: None, look_at: None }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.look_at = self.limits.socket_file.as_ref().map(|_| now + self.limits.unreachable_max);
    }

    pub(super) fn end(&mut self) {
        (self.since, self.look_at) = (None, None);
    }

    pub(super) fn next_change(&self) -> Option<Instant> {
        let limit = self.since.zip(self.limits.max).map(|(since, max)| since + max);
        [limit, self.look_at].into_iter().flatten().min()
    }

    /// Whether the sandbox has waited for long enough.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        if self.limits.max.is_some_and(|max| since + max <= now) {
            return true;
        }
        if self.look_at.is_none_or(|at| now < at) {
            return false;
        }
        self.look_at = Some(now + LOOK_INTERVAL.min(self.limits.unreachable_max));
        self.limits.socket_file.as_ref().is_some_and(is_unlinked)
    }
}

/// A file that cannot be looked at is taken as there.
fn is_unlinked(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|status| status.st_nlink == 0)
}
