//! Who decides about signatures.

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use futures_util::future::BoxFuture;

use crate::{
    policy::profile::SshAgentRule,
    ssh_agent::{HostKey, NotBound},
};

/// The sandbox whose command asks.
#[derive(Debug, Clone)]
pub(crate) struct AgentOwner {
    /// The session.
    pub session_id: String,
    /// The sandbox.
    pub sandbox_id: String,
    /// The principal's user.
    pub uid: u32,
    /// What its profile lets it have.
    pub rule: SshAgentRule,
}

/// What a command wants of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SignatureRequest {
    /// A signature for this namespace, by the key with this fingerprint.
    Text {
        /// The namespace of the text.
        namespace: String,
        /// As `SHA256:...`.
        key: String,
    },
    /// A connection for logins to a host that has proven itself.
    Bind {
        /// The host's key.
        host: HostKey,
    },
    /// A login in the session that the connection is bound to.
    Login {
        /// The host's key.
        host: HostKey,
        /// The user there.
        user: String,
        /// As `SHA256:...`.
        key: String,
    },
    /// A signature of something else, as of a login in no proven session.
    Unknown {
        /// As `SHA256:...`.
        key: String,
    },
    /// A connection for logins to a host that has not proven itself.
    Unproven {
        /// What is wrong.
        problem: NotBound,
    },
    /// Neither a signature nor the list of keys.
    OtherMessage {
        /// The message's number in the protocol.
        kind: u8,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureVerdict {
    /// The agent is asked.
    Allowed,
    /// The command gets the protocol's failure.
    Denied,
}

/// Decides, and writes down what it has decided before it answers.
pub(crate) trait SignatureObserver: Debug + Send + Sync {
    /// About one request.
    fn judge<'a>(
        &'a self,
        owner: &'a AgentOwner,
        request: SignatureRequest,
    ) -> BoxFuture<'a, SignatureVerdict>;
}

/// The agents of a gateway's callers.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    observer: OnceLock<Arc<dyn SignatureObserver>>,
}

impl Agents {
    /// Sets the observer, before any sandbox is started.
    ///
    /// # Panics
    /// When there is one already.
    pub(crate) fn set_observer(&self, observer: Arc<dyn SignatureObserver>) {
        self.observer
            .set(observer)
            .expect("the observer of signatures is set once, by the terminals' context");
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn SignatureObserver>> {
        self.observer.get().cloned()
    }
}
