//! What persons have approved of connections that are still open: each has a word for it, which its further questions say again.
//!
//! A net process forgets the word with the connection. It holds for one place, in one sandbox, under one policy. Under another
//! policy it only shows that the connection was approved (decision 0380).

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ulid::Ulid;

use crate::policy::connect::Approved;

/// Words that are known. The oldest goes: who says it then is asked about again.
const GRANTS_MAX: usize = 4_096;

/// What was approved. Only a word that was given for it leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::terminal) struct ConnectGrant {
    /// The sandbox.
    pub(in crate::terminal) sandbox: String,
    /// The name or address, as the rules read it, with its port.
    pub(in crate::terminal) destination: String,
    /// Of the policy.
    pub(in crate::terminal) generation: u64,
    /// The addresses that were approved; none: the name was.
    pub(in crate::terminal) addresses: Vec<IpAddr>,
}

impl ConnectGrant {
    /// What it allows under a policy: nothing under another one than its own.
    pub(in crate::terminal) fn approved_under(&self, generation: u64) -> Approved<'_> {
        match (self.generation == generation, self.addresses.as_slice()) {
            (false, _) => Approved::Nothing,
            (true, []) => Approved::Name,
            (true, addresses) => Approved::Addresses(addresses),
        }
    }
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
    pub(in crate::terminal) fn give(&self, grant: ConnectGrant) -> String {
        let mut grants = self.lock();
        while grants.by_number.len() >= GRANTS_MAX {
            grants.by_number.pop_first();
        }
        grants.last_number += 1;
        let (number, secret) = (grants.last_number, Ulid::generate());
        grants.by_number.insert(number, (secret, grant));
        format!("{number}.{secret}")
    }

    /// What was approved with this word, under whichever policy; `None`: nothing of this place in this sandbox was.
    pub(in crate::terminal) fn find(
        &self,
        word: &str,
        (sandbox, destination): (&str, &str),
    ) -> Option<ConnectGrant> {
        let (number, secret) = word.split_once('.')?;
        let grants = self.lock();
        let (own_secret, grant) = grants.by_number.get(&number.parse().ok()?)?;
        if Ulid::from_string(secret).ok()? != *own_secret {
            return None;
        }
        let is_for_this = (grant.sandbox.as_str(), grant.destination.as_str()) == (sandbox, destination);
        is_for_this.then(|| grant.clone())
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
        let found = grants.find(&word, ("s", "a.test:443")).expect("it was given");
        assert_eq!(found.approved_under(1), Approved::Name);
        assert_eq!(found.approved_under(2), Approved::Nothing, "another policy is in force");
        for other in [("t", "a.test:443"), ("s", "a.test:80"), ("s", "b.test:443")] {
            assert_eq!(grants.find(&word, other), None, "{other:?}");
        }
        let other_secret = format!("1.{}", Ulid::generate());
        for never_given in ["", "yes", "1", "1.", "2.x", &other_secret] {
            assert_eq!(grants.find(never_given, ("s", "a.test:443")), None, "{never_given:?}");
        }
        grants.give(grant("a.test:443", 2));
        assert_eq!(grants.find(&word, ("s", "a.test:443")), Some(found), "it was approved all the same");
    }

    #[test]
    fn the_oldest_words_go_when_there_are_too_many() {
        let grants = ConnectGrants::default();
        let first = grants.give(grant("a.test:443", 1));
        for _ in 1..GRANTS_MAX {
            grants.give(grant("b.test:443", 1));
        }
        assert!(grants.find(&first, ("s", "a.test:443")).is_some(), "there is room for as many");
        let last = grants.give(grant("b.test:443", 1));
        assert_eq!(grants.find(&first, ("s", "a.test:443")), None);
        assert!(grants.find(&last, ("s", "b.test:443")).is_some());
    }
}
