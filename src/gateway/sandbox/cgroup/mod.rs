//! The gateway's directories in the cgroup trees: one for the gateway, in it one for each principal, in these one for
//! each sandbox.

pub(crate) mod gateway;
mod principal;
mod sandbox;

pub(crate) use principal::PrincipalLimits;
pub use sandbox::{Killed, SandboxCgroup};
