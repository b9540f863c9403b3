//! What persons have approved of connections that are still open: each has a word for it, which its further questions say again.
//!
//! A net process forgets the word with the connection. It holds for one place, in one sandbox, under one policy.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ulid::Ulid;

/// Words that are known. The oldest goes: who says it then is asked about again.
const GRANTS_MAX: usize = 4_096;

/// What was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectGrant {
    /// The sandbox.
    pub(super) sandbox: String,
    /// The name or address, as the rules read it, with its port.
    pub(super) destination: String,
    /// Of the policy.
    pub(super) generation: u64,
    /// The addresses that were approved; none: the name was.
    pub(super) addresses: Vec<IpAddr>,
}

/// The words that are known.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectGrants(Mutex<Grants>);

/// In the order in which they were given.
#[derive(Debug, Default)]
struct Grants {
    by_number: BTreeMap<u64, (Ulid, ConnectGrant)>,
    last_number: u64,
}

impl ConnectGrants {
    /// The word for what was approved.
    pub(super) fn give(&self, grant: ConnectGrant) -> String {
        let mut grants = self.lock();
        // Those of another policy are void.
        grants.by_number.retain(|_, (_, other)| other.generation >= grant.generation);
        while grants.by_number.len() >= GRANTS_MAX {
            grants.by_number.pop_first();
        }
        grants.last_number += 1;
        let (number, secret) = (grants.last_number, Ulid::generate());
        grants.by_number.insert(number, (secret, grant));
        format!("{number}.{secret}")
    }

    /// The addresses that were approved with this word; `None`: nothing was, of this place in this sandbox under this policy.
    pub(super) fn approved(
        &self,
        word: &str,
        (sandbox, destination, generation): (&str, &str, u64),
    ) -> Option<Vec<IpAddr>> {
        let (number, secret) = word.split_once('.')?;
        let grants = self.lock();
        let (own_secret, grant) = grants.by_number.get(&number.parse().ok()?)?;
        if Ulid::from_string(secret).ok()? != *own_secret {
            return None;
        }
        let is_for_this = (grant.sandbox.as_str(), grant.destination.as_str(), grant.generation)
            == (sandbox, destination, generation);
        is_for_this.then(|| grant.addresses.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Grants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(destination: &str, generation: u64) -> ConnectGrant {
        ConnectGrant {
            sandbox: "s".to_owned(),
            destination: destination.to_owned(),
            generation,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn a_word_holds_for_one_place_in_one_sandbox_under_one_policy() {
        let grants = ConnectGrants::default();
        let word = grants.give(grant("a.test:443", 1));
        assert_eq!(grants.approved(&word, ("s", "a.test:443", 1)), Some(Vec::new()));
        for other in
            [("t", "a.test:443", 1), ("s", "a.test:80", 1), ("s", "b.test:443", 1), ("s", "a.test:443", 2)]
        {
            assert_eq!(grants.approved(&word, other), None, "{other:?}");
        }
        assert_eq!(grants.approved("", ("s", "a.test:443", 1)), None);
        grants.give(grant("a.test:443", 2));
        assert_eq!(grants.approved(&word, ("s", "a.test:443", 1)), None, "another policy is in force");
    }

    #[test]
    fn the_oldest_words_go_when_there_are_too_many() {
        let grants = ConnectGrants::default();
        let first = grants.give(grant("a.test:443", 1));
        for _ in 1..GRANTS_MAX {
            grants.give(grant("b.test:443", 1));
        }
        assert!(grants.approved(&first, ("s", "a.test:443", 1)).is_some(), "there is room for as many");
        let last = grants.give(grant("b.test:443", 1));
        assert_eq!(grants.approved(&first, ("s", "a.test:443", 1)), None);
        assert!(grants.approved(&last, ("s", "b.test:443", 1)).is_some());
    }
}
