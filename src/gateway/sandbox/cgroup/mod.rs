//! The gateway's directories in the cgroup trees: one for the gateway, in it one for each principal, in these one for
//! each sandbox.

pub mod gateway;
pub mod principal;
pub mod sandbox;

pub use principal::PrincipalLimits;
pub use sandbox::{Killed, SandboxCgroup};
