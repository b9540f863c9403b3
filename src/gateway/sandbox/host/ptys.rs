//! How many of the host's pseudo-terminals a sandbox may have.
//!
//! The kernel has one limit for the whole host (`kernel.pty.max`) and a limit for each devpts mount. So each
//! sandbox reserves a share at launch, out of what its principal has left; one principal's sandboxes have at most a
//! quarter of the host's together. The host keeps `kernel.pty.reserve`.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most that one sandbox may have.
pub(crate) const MAX_PTYS_PER_SANDBOX: u32 = 64;
/// A principal's sandboxes together have at most the host's number divided by this.
const PRINCIPAL_DIVISOR: u32 = 4;
/// A sandbox gets at most what is left divided by this: later sandboxes get less, and few get none.
const SANDBOX_DIVISOR: u32 = 8;
/// The kernel's defaults for `kernel.pty.max` and `kernel.pty.reserve`, for when /proc cannot be read.
const DEFAULT_MAX: u32 = 4_096;
const DEFAULT_RESERVE: u32 = 1_024;

/// The pseudo-terminals that this gateway's sandboxes have reserved.
#[derive(Debug)]
pub(crate) struct PtyPool {
    host: u32,
    reserved: Mutex<ReservedPtys>,
}

#[derive(Debug, Default)]
struct ReservedPtys {
    all: u32,
    by_user: HashMap<u32, u32>,
}

impl PtyPool {
    /// Reads this host's settings.
    pub(crate) fn of_host() -> Arc<Self> {
        let max = setting("/proc/sys/kernel/pty/max").unwrap_or(DEFAULT_MAX);
        let reserve = setting("/proc/sys/kernel/pty/reserve").unwrap_or(DEFAULT_RESERVE);
        Self::new(max.saturating_sub(reserve))
    }

    fn new(host: u32) -> Arc<Self> {
        Arc::new(Self { host, reserved: Mutex::default() })
    }

    /// Reserves a share for a sandbox of this user. It may be 0.
    pub(crate) fn reserve(self: &Arc<Self>, uid: u32) -> PtyReservation {
        let mut given = self.lock();
        let own = given.by_user.get(&uid).copied().unwrap_or_default();
        let left =
            (self.host / PRINCIPAL_DIVISOR).saturating_sub(own).min(self.host.saturating_sub(given.all));
        let count = (left / SANDBOX_DIVISOR).clamp(left.min(1), MAX_PTYS_PER_SANDBOX);
        given.add(uid, count);
        PtyReservation { ptys: self.clone(), uid, count }
    }

    /// Counts the share of a sandbox that an earlier gateway launched.
    pub(crate) fn restore(self: &Arc<Self>, uid: u32, count: u32) -> PtyReservation {
        self.lock().add(uid, count);
        PtyReservation { ptys: self.clone(), uid, count }
    }

    fn lock(&self) -> MutexGuard<'_, ReservedPtys> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservedPtys {
    fn add(&mut self, uid: u32, count: u32) {
        if count > 0 {
            self.all = self.all.saturating_add(count);
            let own = self.by_user.entry(uid).or_default();
            *own = own.saturating_add(count);
        }
    }
}

/// A sandbox's reserved pseudo-terminals. Dropping this returns them.
#[derive(Debug)]
pub(crate) struct PtyReservation {
    ptys: Arc<PtyPool>,
    uid: u32,
    count: u32,
}

impl PtyReservation {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for PtyReservation {
    fn drop(&mut self) {
        let mut given = self.ptys.lock();
        given.all = given.all.saturating_sub(self.count);
        if let Some(own) = given.by_user.get_mut(&self.uid) {
            *own = own.saturating_sub(self.count);
            if *own == 0 {
                given.by_user.remove(&self.uid);
            }
        }
    }
}

fn setting(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_a_quarter_and_the_next_one_as_much() {
        let ptys = PtyPool::new(3_072);
        let first: Vec<PtyReservation> = (0..512).map(|_| ptys.reserve(1)).collect();
        assert_eq!(first[0].count(), MAX_PTYS_PER_SANDBOX);
        assert_eq!(first.iter().map(PtyReservation::count).sum::<u32>(), 768);
        assert_eq!(first[511].count(), 0);
        assert_eq!(ptys.reserve(2).count(), MAX_PTYS_PER_SANDBOX);
        drop(first);
        assert_eq!(ptys.reserve(1).count(), MAX_PTYS_PER_SANDBOX);
        let given = ptys.lock();
        assert_eq!((given.all, given.by_user.len()), (0, 0));
    }

    #[test]
    fn all_together_have_no_more_than_the_host() {
        let ptys = PtyPool::new(100);
        let all: Vec<PtyReservation> = (0..1_000).map(|uid| ptys.reserve(uid)).collect();
        assert_eq!(all.iter().map(PtyReservation::count).sum::<u32>(), 100);
        assert_eq!(ptys.restore(7, 64).count(), 64);
    }
}
