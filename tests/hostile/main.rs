//! Hostile callers and hostile commands: races, and everything that can be used up.
//!
//! The invariants: K, a cgroup that is empty and gone; X, one outcome; L, back to the baseline; N, others go on;
//! H, the host's marker untouched.

#[path = "../support/mod.rs"]
mod support;

mod exhaustion;
mod quotas;
mod races;
