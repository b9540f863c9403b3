//! Brings the caller's SSH agent to a sandbox, as long as the sandbox lives.

use std::{os::unix::net::UnixListener, sync::Arc};

use super::handle::{Sandbox, SandboxLife};
use crate::sandbox::{
    agent_link::{self, AgentOwner, Agents},
    spec::AgentUse,
};

impl Sandbox {
    /// Answers at this socket until the sandbox ends. After a restart of the gateway nobody does.
    pub(super) fn serve_agent(
        self: &Arc<Self>,
        listener: UnixListener,
        agent: AgentUse,
        owner: AgentOwner,
        agents: &Arc<Agents>,
    ) {
        // Without one nobody decides, and the socket refuses all.
        let Some(observer) = agents.observer() else { return };
        let sandbox = self.clone();
        tokio::spawn(async move {
            let AgentUse { agent, held } = agent;
            tokio::select! {
                Err(error) = agent_link::serve(listener, owner, agent, observer) => {
                    tracing::error!(sandbox.id = %sandbox.id(), %error, "the SSH agent cannot be served");
                }
                () = sandbox.wait_until(SandboxLife::Ended) => {}
            }
            drop(held);
        });
    }
}
