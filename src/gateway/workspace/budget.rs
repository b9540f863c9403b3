//! The gateway's budget of inotify instances and watches.
//!
//! The kernel counts them for the gateway's user, which other programs of the host share (inotify(7)). So all workspaces
//! together use a part of the host's limit, and those of one owner a part of that: an owner with many workspaces takes
//! nothing from other owners or from the host. A workspace without a lease is scanned instead.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All workspaces together use at most one part in this many of the host's limit.
const HOST_DIVISOR: u64 = 4;
/// The workspaces of one owner use at most one part in this many of that.
const OWNER_DIVISOR: u64 = 4;
/// The kernel's smallest defaults, for a host that does not report its limits.
const INSTANCES_DEFAULT: u64 = 128;
const WATCHES_DEFAULT: u64 = 8_192;

/// The limits, and what is in use.
#[derive(Debug)]
pub(super) struct InotifyBudget {
    instances_max: u64,
    watches_max: u64,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    total: Counts,
    by_owner: HashMap<u32, Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    instances: u64,
    watches: u64,
}

impl InotifyBudget {
    /// The budget by the limits of this host.
    pub(super) fn of_host() -> Arc<Self> {
        let instances = setting("/proc/sys/fs/inotify/max_user_instances").unwrap_or(INSTANCES_DEFAULT);
        let watches = setting("/proc/sys/fs/inotify/max_user_watches").unwrap_or(WATCHES_DEFAULT);
        Self::new(instances / HOST_DIVISOR, watches / HOST_DIVISOR)
    }

    fn new(instances_max: u64, watches_max: u64) -> Arc<Self> {
        Arc::new(Self { instances_max, watches_max, in_use: Mutex::default() })
    }

    /// Leases an instance for a workspace of this owner; `None` when the budget is used up.
    pub(super) fn lease_instance(self: &Arc<Self>, owner: u32) -> Option<InotifyLease> {
        let mut taken = self.lock();
        let own = taken.by_owner.get(&owner).copied().unwrap_or_default();
        let fits = |count: u64, max: u64| count < max.max(1);
        if !fits(taken.total.instances, self.instances_max)
            || !fits(own.instances, self.instances_max / OWNER_DIVISOR)
        {
            return None;
        }
        taken.total.instances += 1;
        taken.by_owner.entry(owner).or_default().instances += 1;
        Some(InotifyLease { budget: self.clone(), owner, watches: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One workspace's instance and its watches, until this is dropped.
#[derive(Debug)]
pub(super) struct InotifyLease {
    budget: Arc<InotifyBudget>,
    owner: u32,
    watches: u64,
}

impl InotifyLease {
    /// Counts one watch more. Returns false when the budget is used up.
    pub(super) fn add_watch(&mut self) -> bool {
        let mut taken = self.budget.lock();
        let own = taken.by_owner.get(&self.owner).map_or(0, |own| own.watches);
        let fits = taken.total.watches < self.budget.watches_max
            && own < (self.budget.watches_max / OWNER_DIVISOR).max(1);
        if fits {
            taken.total.watches += 1;
            taken.by_owner.entry(self.owner).or_default().watches += 1;
            self.watches += 1;
        }
        fits
    }

    /// Counts one watch less: the kernel has removed it.
    pub(super) fn release_watch(&mut self) {
        if self.watches > 0 {
            self.watches -= 1;
            self.budget.lock().release(self.owner, Counts { instances: 0, watches: 1 });
        }
    }
}

impl Drop for InotifyLease {
    fn drop(&mut self) {
        self.budget.lock().release(self.owner, Counts { instances: 1, watches: self.watches });
    }
}

impl InUse {
    fn release(&mut self, owner: u32, counts: Counts) {
        self.total.instances -= counts.instances;
        self.total.watches -= counts.watches;
        if let Some(own) = self.by_owner.get_mut(&owner) {
            own.instances -= counts.instances;
            own.watches -= counts.watches;
            if own.instances == 0 && own.watches == 0 {
                self.by_owner.remove(&owner);
            }
        }
    }
}

fn setting(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_cannot_exceed_its_part() {
        let budget = InotifyBudget::new(8, 40);
        let mut held = vec![budget.lease_instance(1).unwrap(), budget.lease_instance(1).unwrap()];
        assert!(budget.lease_instance(1).is_none(), "a quarter of eight");
        held.push(budget.lease_instance(2).unwrap());
        for _ in 0..10 {
            assert!(held[0].add_watch());
        }
        assert!(!held[0].add_watch() && !held[1].add_watch(), "a quarter of forty, for all of an owner's");
        assert!(held[2].add_watch());
        held[0].release_watch();
        assert!(held[1].add_watch());
        held.clear();
        let taken = budget.lock();
        assert!(taken.by_owner.is_empty());
        assert_eq!((taken.total.instances, taken.total.watches), (0, 0));
    }

    #[test]
    fn all_owners_together_cannot_exceed_the_part_of_the_host() {
        let budget = InotifyBudget::new(4, 8);
        let held: Vec<_> = (0..4).map(|owner| budget.lease_instance(owner).unwrap()).collect();
        assert!(budget.lease_instance(5).is_none());
        drop(held);
        assert!(budget.lease_instance(5).is_some());
    }
}
