//! Brings a caller's SSH agent to the commands of a sandbox, for the signatures that its profile allows.
//!
//! The gateway listens on a socket that is shown in the sandbox. It reads each request, asks the observer about a signature, and writes an
//! allowed request again to the caller's agent. Everything else is refused here: no key is added, removed or locked, nothing logs in
//! anywhere. A command never has a connection to the agent.

mod agents;
mod callers_agent;
mod serving;

pub(crate) use agents::Agents;
pub(crate) use agents::{AgentOwner, SignatureObserver, SignatureRequest, SignatureVerdict};
pub(crate) use callers_agent::CallersAgent;
pub(crate) use serving::MAX_DESCRIPTORS;
pub(crate) use serving::serve;
