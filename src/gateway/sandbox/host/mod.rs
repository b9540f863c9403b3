//! What one gateway has of its host for all its sandboxes: host ids, pseudo-terminals, cgroups, and a warm launcher.

pub mod host_ids;
pub mod nested;
pub mod processors;
pub mod ptys;
mod resources;
pub mod subordinate_ids;
pub mod warm_launcher;

pub use resources::{Host, HostCgroupError};
