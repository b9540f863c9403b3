//! A sandbox that another gateway has started: found by its folder, asked what it holds, taken over.
//!
//! Asking changes nothing: a sandbox that does not answer, or not in words that are known here, is left exactly as it
//! is, and the error says why. Only [`Approached::take_over`] makes it this gateway's.

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

use super::{
    control::{self, ConnectError, Control, ControlError},
    counters::Counters,
    facts::{self, Facts, FactsError},
    handle::{Listener, Sandbox},
    host::Host,
    leftover,
    remains::Remains,
};
use crate::{
    proto::supervisor::{
        Exit, FromSupervisor, HeldTerminal, HelloAnswer, ListTerminals, SandboxPosture, Started,
        ToSupervisor, from_supervisor::Message, to_supervisor::Request,
    },
    sys::{
        fdpass::{self, Frame, FrameReceiver, ReceiveError, Received},
        process, ring, watched,
    },
    wire,
};

/// How long a supervisor may take for one answer. One that takes longer is stopped, or hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Why a sandbox that may be alive is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Whose it is, is not known.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// Nobody can reach it.
    #[error("its socket is not there, and something runs in its group")]
    Unreachable,
    /// Its socket does not take a connection.
    #[error("connect to its supervisor")]
    Dial(#[source] io::Error),
    /// The supervisor does not answer.
    #[error("its supervisor does not answer within {} s", ANSWER_LIMIT.as_secs())]
    Silent,
    /// The supervisor speaks no version that is known here, or not at all.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// What it says is no frame.
    #[error("its supervisor's words cannot be read")]
    Receive(#[from] ReceiveError),
    /// Somebody else answers.
    #[error("another sandbox, {0:?}, answers in its place")]
    Other(String),
    /// It sent no descriptor of itself, or that of somebody else.
    #[error("its supervisor does not prove which process it is")]
    Unproven,
    /// Its descriptors cannot be held.
    #[error("hold the sandbox's descriptors")]
    Descriptors(#[source] io::Error),
    /// What came as a ring is none.
    #[error("the output of {0} cannot be used")]
    Ring(String, #[source] ring::OpenError),
}

/// What was found in a folder.
#[derive(Debug)]
pub enum Found {
    /// A sandbox that lives and answers.
    Alive(Box<Approached>),
    /// Nothing that lives. Its facts, where they can be read.
    Dead(Option<Box<Facts>>),
}

/// A sandbox that has answered. Dropped, it is left alone.
#[derive(Debug)]
pub struct Approached {
    /// What was written down of it.
    pub facts: Facts,
    /// Its terminals.
    pub held: Vec<Held>,
    folder: PathBuf,
    posture: SandboxPosture,
    supervisor: AsyncFd<OwnedFd>,
    talk: Talk,
}

/// A terminal that a supervisor holds.
#[derive(Debug)]
pub struct Held {
    /// Its id.
    pub id: String,
    /// What the gateway that spawned it has said of it.
    pub keepsake: Bytes,
    /// As the supervisor saw it.
    pub started: Started,
    /// Of stdout, or of the merged output.
    pub stdout: ring::Reader,
    /// Of stderr, when it is kept apart.
    pub stderr: Option<ring::Reader>,
    /// How it ended and how long ago, when it has.
    pub ended: Option<(Box<Exit>, Duration)>,
}

/// Asks the supervisor whose socket is in a sandbox's folder.
///
/// # Errors
/// [`AdoptError`]: it may live, and is as it was.
pub async fn approach(folder: &Path) -> Result<Found, AdoptError> {
    let socket = match leftover::dial(folder) {
        Ok(socket) => OwnedFd::from(socket),
        // Somebody has taken it away: it was there before the record was, and before anything ran.
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_occupied(folder) => {
            return Err(AdoptError::Unreachable);
        }
        Err(error) if leftover::is_gone(&error) => {
            return Ok(Found::Dead(facts::read(folder).ok().map(Box::new)));
        }
        Err(error) => return Err(AdoptError::Dial(error)),
    };
    let facts = facts::read(folder)?;
    let mut talk = Talk::over(socket)?;
    let (answer, mut descriptors) = match talk.greet().await {
        // It ended before it answered.
        Err(TalkError::Ended) => return Ok(Found::Dead(Some(Box::new(facts)))),
        greeted => greeted?,
    };
    if answer.sandbox_id != facts.id {
        return Err(AdoptError::Other(answer.sandbox_id));
    }
    let supervisor = descriptors.pop().ok_or(AdoptError::Unproven)?;
    match process::is_first_of_namespace(supervisor.as_fd()).map_err(AdoptError::Descriptors)? {
        Some(true) => {}
        Some(false) => return Err(AdoptError::Unproven),
        None => return Ok(Found::Dead(Some(Box::new(facts)))),
    }
    let held = match talk.list().await {
        Err(TalkError::Ended) => return Ok(Found::Dead(Some(Box::new(facts)))),
        listed => listed?,
    };
    let supervisor = watched::watch(supervisor, Interest::READABLE)
        .map_err(|unwatched| AdoptError::Descriptors(unwatched.cause))?;
    let posture = answer.posture.unwrap_or_default();
    let folder = folder.to_owned();
    Ok(Found::Alive(Box::new(Approached { facts, held, folder, posture, supervisor, talk })))
}

/// Whether something runs in the group of the sandbox in this folder.
fn is_occupied(folder: &Path) -> bool {
    let facts = facts::read(folder);
    facts.is_ok_and(|facts| facts.cgroup.path().is_some_and(crate::cgroup::folder::is_occupied))
}

impl Approached {
    /// Makes the sandbox this gateway's, and a sandbox of this user. From here on it is ended when its supervisor is lost, and the listeners hear
    /// of what happens to its terminals, by id: also of what has happened since they were listed.
    pub fn take_over(
        self,
        host: &Host,
        uid: u32,
        listeners: HashMap<String, Arc<dyn Listener>>,
        counters: &Arc<Counters>,
    ) -> Arc<Sandbox> {
        let Self { facts, folder, posture, supervisor, talk, .. } = self;
        let ptys = host.ptys().restore(uid, facts.ptys);
        let remains = Remains::of(facts.cgroup.clone(), Some(folder)).with_ptys(ptys);
        Sandbox::keep_adopted(facts, remains, posture, supervisor, talk.into_control(), listeners, counters)
    }
}

/// Why a question has no answer.
enum TalkError {
    /// The supervisor has closed: it has ended.
    Ended,
    /// Anything else.
    Failed(AdoptError),
}

impl From<TalkError> for AdoptError {
    fn from(error: TalkError) -> Self {
        match error {
            TalkError::Ended => ConnectError::Control(ControlError::Lost).into(),
            TalkError::Failed(error) => error,
        }
    }
}

/// A connection on which one question at a time is asked and answered. Events that come meanwhile are in the lists
/// that are asked for afterwards; those that come after the last answer are kept for whoever goes on with it.
#[derive(Debug)]
struct Talk {
    socket: AsyncFd<OwnedFd>,
    receiver: FrameReceiver,
    asked: u64,
}

impl Talk {
    fn over(socket: OwnedFd) -> Result<Self, AdoptError> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(AdoptError::Descriptors)?;
        let socket = watched::watch(stream.into(), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| AdoptError::Descriptors(unwatched.cause))?;
        Ok(Self { socket, receiver: FrameReceiver::new(), asked: 0 })
    }

    fn into_control(self) -> Control {
        Control::over(self.socket, self.receiver, self.asked)
    }

    async fn greet(&mut self) -> Result<(HelloAnswer, Vec<OwnedFd>), TalkError> {
        let (answer, descriptors) = self.ask(Request::Hello(control::greeting())).await?;
        let answer = control::agreed(answer).map_err(|error| TalkError::Failed(error.into()))?;
        Ok((answer, descriptors))
    }

    async fn list(&mut self) -> Result<Vec<Held>, TalkError> {
        let (mut held, mut from) = (Vec::new(), 0);
        loop {
            let (answer, descriptors) = self.ask(Request::ListTerminals(ListTerminals { from })).await?;
            let Message::TerminalList(list) = answer else { return Err(nonsense()) };
            let mut descriptors = descriptors.into_iter();
            for terminal in list.terminals {
                held.push(hold(terminal, &mut descriptors).map_err(TalkError::Failed)?);
            }
            if list.next == 0 {
                return Ok(held);
            }
            if list.next <= from {
                return Err(nonsense());
            }
            from = list.next;
        }
    }

    async fn ask(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), TalkError> {
        match timeout(ANSWER_LIMIT, self.ask_at_leisure(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(TalkError::Failed(AdoptError::Silent)),
        }
    }

    async fn ask_at_leisure(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), TalkError> {
        self.asked += 1;
        let message = ToSupervisor { sequence: self.asked, request: Some(request) };
        let frame = wire::encode(&message, 0).expect("a greeting and a list's request are some bytes long");
        // The socket's buffer is empty: nothing is asked before the last answer has come.
        if fdpass::send(self.socket.as_fd(), &frame, &[]).is_err() {
            return Err(TalkError::Ended);
        }
        loop {
            while let Some(Frame { message, descriptors }) = self.next_frame()? {
                let Ok(message) = FromSupervisor::decode(&message[..]) else { return Err(nonsense()) };
                match message.message {
                    Some(answer) if message.sequence == self.asked => return Ok((answer, descriptors)),
                    Some(_) | None => {}
                }
            }
            self.fill().await?;
        }
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, TalkError> {
        self.receiver.next_frame().map_err(|error| TalkError::Failed(error.into()))
    }

    async fn fill(&mut self) -> Result<(), TalkError> {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return Err(TalkError::Ended) };
            match self.receiver.fill(self.socket.as_fd()) {
                Ok(Received::Bytes(_)) => return Ok(()),
                Ok(Received::Nothing) => ready.clear_ready(),
                Ok(Received::End) | Err(ReceiveError::Receive(_) | ReceiveError::Cut) => {
                    return Err(TalkError::Ended);
                }
                Err(error) => return Err(TalkError::Failed(error.into())),
            }
        }
    }
}

fn nonsense() -> TalkError {
    TalkError::Failed(ConnectError::Control(ControlError::Nonsense).into())
}

fn hold(terminal: HeldTerminal, descriptors: &mut impl Iterator<Item = OwnedFd>) -> Result<Held, AdoptError> {
    let id = terminal.terminal_id;
    let mut rings = Vec::with_capacity(2);
    for descriptor in descriptors.by_ref().take(terminal.rings as usize) {
        rings.push(ring::Reader::open(descriptor).map_err(|error| AdoptError::Ring(id.clone(), error))?);
    }
    let mut rings = rings.into_iter();
    let (Some(stdout), Some(started)) = (rings.next(), terminal.started) else {
        return Err(ConnectError::Control(ControlError::Nonsense).into());
    };
    let ended = terminal.exit.map(|exit| (Box::new(exit), Duration::from_millis(terminal.ended_ms_ago)));
    Ok(Held { id, keepsake: terminal.keepsake, started, stdout, stderr: rings.next(), ended })
}
