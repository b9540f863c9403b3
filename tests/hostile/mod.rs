//! Hostile callers and hostile commands: races, and everything that can be used up.
//!
//! The invariants: K, a cgroup that is empty and gone; X, one outcome; L, back to the baseline; N, others go on;
//! H, the host's marker untouched.

mod big;
mod counted;
mod descriptors;
mod environment;
mod escapes;
mod exhaustion;
mod flood;
mod governing;
mod hung;
mod principals;
mod quotas;
mod races;
mod rights;
mod set_group_id;
mod strangers;
mod terminals;
mod unread;
mod untrusted;
