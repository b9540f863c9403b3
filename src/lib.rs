//! Provost: a sandboxed command-execution gateway.

pub mod policy;
pub mod proto;
