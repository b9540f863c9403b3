//! Adopts a sandbox that an earlier gateway has started.
//!
//! Discovery changes nothing: a sandbox that does not answer, or answers with unknown messages, is left as it is,
//! and the error says why. Only [`AdoptableSandbox::take_over`] makes it this gateway's.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};

use crate::{
    policy::{PtySize, profile::Network},
    proto::supervisor::{
        EffectiveConfinement, Exit, FromSupervisor, HeldTerminal, HelloResponse, ListTerminals, Started,
        ToSupervisor, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::{
        control::{
            cleanup::Cleanup,
            connection::{self, ControlConnectError, ControlConnection, ControlError},
            gate::SandboxGate,
            handle::{AnsweredSandbox, Sandbox},
            links::SandboxLinks,
            listener::Listener,
        },
        counters::SandboxCounters,
        gate_link::{GateHello, GateOwner, Gates},
        host::Host,
        net_link::NetOwner,
        restore::stale,
        sandbox_state::{self, SandboxState, SandboxStateError},
    },
    sys::{
        async_fd,
        fdpass::{self, FrameReceiver, ReceiveError, ReceiveStatus, ReceivedFrame},
        process, ring,
    },
    wire::{self, gate::SOCKET_NAME},
};

/// How long a supervisor may take for one answer. One that takes longer is stopped, or hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a sandbox that may be alive is not adopted.
#[derive(Debug, thiserror::Error)]
pub enum SandboxAdoptError {
    /// Its record cannot be read.
    #[error(transparent)]
    State(#[from] SandboxStateError),
    /// Its socket is missing while its cgroup has processes.
    #[error("its socket is not there, and something runs in its group")]
    Unreachable,
    /// Its socket cannot be connected.
    #[error("connect to its supervisor")]
    Dial(#[source] io::Error),
    /// The supervisor does not answer.
    #[error("its supervisor does not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    /// The handshake failed.
    #[error(transparent)]
    Connect(#[from] ControlConnectError),
    /// The supervisor's bytes are not valid frames.
    #[error("its supervisor's words cannot be read")]
    Receive(#[from] ReceiveError),
    /// Another sandbox answers on its socket.
    #[error("another sandbox, {0:?}, answers in its place")]
    WrongSandbox(String),
    /// It sent no pidfd of a supervisor.
    #[error("its supervisor does not prove which process it is")]
    Unverified,
    /// The gateway has no descriptors left for it.
    #[error("hold the sandbox's descriptors")]
    Descriptors(#[source] io::Error),
    /// A descriptor is not an output ring.
    #[error("the output of {0} cannot be used")]
    Ring(String, #[source] ring::RingOpenError),
}

/// The state of a sandbox whose directory was found.
#[derive(Debug)]
pub enum Discovered {
    /// It runs and answers.
    Alive(Box<AdoptableSandbox>),
    /// It has ended. Its record, if that can be read.
    Dead(Option<Box<SandboxState>>),
}

/// A sandbox that has answered. Dropping this leaves it alone.
#[derive(Debug)]
pub struct AdoptableSandbox {
    /// Its record.
    pub state: SandboxState,
    /// Its terminals.
    pub terminals: Vec<DiscoveredTerminal>,
    directory: PathBuf,
    effective_confinement: EffectiveConfinement,
    supervisor: AsyncFd<OwnedFd>,
    client: HandshakeClient,
    gate: DiscoveredGate,
}

/// The gate of a sandbox that has answered.
#[derive(Debug)]
enum DiscoveredGate {
    /// It has none.
    None,
    Answered(Box<GateHello>),
    /// It does not answer. The sandbox is adopted all the same: its commands go on and are governed.
    Lost,
}

/// A terminal that a supervisor holds.
#[derive(Debug)]
pub struct DiscoveredTerminal {
    /// Its id.
    pub id: String,
    /// The metadata that the gateway stored when it spawned the terminal.
    pub metadata: Bytes,
    /// As the supervisor saw it.
    pub started: Started,
    /// The ring of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// The ring of stderr, when it is separate.
    pub stderr: Option<ring::RingReader>,
    /// The present size of its pseudo-terminal, when it has one.
    pub pty: Option<PtySize>,
    /// How it ended and how long ago, when it has.
    pub ended: Option<(Box<Exit>, Duration)>,
}

/// Contacts the supervisor of a sandbox's directory and lists its terminals.
///
/// # Errors
/// [`AdoptError`]: it may live, and is as it was.
pub async fn discover(directory: &Path) -> Result<Discovered, SandboxAdoptError> {
    let socket = match stale::dial(directory) {
        Ok(socket) => OwnedFd::from(socket),
        // The socket was removed: it is made before the record, and before anything runs.
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_processes(directory) => {
            return Err(SandboxAdoptError::Unreachable);
        }
        Err(error) if stale::is_gone(&error) => {
            return Ok(Discovered::Dead(sandbox_state::read(directory).ok().map(Box::new)));
        }
        Err(error) => return Err(SandboxAdoptError::Dial(error)),
    };
    let state = sandbox_state::read(directory)?;
    let mut talk = HandshakeClient::new(socket)?;
    let (answer, mut descriptors) = match talk.hello().await {
        // It ended before it answered.
        Err(HandshakeError::Ended) => return Ok(Discovered::Dead(Some(Box::new(state)))),
        greeted => greeted?,
    };
    if answer.sandbox_id != state.id {
        return Err(SandboxAdoptError::WrongSandbox(answer.sandbox_id));
    }
    let supervisor = descriptors.pop().ok_or(SandboxAdoptError::Unverified)?;
    match process::is_namespace_init(supervisor.as_fd()).map_err(SandboxAdoptError::Descriptors)? {
        Some(true) => {}
        Some(false) => return Err(SandboxAdoptError::Unverified),
        None => return Ok(Discovered::Dead(Some(Box::new(state)))),
    }
    let held = match talk.list().await {
        Err(HandshakeError::Ended) => return Ok(Discovered::Dead(Some(Box::new(state)))),
        listed => listed?,
    };
    let supervisor = async_fd::register(supervisor, Interest::READABLE)
        .map_err(|unwatched| SandboxAdoptError::Descriptors(unwatched.cause))?;
    let effective_confinement = answer.effective_confinement.unwrap_or_default();
    let gate = discover_gate(directory, &state).await;
    let directory = directory.to_owned();
    Ok(Discovered::Alive(Box::new(AdoptableSandbox {
        state,
        terminals: held,
        directory,
        effective_confinement,
        supervisor,
        client: talk,
        gate,
    })))
}

async fn discover_gate(directory: &Path, state: &SandboxState) -> DiscoveredGate {
    if !state.gated {
        return DiscoveredGate::None;
    }
    match GateHello::greet(&directory.join(SOCKET_NAME), &state.id).await {
        Ok(hello) => DiscoveredGate::Answered(Box::new(hello)),
        Err(error) => {
            tracing::error!(sandbox.id = %state.id, %error, "its gate does not answer: it takes no new commands");
            DiscoveredGate::Lost
        }
    }
}

/// Whether the cgroup of the sandbox in this directory has processes.
fn has_processes(directory: &Path) -> bool {
    let state = sandbox_state::read(directory);
    state.is_ok_and(|state| state.cgroup.path().is_some_and(crate::cgroup::directory::has_processes))
}

impl AdoptableSandbox {
    /// Makes the sandbox this gateway's, for this user. From here on it ends when its supervisor is lost. The
    /// listeners, by terminal id, get the events since the terminals were listed.
    pub fn take_over(
        self,
        host: &Arc<Host>,
        uid: u32,
        listeners: HashMap<String, Arc<dyn Listener>>,
        SandboxLinks { gates, nets }: SandboxLinks<'_>,
        counters: &Arc<SandboxCounters>,
    ) -> Arc<Sandbox> {
        let Self { state, directory, effective_confinement, supervisor, client, gate, .. } = self;
        let owner =
            GateOwner { sandbox_id: state.id.clone(), session_id: state.assignment.session_id.clone(), uid };
        let gate = take_over_gate(gate, gates, owner, &listeners);
        let ptys = host.ptys().restore(uid, state.ptys);
        let cleanup = Cleanup::new(state.cgroup.clone(), Some(directory)).with_ptys(ptys);
        let net_owner = (state.network == Network::Proxy).then(|| NetOwner::of_adopted(&state, uid));
        let sandbox = Sandbox::from_adopted(
            state,
            cleanup,
            AnsweredSandbox { effective_confinement, supervisor, control: client.into_control(), gate },
            listeners,
            counters,
        );
        if let Some(owner) = net_owner {
            sandbox.resume_net(host, nets, owner);
        }
        sandbox
    }
}

fn take_over_gate(
    gate: DiscoveredGate,
    gates: &Arc<Gates>,
    owner: GateOwner,
    listeners: &HashMap<String, Arc<dyn Listener>>,
) -> SandboxGate {
    let hello = match gate {
        DiscoveredGate::None => return SandboxGate::None,
        DiscoveredGate::Answered(hello) => *hello,
        DiscoveredGate::Lost => {
            gates.report_lost(&owner);
            return SandboxGate::Lost;
        }
    };
    match gates.link(owner.clone(), hello) {
        Ok(link) => {
            link.retain_terminals(listeners);
            SandboxGate::Linked(link)
        }
        Err(error) => {
            tracing::error!(sandbox.id = %owner.sandbox_id, %error, "its gate is not given the policy: it takes no new commands");
            SandboxGate::Lost
        }
    }
}

/// Why a request has no response.
enum HandshakeError {
    /// The supervisor has closed the connection: it has ended.
    Ended,
    /// Anything else.
    Failed(SandboxAdoptError),
}

impl From<HandshakeError> for SandboxAdoptError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Ended => ControlConnectError::Control(ControlError::Lost).into(),
            HandshakeError::Failed(error) => error,
        }
    }
}

/// A connection with one request at a time. Events that arrive in between are already part of the lists requested
/// later; events after the last response are kept for the control connection.
#[derive(Debug)]
struct HandshakeClient {
    socket: AsyncFd<OwnedFd>,
    receiver: FrameReceiver,
    sequence: u64,
}

impl HandshakeClient {
    fn new(socket: OwnedFd) -> Result<Self, SandboxAdoptError> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(SandboxAdoptError::Descriptors)?;
        let socket = async_fd::register(stream.into(), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| SandboxAdoptError::Descriptors(unwatched.cause))?;
        Ok(Self { socket, receiver: FrameReceiver::new(), sequence: 0 })
    }

    fn into_control(self) -> ControlConnection {
        ControlConnection::resume(self.socket, self.receiver, self.sequence)
    }

    async fn hello(&mut self) -> Result<(HelloResponse, Vec<OwnedFd>), HandshakeError> {
        let (answer, descriptors) = self.request(Request::Hello(connection::hello_request())).await?;
        let answer = connection::check_hello(answer).map_err(|error| HandshakeError::Failed(error.into()))?;
        Ok((answer, descriptors))
    }

    async fn list(&mut self) -> Result<Vec<DiscoveredTerminal>, HandshakeError> {
        let (mut held, mut from) = (Vec::new(), 0);
        loop {
            let (answer, descriptors) = self.request(Request::ListTerminals(ListTerminals { from })).await?;
            let Message::TerminalList(list) = answer else { return Err(unexpected_message()) };
            let mut descriptors = descriptors.into_iter();
            for terminal in list.terminals {
                held.push(open_terminal(terminal, &mut descriptors).map_err(HandshakeError::Failed)?);
            }
            if list.next == 0 {
                return Ok(held);
            }
            if list.next <= from {
                return Err(unexpected_message());
            }
            from = list.next;
        }
    }

    async fn request(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), HandshakeError> {
        match timeout(ANSWER_TIMEOUT, self.exchange(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(HandshakeError::Failed(SandboxAdoptError::TimedOut)),
        }
    }

    async fn exchange(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), HandshakeError> {
        self.sequence += 1;
        let message = ToSupervisor { sequence: self.sequence, request: Some(request) };
        let frame = wire::encode(&message, 0).expect("a greeting and a list's request are some bytes long");
        // The socket's buffer is empty: the previous request was answered.
        if fdpass::send(self.socket.as_fd(), &frame, &[]).is_err() {
            return Err(HandshakeError::Ended);
        }
        loop {
            while let Some(ReceivedFrame { message, descriptors }) = self.next_frame()? {
                let Ok(message) = FromSupervisor::decode(&message[..]) else {
                    return Err(unexpected_message());
                };
                match message.message {
                    Some(answer) if message.sequence == self.sequence => return Ok((answer, descriptors)),
                    Some(_) | None => {}
                }
            }
            self.fill().await?;
        }
    }

    fn next_frame(&mut self) -> Result<Option<ReceivedFrame>, HandshakeError> {
        self.receiver.next_frame().map_err(|error| HandshakeError::Failed(error.into()))
    }

    async fn fill(&mut self) -> Result<(), HandshakeError> {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return Err(HandshakeError::Ended) };
            match self.receiver.fill(self.socket.as_fd()) {
                Ok(ReceiveStatus::Bytes(_)) => return Ok(()),
                Ok(ReceiveStatus::Nothing) => ready.clear_ready(),
                Ok(ReceiveStatus::End) | Err(ReceiveError::Receive(_) | ReceiveError::Truncated) => {
                    return Err(HandshakeError::Ended);
                }
                Err(error) => return Err(HandshakeError::Failed(error.into())),
            }
        }
    }
}

fn unexpected_message() -> HandshakeError {
    HandshakeError::Failed(ControlConnectError::Control(ControlError::UnexpectedMessage).into())
}

fn open_terminal(
    terminal: HeldTerminal,
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Result<DiscoveredTerminal, SandboxAdoptError> {
    let id = terminal.terminal_id;
    let mut rings = Vec::with_capacity(2);
    for descriptor in descriptors.by_ref().take(terminal.rings as usize) {
        rings.push(
            ring::RingReader::open(descriptor).map_err(|error| SandboxAdoptError::Ring(id.clone(), error))?,
        );
    }
    let mut rings = rings.into_iter();
    let (Some(stdout), Some(started)) = (rings.next(), terminal.started) else {
        return Err(ControlConnectError::Control(ControlError::UnexpectedMessage).into());
    };
    let ended = terminal.exit.map(|exit| (Box::new(exit), Duration::from_millis(terminal.ended_ms_ago)));
    Ok(DiscoveredTerminal {
        id,
        metadata: terminal.metadata,
        started,
        stdout,
        stderr: rings.next(),
        // Its supervisor has only sizes that a gateway gave it.
        pty: terminal.pty.and_then(|size| PtySize::new(size.columns, size.rows).ok()),
        ended,
    })
}
