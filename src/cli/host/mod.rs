//! The host: serving a gateway, what the host offers, what gateways and sessions left, the manual.

pub mod doctor;
mod installed_agents;
mod kept_caches;
pub mod manual;
pub mod prune;
pub mod reap;
pub mod serve;
mod trial;
