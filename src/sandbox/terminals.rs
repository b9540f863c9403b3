//! How many of the host's pseudo-terminals a sandbox may have.
//!
//! The kernel has one number of them for the whole host (`kernel.pty.max`), and bounds only those of one devpts mount. So
//! each sandbox is given a share when it is launched: of what its principal has left, so that one principal's sandboxes take
//! a quarter of the host's at most, however many they are. The host keeps `kernel.pty.reserve` for itself.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Pseudo-terminals of one sandbox.
pub const PTYS: u32 = 64;
/// All sandboxes of a principal have at most one of so many parts of the host's.
const PART_OF_PRINCIPAL: u32 = 4;
/// A sandbox is given at most one of so many parts of what is left: later ones have less, and few have none.
const PART_OF_REST: u32 = 8;
/// The kernel's own values of `kernel.pty.max` and `kernel.pty.reserve`, where /proc does not say.
const DEFAULT_MAX: u32 = 4_096;
const DEFAULT_RESERVE: u32 = 1_024;

/// What this gateway has given away.
#[derive(Debug)]
pub(super) struct Ptys {
    host: u32,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    all: u32,
    by_user: HashMap<u32, u32>,
}

impl Ptys {
    /// Of this host's settings.
    pub(super) fn of_host() -> Arc<Self> {
        let max = setting("/proc/sys/kernel/pty/max").unwrap_or(DEFAULT_MAX);
        let reserve = setting("/proc/sys/kernel/pty/reserve").unwrap_or(DEFAULT_RESERVE);
        Self::new(max.saturating_sub(reserve))
    }

    fn new(host: u32) -> Arc<Self> {
        Arc::new(Self { host, given: Mutex::default() })
    }

    /// A share for a sandbox of this user. It may be of none.
    pub(super) fn share(self: &Arc<Self>, uid: u32) -> PtyShare {
        let mut given = self.lock();
        let own = given.by_user.get(&uid).copied().unwrap_or_default();
        let left =
            (self.host / PART_OF_PRINCIPAL).saturating_sub(own).min(self.host.saturating_sub(given.all));
        let count = (left / PART_OF_REST).clamp(left.min(1), PTYS);
        given.add(uid, count);
        PtyShare { ptys: self.clone(), uid, count }
    }

    /// Counts the share that an older gateway has given to a sandbox that still runs.
    pub(super) fn restore(self: &Arc<Self>, uid: u32, count: u32) -> PtyShare {
        self.lock().add(uid, count);
        PtyShare { ptys: self.clone(), uid, count }
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Given {
    fn add(&mut self, uid: u32, count: u32) {
        if count > 0 {
            self.all = self.all.saturating_add(count);
            let own = self.by_user.entry(uid).or_default();
            *own = own.saturating_add(count);
        }
    }
}

/// A sandbox's pseudo-terminals, until this is dropped.
#[derive(Debug)]
pub struct PtyShare {
    ptys: Arc<Ptys>,
    uid: u32,
    count: u32,
}

impl PtyShare {
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for PtyShare {
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
        let ptys = Ptys::new(3_072);
        let first: Vec<PtyShare> = (0..512).map(|_| ptys.share(1)).collect();
        assert_eq!(first[0].count(), PTYS);
        assert_eq!(first.iter().map(PtyShare::count).sum::<u32>(), 768);
        assert_eq!(first[511].count(), 0);
        assert_eq!(ptys.share(2).count(), PTYS);
        drop(first);
        assert_eq!(ptys.share(1).count(), PTYS);
        let given = ptys.lock();
        assert_eq!((given.all, given.by_user.len()), (0, 0));
    }

    #[test]
    fn all_together_have_no_more_than_the_host() {
        let ptys = Ptys::new(100);
        let all: Vec<PtyShare> = (0..1_000).map(|uid| ptys.share(uid)).collect();
        assert_eq!(all.iter().map(PtyShare::count).sum::<u32>(), 100);
        assert_eq!(ptys.restore(7, 64).count(), 64);
    }
}
