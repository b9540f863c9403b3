//! A sandbox that another gateway has started: found by its directory, asked what it holds, taken over.
//!
//! Asking changes nothing: a sandbox that does not answer, or not in words that are known here, is left exactly as it
//! is, and the error says why. Only [`AdoptableSandbox::take_over`] makes it this gateway's.

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
    proto::supervisor::{
        EffectiveConfinement, Exit, FromSupervisor, HeldTerminal, HelloResponse, ListTerminals, Started,
        ToSupervisor, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::{
        control::{
            cleanup::Cleanup,
            connection::{self, ControlConnectError, ControlConnection, ControlError},
            handle::{Listener, Sandbox},
        },
        counters::SandboxCounters,
        host::Host,
        restore::stale,
        sandbox_state::{self, SandboxState, SandboxStateError},
    },
    sys::{
        async_fd,
        fdpass::{self, FrameReceiver, ReceiveError, ReceiveStatus, ReceivedFrame},
        process, ring,
    },
    wire,
};

/// How long a supervisor may take for one answer. One that takes longer is stopped, or hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a sandbox that may be alive is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum SandboxAdoptError {
    /// Whose it is, is not known.
    #[error(transparent)]
    State(#[from] SandboxStateError),
    /// Nobody can reach it.
    #[error("its socket is not there, and something runs in its group")]
    Unreachable,
    /// Its socket does not take a connection.
    #[error("connect to its supervisor")]
    Dial(#[source] io::Error),
    /// The supervisor does not answer.
    #[error("its supervisor does not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    /// The supervisor speaks no version that is known here, or not at all.
    #[error(transparent)]
    Connect(#[from] ControlConnectError),
    /// What it says is no frame.
    #[error("its supervisor's words cannot be read")]
    Receive(#[from] ReceiveError),
    /// Somebody else answers.
    #[error("another sandbox, {0:?}, answers in its place")]
    WrongSandbox(String),
    /// It sent no descriptor of itself, or that of somebody else.
    #[error("its supervisor does not prove which process it is")]
    Unverified,
    /// Its descriptors cannot be held.
    #[error("hold the sandbox's descriptors")]
    Descriptors(#[source] io::Error),
    /// What came as a ring is none.
    #[error("the output of {0} cannot be used")]
    Ring(String, #[source] ring::RingOpenError),
}

/// What was found in a directory.
#[derive(Debug)]
pub enum Discovered {
    /// A sandbox that lives and answers.
    Alive(Box<AdoptableSandbox>),
    /// Nothing that lives. Its facts, where they can be read.
    Dead(Option<Box<SandboxState>>),
}

/// A sandbox that has answered. Dropped, it is left alone.
#[derive(Debug)]
pub struct AdoptableSandbox {
    /// What was written down of it.
    pub facts: SandboxState,
    /// Its terminals.
    pub terminals: Vec<DiscoveredTerminal>,
    directory: PathBuf,
    effective_confinement: EffectiveConfinement,
    supervisor: AsyncFd<OwnedFd>,
    client: HandshakeClient,
}

/// A terminal that a supervisor holds.
#[derive(Debug)]
pub struct DiscoveredTerminal {
    /// Its id.
    pub id: String,
    /// What the gateway that spawned it has said of it.
    pub metadata: Bytes,
    /// As the supervisor saw it.
    pub started: Started,
    /// Of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// Of stderr, when it is kept apart.
    pub stderr: Option<ring::RingReader>,
    /// How it ended and how long ago, when it has.
    pub ended: Option<(Box<Exit>, Duration)>,
}

/// Asks the supervisor whose socket is in a sandbox's directory.
///
/// # Errors
/// [`AdoptError`]: it may live, and is as it was.
pub async fn discover(directory: &Path) -> Result<Discovered, SandboxAdoptError> {
    let socket = match stale::dial(directory) {
        Ok(socket) => OwnedFd::from(socket),
        // Somebody has taken it away: it was there before the record was, and before anything ran.
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_processes(directory) => {
            return Err(SandboxAdoptError::Unreachable);
        }
        Err(error) if stale::is_gone(&error) => {
            return Ok(Discovered::Dead(sandbox_state::read(directory).ok().map(Box::new)));
        }
        Err(error) => return Err(SandboxAdoptError::Dial(error)),
    };
    let facts = sandbox_state::read(directory)?;
    let mut talk = HandshakeClient::new(socket)?;
    let (answer, mut descriptors) = match talk.hello().await {
        // It ended before it answered.
        Err(HandshakeError::Ended) => return Ok(Discovered::Dead(Some(Box::new(facts)))),
        greeted => greeted?,
    };
    if answer.sandbox_id != facts.id {
        return Err(SandboxAdoptError::WrongSandbox(answer.sandbox_id));
    }
    let supervisor = descriptors.pop().ok_or(SandboxAdoptError::Unverified)?;
    match process::is_namespace_init(supervisor.as_fd()).map_err(SandboxAdoptError::Descriptors)? {
        Some(true) => {}
        Some(false) => return Err(SandboxAdoptError::Unverified),
        None => return Ok(Discovered::Dead(Some(Box::new(facts)))),
    }
    let held = match talk.list().await {
        Err(HandshakeError::Ended) => return Ok(Discovered::Dead(Some(Box::new(facts)))),
        listed => listed?,
    };
    let supervisor = async_fd::register(supervisor, Interest::READABLE)
        .map_err(|unwatched| SandboxAdoptError::Descriptors(unwatched.cause))?;
    let posture = answer.effective_confinement.unwrap_or_default();
    let directory = directory.to_owned();
    Ok(Discovered::Alive(Box::new(AdoptableSandbox {
        facts,
        terminals: held,
        directory,
        effective_confinement: posture,
        supervisor,
        client: talk,
    })))
}

/// Whether something runs in the group of the sandbox in this directory.
fn has_processes(directory: &Path) -> bool {
    let facts = sandbox_state::read(directory);
    facts.is_ok_and(|facts| facts.cgroup.path().is_some_and(crate::cgroup::directory::has_processes))
}

impl AdoptableSandbox {
    /// Makes the sandbox this gateway's, and a sandbox of this user. From here on it is ended when its supervisor is lost, and the listeners hear
    /// of what happens to its terminals, by id: also of what has happened since they were listed.
    pub fn take_over(
        self,
        host: &Host,
        uid: u32,
        listeners: HashMap<String, Arc<dyn Listener>>,
        counters: &Arc<SandboxCounters>,
    ) -> Arc<Sandbox> {
        let Self { facts, directory, effective_confinement: posture, supervisor, client: talk, .. } = self;
        let ptys = host.ptys().restore(uid, facts.ptys);
        let remains = Cleanup::new(facts.cgroup.clone(), Some(directory)).with_ptys(ptys);
        Sandbox::from_adopted(facts, remains, posture, supervisor, talk.into_control(), listeners, counters)
    }
}

/// Why a question has no answer.
enum HandshakeError {
    /// The supervisor has closed: it has ended.
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

/// A connection on which one question at a time is asked and answered. Events that come meanwhile are in the lists
/// that are asked for afterwards; those that come after the last answer are kept for whoever goes on with it.
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
        // The socket's buffer is empty: nothing is asked before the last answer has come.
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
    Ok(DiscoveredTerminal { id, metadata: terminal.metadata, started, stdout, stderr: rings.next(), ended })
}
