//! The policy in force: one set at a time, replaced as a whole, counted.
//!
//! Who has begun to judge by one set goes on with it. A set that cannot be loaded changes nothing, and is remembered
//! for who asks. What time it is, whoever loads says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{PolicyFileError, PolicySet};

/// The set in force.
#[derive(Debug)]
pub struct InForce {
    current: RwLock<Arc<PolicySet>>,
    loading: Mutex<Loading>,
}

/// How loading has gone since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loading {
    /// Loads that were put in force.
    pub loads: u64,
    /// Loads that said the same as the set in force.
    pub unchanged: u64,
    /// Loads that were refused.
    pub refused: u64,
    /// When the set in force was loaded: milliseconds since 1970.
    pub loaded_at_unix_ms: u64,
    /// Why a newer one is not in force, when there is one.
    pub problem: Option<Refusal>,
}

/// A load that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong; on one line when it has a place.
    pub problem: String,
    /// Where, when it is a place in a file.
    pub place: Option<PolicyFileError>,
    /// When it was refused: milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// What a load did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// Another policy is in force, of this generation.
    By(u64),
    /// It says the same as the one in force, which stays.
    Unchanged,
}

impl InForce {
    /// With a first set, loaded at this time.
    pub fn new(first: PolicySet, at_unix_ms: u64) -> Self {
        let loading = Loading { loads: 1, loaded_at_unix_ms: at_unix_ms, ..Loading::default() };
        Self { current: RwLock::new(Arc::new(first)), loading: Mutex::new(loading) }
    }

    /// The set in force now.
    pub fn current(&self) -> Arc<PolicySet> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another in force, as the next generation. One that says the same changes nothing.
    pub fn replace(&self, set: PolicySet, at_unix_ms: u64) -> Replaced {
        let mut loading = self.lock();
        loading.problem = None;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.digest() == set.digest() {
            loading.unchanged += 1;
            return Replaced::Unchanged;
        }
        loading.loads += 1;
        loading.loaded_at_unix_ms = at_unix_ms;
        *current = Arc::new(set.with_generation(current.generation() + 1));
        Replaced::By(current.generation())
    }

    /// Remembers that a newer one could not be loaded. The one in force stays.
    pub fn refuse(&self, refusal: Refusal) {
        let mut loading = self.lock();
        loading.refused += 1;
        loading.problem = Some(refusal);
    }

    /// How loading has gone.
    pub fn loading(&self) -> Loading {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
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
        let in_force = InForce::new(set("a"), 1);
        let before = in_force.current();
        assert_eq!(in_force.replace(set("a"), 2), Replaced::Unchanged);
        assert_eq!(in_force.loading().loaded_at_unix_ms, 1);
        in_force.refuse(Refusal { problem: "broken".into(), place: None, at_unix_ms: 3 });
        assert_eq!(in_force.loading().problem.unwrap().problem, "broken");
        assert_eq!(in_force.current().digest(), before.digest());
        assert_eq!(in_force.replace(set("b"), 4), Replaced::By(2));
        let loading = in_force.loading();
        assert_eq!((loading.loads, loading.unchanged, loading.refused), (2, 1, 1));
        assert_eq!((loading.loaded_at_unix_ms, loading.problem), (4, None));
        assert_eq!(before.generation(), 1);
    }
}
