//! The active policy: one set at a time, replaced as a whole.
//!
//! A request keeps the set that it was first evaluated with. A set that cannot be loaded changes nothing and is reported
//! by the load status. Times are given by the caller, because policy reads no clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{PolicyFileError, PolicySet};

/// The active policy, and how its loads went.
#[derive(Debug)]
pub struct ActivePolicy {
    current: RwLock<Arc<PolicySet>>,
    status: Mutex<LoadStatus>,
}

/// How loads went since the gateway started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadStatus {
    /// Loads that became the active policy.
    pub loads: u64,
    /// Loads of the same files as the active policy.
    pub unchanged: u64,
    /// Loads that were refused.
    pub failed: u64,
    /// When the active policy was loaded: milliseconds since 1970.
    pub loaded_at_unix_ms: u64,
    /// The last load, if it was refused.
    pub last_failure: Option<FailedLoad>,
}

/// A load that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedLoad {
    /// What is wrong.
    pub problem: String,
    /// The place in a file, if it has one.
    pub place: Option<PolicyFileError>,
    /// When it was refused: milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// What a load did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOutcome {
    /// Another policy is active, with this generation.
    Replaced(u64),
    /// The files are the same. The active policy stays.
    Unchanged,
}

impl ActivePolicy {
    /// Begins with a first set, loaded at this time.
    pub fn new(first: PolicySet, at_unix_ms: u64) -> Self {
        let status = LoadStatus { loads: 1, loaded_at_unix_ms: at_unix_ms, ..LoadStatus::default() };
        Self { current: RwLock::new(Arc::new(first)), status: Mutex::new(status) }
    }

    /// The active policy.
    pub fn current(&self) -> Arc<PolicySet> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Activates a set, as the next generation. A set of the same files changes nothing.
    pub fn replace(&self, set: PolicySet, at_unix_ms: u64) -> LoadOutcome {
        let mut status = self.lock();
        status.last_failure = None;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.digest() == set.digest() {
            status.unchanged += 1;
            return LoadOutcome::Unchanged;
        }
        status.loads += 1;
        status.loaded_at_unix_ms = at_unix_ms;
        *current = Arc::new(set.with_generation(current.generation() + 1));
        LoadOutcome::Replaced(current.generation())
    }

    /// Records that a set could not be loaded. The active policy stays.
    pub fn record_failure(&self, failure: FailedLoad) {
        let mut status = self.lock();
        status.failed += 1;
        status.last_failure = Some(failure);
    }

    /// How loads went.
    pub fn load_status(&self) -> LoadStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LoadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
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
        let active = ActivePolicy::new(set("a"), 1);
        let before = active.current();
        assert_eq!(active.replace(set("a"), 2), LoadOutcome::Unchanged);
        assert_eq!(active.load_status().loaded_at_unix_ms, 1);
        active.record_failure(FailedLoad { problem: "broken".into(), place: None, at_unix_ms: 3 });
        assert_eq!(active.load_status().last_failure.unwrap().problem, "broken");
        assert_eq!(active.current().digest(), before.digest());
        assert_eq!(active.replace(set("b"), 4), LoadOutcome::Replaced(2));
        let status = active.load_status();
        assert_eq!((status.loads, status.unchanged, status.failed), (2, 1, 1));
        assert_eq!((status.loaded_at_unix_ms, status.last_failure), (4, None));
        assert_eq!(before.generation(), 1);
    }
}
