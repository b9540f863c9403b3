//! The policy in force: one set at a time, replaced as a whole, counted.
//!
//! Who has begun to judge by one set goes on with it. A set that cannot be loaded changes nothing, and is remembered
//! for who asks.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::PolicySet;

/// The set in force.
#[derive(Debug)]
pub struct InForce {
    current: RwLock<Arc<PolicySet>>,
    refused: Mutex<Option<String>>,
}

impl InForce {
    /// With a first set.
    pub fn new(first: PolicySet) -> Self {
        Self { current: RwLock::new(Arc::new(first)), refused: Mutex::default() }
    }

    /// The set in force now.
    pub fn current(&self) -> Arc<PolicySet> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another in force, as the next generation; answers with the generation. One that says the same changes
    /// nothing.
    pub fn replace(&self, set: PolicySet) -> u64 {
        *self.lock() = None;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.digest() != set.digest() {
            *current = Arc::new(set.with_generation(current.generation() + 1));
        }
        current.generation()
    }

    /// Remembers that a newer one could not be loaded. The one in force stays.
    pub fn refuse(&self, problem: String) {
        *self.lock() = Some(problem);
    }

    /// Why a newer one is not in force, when there is one.
    pub fn refused(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_says_something_else_is_the_next_generation() {
        let set = |name: &str| {
            PolicySet::parse("p", &format!("default_profile = '{name}'\n[profile.{name}]\n")).unwrap()
        };
        let in_force = InForce::new(set("a"));
        let before = in_force.current();
        assert_eq!(in_force.replace(set("a")), 1);
        in_force.refuse("broken".into());
        assert_eq!(in_force.refused().as_deref(), Some("broken"));
        assert_eq!(in_force.current().digest(), before.digest());
        assert_eq!(in_force.replace(set("b")), 2);
        assert_eq!(in_force.refused(), None);
        assert_eq!(before.generation(), 1);
    }
}
