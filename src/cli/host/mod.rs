//! The host: serving a gateway, what the host offers, what gateways and sessions left, the manual.

pub mod doctor;
pub mod manual;
pub mod prune;
pub mod serve;
