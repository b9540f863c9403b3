//! What sessions and terminals hold of the gateway's descriptors, counted by principal.
//!
//! Counted by what each kind takes at most, when it begins, and given back with it. A principal has a part of what the
//! gateway may open; while all together hold half of it, only principals that hold little get more, so that another one
//! always has its session. Opens and closes nothing itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use super::Principal;

/// One principal has at most this part of the gateway's descriptors.
const PRINCIPAL_PART: u64 = 4;
/// Root and the gateway's own user have this part.
const TRUSTED_PART: u64 = 2;
/// While all hold more than this part, a principal has only [`FEW_PART`].
const CROWDED_PART: u64 = 2;
const FEW_PART: u64 = 32;

/// The books.
#[derive(Debug)]
pub struct Descriptors {
    own_uid: u32,
    most: u64,
    held: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    all: u64,
    principals: HashMap<Principal, u64>,
}

/// The principal holds as many as it may now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sessions and terminals of one principal may hold {0} of the gateway's descriptors now")]
pub struct DescriptorsReached(pub u64);

impl Descriptors {
    /// Of a gateway of this user that may have so many open.
    pub fn new(own_uid: u32, most: u64) -> Arc<Self> {
        Arc::new(Self { own_uid, most, held: Mutex::default() })
    }

    /// Takes so many of this principal's.
    ///
    /// # Errors
    /// [`DescriptorsReached`].
    pub fn take(self: &Arc<Self>, principal: Principal, count: u64) -> Result<Held, DescriptorsReached> {
        let mut books = self.lock();
        let own = books.principals.get(&principal).copied().unwrap_or(0);
        let is_trusted = principal.uid == 0 || principal.uid == self.own_uid;
        let part = if is_trusted {
            TRUSTED_PART
        } else if books.all + count > self.most / CROWDED_PART {
            FEW_PART
        } else {
            PRINCIPAL_PART
        };
        let bound = self.most / part;
        if own + count > bound {
            return Err(DescriptorsReached(bound));
        }
        Ok(self.enter(&mut books, principal, count))
    }

    /// Takes them whatever the bounds say: they are held already.
    pub fn take_anyway(self: &Arc<Self>, principal: Principal, count: u64) -> Held {
        self.enter(&mut self.lock(), principal, count)
    }

    fn enter(self: &Arc<Self>, books: &mut Books, principal: Principal, count: u64) -> Held {
        books.all += count;
        *books.principals.entry(principal).or_default() += count;
        Held { descriptors: self.clone(), principal, count }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.held.lock().expect("no code panics while it holds the descriptors' books")
    }
}

/// Descriptors of one principal, until it is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is given back"]
pub struct Held {
    descriptors: Arc<Descriptors>,
    principal: Principal,
    count: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut books = self.descriptors.lock();
        books.all -= self.count;
        let own = books.principals.get_mut(&self.principal);
        let left = own.map_or(0, |own| {
            *own -= self.count;
            *own
        });
        if left == 0 {
            books.principals.remove(&self.principal);
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
    fn a_principal_has_its_part_and_whoever_holds_little_always_gets_some() {
        let descriptors = Descriptors::new(7, 1_000);
        let first = descriptors.take(of(1), 250).unwrap();
        assert_eq!(descriptors.take(of(1), 1).unwrap_err(), DescriptorsReached(250));
        let second = descriptors.take(of(2), 250).unwrap();
        assert_eq!(descriptors.take(of(3), 32).unwrap_err(), DescriptorsReached(31), "it is crowded");
        let mut held: Vec<_> = (10..20).map(|uid| descriptors.take(of(uid), 31).unwrap()).collect();
        held.push(descriptors.take(of(7), 500).unwrap());
        drop((first, second));
        assert!(descriptors.take(of(2), 10).is_ok());
        drop(held);
        assert_eq!(descriptors.lock().all, 0);
        assert!(descriptors.lock().principals.is_empty());
    }
}
