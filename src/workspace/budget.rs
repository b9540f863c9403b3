//! What the gateway takes of the host's inotify instances and watches.
//!
//! The kernel counts them for the gateway's user, which other programs of the host share (inotify(7)). So all workspaces
//! together take a part of what there is, and those of one owner a part of that: who opens many workspaces takes nothing
//! from other owners, nor from the host. A workspace without a share is walked instead.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All workspaces together take at most one of so many parts of what the host has.
const PART_OF_HOST: u64 = 4;
/// The workspaces of one owner take at most one of so many parts of that.
const PART_OF_OWNER: u64 = 4;
/// Where the host does not say: the kernel's smallest defaults.
const INSTANCES_DEFAULT: u64 = 128;
const WATCHES_DEFAULT: u64 = 8_192;

/// What is taken, and what may be.
#[derive(Debug)]
pub(super) struct Budget {
    instances_max: u64,
    watches_max: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Counts,
    by_owner: HashMap<u32, Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    instances: u64,
    watches: u64,
}

impl Budget {
    /// Of this host's limits.
    pub(super) fn of_host() -> Arc<Self> {
        let instances = setting("/proc/sys/fs/inotify/max_user_instances").unwrap_or(INSTANCES_DEFAULT);
        let watches = setting("/proc/sys/fs/inotify/max_user_watches").unwrap_or(WATCHES_DEFAULT);
        Self::new(instances / PART_OF_HOST, watches / PART_OF_HOST)
    }

    fn new(instances_max: u64, watches_max: u64) -> Arc<Self> {
        Arc::new(Self { instances_max, watches_max, taken: Mutex::default() })
    }

    /// One instance, for a workspace of this owner.
    pub(super) fn instance(self: &Arc<Self>, owner: u32) -> Option<Share> {
        let mut taken = self.lock();
        let own = taken.by_owner.get(&owner).copied().unwrap_or_default();
        let fits = |count: u64, max: u64| count < max.max(1);
        if !fits(taken.all.instances, self.instances_max)
            || !fits(own.instances, self.instances_max / PART_OF_OWNER)
        {
            return None;
        }
        taken.all.instances += 1;
        taken.by_owner.entry(owner).or_default().instances += 1;
        Some(Share { budget: self.clone(), owner, watches: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One workspace's instance and its watches, until this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    owner: u32,
    watches: u64,
}

impl Share {
    /// Counts one watch more. `false`: there may be no more.
    pub(super) fn take_watch(&mut self) -> bool {
        let mut taken = self.budget.lock();
        let own = taken.by_owner.get(&self.owner).map_or(0, |own| own.watches);
        let fits = taken.all.watches < self.budget.watches_max
            && own < (self.budget.watches_max / PART_OF_OWNER).max(1);
        if fits {
            taken.all.watches += 1;
            taken.by_owner.entry(self.owner).or_default().watches += 1;
            self.watches += 1;
        }
        fits
    }

    /// Counts one watch less: the kernel has removed it.
    pub(super) fn give_watch_back(&mut self) {
        if self.watches > 0 {
            self.watches -= 1;
            self.budget.lock().give_back(self.owner, Counts { instances: 0, watches: 1 });
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.lock().give_back(self.owner, Counts { instances: 1, watches: self.watches });
    }
}

impl Taken {
    fn give_back(&mut self, owner: u32, counts: Counts) {
        self.all.instances -= counts.instances;
        self.all.watches -= counts.watches;
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
    fn an_owner_takes_its_part_and_leaves_the_rest_to_others() {
        let budget = Budget::new(8, 40);
        let mut held = vec![budget.instance(1).unwrap(), budget.instance(1).unwrap()];
        assert!(budget.instance(1).is_none(), "a quarter of eight");
        held.push(budget.instance(2).unwrap());
        for _ in 0..10 {
            assert!(held[0].take_watch());
        }
        assert!(!held[0].take_watch() && !held[1].take_watch(), "a quarter of forty, for all of an owner's");
        assert!(held[2].take_watch());
        held[0].give_watch_back();
        assert!(held[1].take_watch());
        held.clear();
        let taken = budget.lock();
        assert!(taken.by_owner.is_empty());
        assert_eq!((taken.all.instances, taken.all.watches), (0, 0));
    }

    #[test]
    fn everybody_together_leaves_the_host_its_part() {
        let budget = Budget::new(4, 8);
        let held: Vec<_> = (0..4).map(|owner| budget.instance(owner).unwrap()).collect();
        assert!(budget.instance(5).is_none());
        drop(held);
        assert!(budget.instance(5).is_some());
    }
}
