//! The host: serving a gateway, what the host offers, what an earlier gateway left, the manual.

pub mod doctor;
mod installed_agents;
pub mod manual;
pub mod reap;
pub mod serve;
