//! Answers the commands of one sandbox.

use std::{io, os::unix::net::UnixListener, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::Semaphore,
    time::timeout,
};

use super::{
    agents::{AgentOwner, SignatureObserver, SignatureRequest, SignatureVerdict},
    callers_agent::CallersAgent,
};
use crate::ssh_agent::{self, Binding, MAX_MESSAGE_BYTES, Request, SignRequest};

/// Connections of one sandbox at once. More wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 8;
/// Descriptors of one sandbox: its listener, and two for each connection.
pub(crate) const MAX_DESCRIPTORS: u64 = 1 + 2 * MAX_CONNECTIONS as u64;
/// The longest request, in bytes. One for a signature of git's has about a thousand.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// How long a command may take to send a request, and a connection may rest.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an agent may take to answer: a person may have to touch a key.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// After an error of accept(2), as without free descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Who answers, for whom.
#[derive(Debug)]
struct Relay {
    owner: AgentOwner,
    agent: CallersAgent,
    observer: Arc<dyn SignatureObserver>,
}

/// Serves until it is dropped.
pub(crate) async fn serve(
    listener: UnixListener,
    owner: AgentOwner,
    agent: CallersAgent,
    observer: Arc<dyn SignatureObserver>,
) -> io::Result<std::convert::Infallible> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let relay = Arc::new(Relay { owner, agent, observer });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Its end is the end of all of them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((command, _)) => {
                let relay = relay.clone();
                connections.spawn(async move {
                    let _place = place;
                    if let Err(error) = relay.answer_all(command).await {
                        tracing::debug!(sandbox.id = %relay.owner.sandbox_id, %error, "a connection to the SSH agent ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(sandbox.id = %relay.owner.sandbox_id, %error, "no connection to the SSH agent can be accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

impl Relay {
    async fn answer_all(&self, mut command: UnixStream) -> io::Result<()> {
        let mut binding = None;
        loop {
            let message = timeout(REQUEST_TIMEOUT, read_message(&mut command, MAX_REQUEST_BYTES)).await??;
            let answer = self.answer(&message, &mut binding).await.unwrap_or_else(ssh_agent::failure);
            let answer = ssh_agent::frame(&answer);
            timeout(REQUEST_TIMEOUT, command.write_all(&answer)).await??;
        }
    }

    /// The answer to one message; none: a failure.
    async fn answer(&self, message: &[u8], binding: &mut Option<Binding>) -> Option<Vec<u8>> {
        match ssh_agent::read_request(message) {
            Request::Identities => {
                let listed = self.ask_agent(&ssh_agent::list_keys()).await?;
                ssh_agent::identities(&listed)
            }
            Request::Sign(request) => self.sign(&request, binding.as_ref()).await,
            Request::Other(_) if ssh_agent::is_binding(message) && binding.is_none() => {
                let bound = self.bind(message).await?;
                *binding = Some(bound);
                Some(ssh_agent::success())
            }
            Request::Other(kind) => {
                // Refused whatever the observer says.
                self.observer.judge(&self.owner, SignatureRequest::OtherMessage { kind }).await;
                None
            }
        }
    }

    async fn bind(&self, message: &[u8]) -> Option<Binding> {
        match ssh_agent::binding(message) {
            Ok(bound) => {
                let wanted = SignatureRequest::Bind { host: bound.host_key.clone() };
                let verdict = self.observer.judge(&self.owner, wanted).await;
                (verdict == SignatureVerdict::Allowed).then_some(bound)
            }
            Err(problem) => {
                self.observer.judge(&self.owner, SignatureRequest::Unproven { problem }).await;
                None
            }
        }
    }

    async fn sign(&self, request: &SignRequest, binding: Option<&Binding>) -> Option<Vec<u8>> {
        let key = ssh_agent::fingerprint(&request.key);
        let login = binding.and_then(|bound| Some((bound, bound.login(&request.data, &request.key).ok()?)));
        let wanted = match (ssh_agent::namespace(&request.data), login) {
            (Ok(namespace), _) => SignatureRequest::Text { namespace, key },
            (Err(_), Some((bound, user))) => {
                SignatureRequest::Login { host: bound.host_key.clone(), user, key }
            }
            (Err(_), None) => SignatureRequest::Unknown { key },
        };
        let is_known = !matches!(wanted, SignatureRequest::Unknown { .. });
        match self.observer.judge(&self.owner, wanted).await {
            SignatureVerdict::Allowed if is_known => {}
            SignatureVerdict::Allowed | SignatureVerdict::Denied => return None,
        }
        let answer = self.ask_agent(&request.message()).await?;
        ssh_agent::is_signature(&answer).then_some(answer)
    }

    /// The agent's answer to one message, on a connection of its own: no state of the agent's outlasts it.
    async fn ask_agent(&self, message: &[u8]) -> Option<Vec<u8>> {
        let exchange = async {
            let mut agent = self.agent.connect().await.map_err(io::Error::other)?;
            agent.write_all(&ssh_agent::frame(message)).await?;
            read_message(&mut agent, MAX_MESSAGE_BYTES).await
        };
        let asked = timeout(ANSWER_TIMEOUT, exchange).await.map_err(io::Error::from).flatten();
        asked
            .inspect_err(|error| {
                let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(sandbox.id = %self.owner.sandbox_id, %error, cause, "the caller's SSH agent does not answer");
            })
            .ok()
    }
}

/// One message, without its length.
async fn read_message(stream: &mut UnixStream, max_bytes: usize) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    if length > max_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
