//! The gate of a sandbox, as far as this gateway has it.

use std::{path::Path, sync::Arc};

use crate::{
    link::LinkError,
    sandbox::gate_link::{GateHello, GateLink, GateOwner, Gates},
};

/// The gate of a sandbox, as far as this gateway has it.
#[derive(Debug)]
pub(crate) enum SandboxGate {
    /// Its profile wants none.
    None,
    /// It is there.
    Linked(Arc<GateLink>),
    /// It was gone, or did not answer, when this gateway came. What runs goes on; nothing more is executed.
    Lost,
}

/// Connects to the gate that listens on a socket; none where there is no socket.
pub(super) async fn link_gate(
    socket: Option<&Path>,
    gates: &Arc<Gates>,
    owner: GateOwner,
) -> Result<SandboxGate, LinkError> {
    let Some(socket) = socket else { return Ok(SandboxGate::None) };
    let hello = GateHello::greet(socket, &owner.sandbox_id).await?;
    gates.link(owner, hello).map(SandboxGate::Linked)
}
