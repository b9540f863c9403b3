//! The ACP shim and the conformance suite for ACP terminals, from outside: the real binary between agents and editors
//! that were written with the official SDKs, or by third parties.

mod agents;
mod conformance;
mod fixture;
mod fuzz;
mod kept_shell;
mod known_agents;
mod official;
mod registry;
mod shim;
mod shim_content;
mod shim_coverage;
mod shim_ends;
mod shim_gateway;
pub(crate) mod shim_peer;
mod shim_secrets;
mod shim_sessions;
mod shim_subagents;
mod shim_subreaper;
