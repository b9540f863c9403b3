//! What one gateway has of its host for all its sandboxes: host ids, pseudo-terminals, cgroups, and a warm launcher.

pub(crate) mod host_ids;
pub(crate) mod nested;
pub(crate) mod processors;
pub(crate) mod ptys;
mod resources;
pub(crate) mod subordinate_ids;
pub(crate) mod warm_launcher;

pub use resources::Host;
pub(crate) use resources::HostCgroupError;
