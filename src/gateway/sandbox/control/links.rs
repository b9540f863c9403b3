//! What the sandboxes of a gateway are connected with.

use std::sync::Arc;

use crate::sandbox::{agent_link::Agents, gate_link::Gates, net_link::Nets};

/// What the sandboxes of a gateway are connected with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SandboxLinks<'a> {
    /// The gates.
    pub gates: &'a Arc<Gates>,
    /// The net processes.
    pub nets: &'a Arc<Nets>,
    /// The callers' SSH agents.
    pub agents: &'a Arc<Agents>,
}
