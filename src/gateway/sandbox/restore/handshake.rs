//! What is asked of the supervisor of a sandbox that an earlier gateway has started: which terminals it holds, each with its metadata, its rings
//! and its end if it has ended. A supervisor that answers anything else is left alone, and its sandbox with it.

use std::{io, os::fd::OwnedFd, time::Duration};

use bytes::Bytes;

use crate::{
    link::{LinkError, Peer},
    policy::PtySize,
    proto::supervisor::{
        Exit, HeldTerminal, ListTerminals, Started, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::{control::connection::ControlConnection, sandbox_state::SandboxStateError},
    sys::ring,
};

/// Why a sandbox that may be alive is not adopted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxAdoptError {
    /// Its record cannot be read.
    #[error(transparent)]
    State(#[from] SandboxStateError),
    /// Its socket is missing while its cgroup has processes.
    #[error("its socket is not there, and something runs in its group")]
    Unreachable,
    /// The supervisor cannot be reached, or does not answer as one does.
    #[error(transparent)]
    Link(#[from] LinkError),
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

impl SandboxAdoptError {
    /// Whether the supervisor has ended, which closes its connection.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Link(error) if error.is_end())
    }
}

/// A terminal that a supervisor holds.
#[derive(Debug)]
pub(crate) struct DiscoveredTerminal {
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

/// The terminals of a supervisor that was greeted. Events that
/// arrive in between, which a page that has come knows nothing of, come to who serves the connection.
pub(super) async fn list(control: &ControlConnection) -> Result<Vec<DiscoveredTerminal>, SandboxAdoptError> {
    let (mut held, mut from) = (Vec::new(), 0);
    loop {
        let answer = control.exchange(Request::ListTerminals(ListTerminals { from })).await?;
        let Message::TerminalList(list) = answer.message else { return Err(unexpected_message()) };
        let mut descriptors = answer.descriptors.into_iter();
        for terminal in list.terminals {
            held.push(open_terminal(terminal, &mut descriptors)?);
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

fn unexpected_message() -> SandboxAdoptError {
    LinkError::UnexpectedMessage(Peer::Supervisor).into()
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
        return Err(unexpected_message());
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
