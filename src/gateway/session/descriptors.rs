//! Counts the gateway's descriptors that sessions and terminals hold, by principal.
//!
//! Each kind is counted by the most that it takes, from its start to its end. A principal may hold a share of what the
//! gateway may open. While all principals together hold half of it, only those that hold little get more, so that another
//! principal can always open a session. This module opens and closes nothing itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use super::Principal;

/// One principal has at most this part of the gateway's descriptors.
const PRINCIPAL_SHARE_DIVISOR: u64 = 4;
/// Root and the gateway's own user have this part.
const TRUSTED_SHARE_DIVISOR: u64 = 2;
/// While all hold more than this part, a principal has only [`MINIMUM_SHARE_DIVISOR`].
const CROWDED_SHARE_DIVISOR: u64 = 2;
const MINIMUM_SHARE_DIVISOR: u64 = 32;

/// Tracks the gateway's descriptors that principals hold.
#[derive(Debug)]
pub(crate) struct DescriptorQuota {
    own_uid: u32,
    max: u64,
    usage: Mutex<DescriptorUsage>,
}

#[derive(Debug, Default)]
struct DescriptorUsage {
    all: u64,
    principals: HashMap<Principal, u64>,
}

/// The principal holds as many as it may now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sessions and terminals of one principal may hold {0} of the gateway's descriptors now")]
pub(crate) struct DescriptorQuotaReached(pub u64);

impl DescriptorQuota {
    /// The quota of a gateway of this user that may have so many open.
    pub(crate) fn new(own_uid: u32, max: u64) -> Arc<Self> {
        Arc::new(Self { own_uid, max, usage: Mutex::default() })
    }

    /// Takes so many of this principal's.
    ///
    /// # Errors
    /// [`DescriptorQuotaReached`].
    pub(crate) fn reserve(
        self: &Arc<Self>,
        principal: Principal,
        count: u64,
    ) -> Result<DescriptorReservation, DescriptorQuotaReached> {
        let mut usage = self.lock();
        let own = usage.principals.get(&principal).copied().unwrap_or(0);
        let is_trusted = principal.uid == 0 || principal.uid == self.own_uid;
        let divisor = if is_trusted {
            TRUSTED_SHARE_DIVISOR
        } else if usage.all + count > self.max / CROWDED_SHARE_DIVISOR {
            MINIMUM_SHARE_DIVISOR
        } else {
            PRINCIPAL_SHARE_DIVISOR
        };
        let max = self.max / divisor;
        if own + count > max {
            return Err(DescriptorQuotaReached(max));
        }
        Ok(self.add(&mut usage, principal, count))
    }

    /// Takes them whatever the bounds say: they are held already.
    pub(crate) fn reserve_unchecked(
        self: &Arc<Self>,
        principal: Principal,
        count: u64,
    ) -> DescriptorReservation {
        self.add(&mut self.lock(), principal, count)
    }

    fn add(
        self: &Arc<Self>,
        usage: &mut DescriptorUsage,
        principal: Principal,
        count: u64,
    ) -> DescriptorReservation {
        usage.all += count;
        *usage.principals.entry(principal).or_default() += count;
        DescriptorReservation { quota: self.clone(), principal, count }
    }

    fn lock(&self) -> MutexGuard<'_, DescriptorUsage> {
        self.usage.lock().expect("no code panics while it holds the descriptors' usage")
    }
}

/// Descriptors of one principal, until it is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is given back"]
pub(crate) struct DescriptorReservation {
    quota: Arc<DescriptorQuota>,
    principal: Principal,
    count: u64,
}

impl Drop for DescriptorReservation {
    fn drop(&mut self) {
        let mut usage = self.quota.lock();
        usage.all -= self.count;
        let own = usage.principals.get_mut(&self.principal);
        let left = own.map_or(0, |own| {
            *own -= self.count;
            *own
        });
        if left == 0 {
            usage.principals.remove(&self.principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uid: u32) -> Principal {
        Principal { uid }
    }

    #[test]
    fn a_principal_has_its_share_and_one_that_holds_little_always_gets_some() {
        let descriptors = DescriptorQuota::new(7, 1_000);
        let first = descriptors.reserve(of(1), 250).unwrap();
        assert_eq!(descriptors.reserve(of(1), 1).unwrap_err(), DescriptorQuotaReached(250));
        let second = descriptors.reserve(of(2), 250).unwrap();
        assert_eq!(descriptors.reserve(of(3), 32).unwrap_err(), DescriptorQuotaReached(31), "it is crowded");
        let mut held: Vec<_> = (10..20).map(|uid| descriptors.reserve(of(uid), 31).unwrap()).collect();
        held.push(descriptors.reserve(of(7), 500).unwrap());
        drop((first, second));
        assert!(descriptors.reserve(of(2), 10).is_ok());
        drop(held);
        assert_eq!(descriptors.lock().all, 0);
        assert!(descriptors.lock().principals.is_empty());
    }
}
