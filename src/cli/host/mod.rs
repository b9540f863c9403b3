//! The host: serving a gateway, what the host offers, what gateways and sessions left, the manual.

pub(super) mod doctor;
pub(super) mod manual;
pub(super) mod prune;
pub(super) mod serve;
