//! The processes that the loop is connected with: gateways, each with how far its handshake has come, and the gate of the sandbox, with its
//! dead-man pipe and how far its ping has come.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
};

use super::poll::{EventSource, Poll};
use crate::{
    link::PolledConnection,
    proto::supervisor::{FromGateProcess, FromSupervisor, ToGateProcess, ToSupervisor},
    supervisor::ready::SupervisedGate,
    sys::file::CallNonce,
};

/// Between an answer and the next ping.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

/// How long the gate may take to answer a ping before it is killed.
pub const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a peer may ask for anything but Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeState {
    /// It has not said Hello.
    Pending,
    /// A version was agreed on.
    Done,
    /// There was none; the connection ends when the answer is out.
    Refused,
}

/// A control connection of one gateway.
#[derive(Debug)]
pub(super) struct GatewayConnection {
    pub(super) frames: PolledConnection<FromSupervisor, ToSupervisor>,
    pub(super) handshake: HandshakeState,
}

/// The sandbox's gate.
#[derive(Debug)]
pub(super) enum GateState {
    /// The profile has none.
    None,
    /// It runs.
    Up(Box<RunningGate>),
    /// It has ended: the kernel fails every exec with ENOSYS.
    Lost,
}

/// A gate that runs.
#[derive(Debug)]
pub(super) struct RunningGate {
    pub(super) frames: PolledConnection<ToGateProcess, FromGateProcess>,
    pub(super) dead_man: OwnedFd,
    nonce: CallNonce,
    /// The number of the last ping.
    pub(super) pinged: u64,
    pub(super) ping: Ping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ping {
    /// No command runs.
    Off,
    /// The next one is sent then.
    Due(Instant),
    /// The gate must have answered by then.
    Unanswered(Instant),
}

impl GateState {
    pub(super) fn new(gate: Option<SupervisedGate>, epoll: &Poll) -> Result<Self, Errno> {
        let Some(SupervisedGate { socket, dead_man, nonce }) = gate else { return Ok(Self::None) };
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let frames = PolledConnection::new(socket, epoll.set(), EventSource::Gate.token())?;
        Ok(Self::Up(Box::new(RunningGate { frames, dead_man, nonce, pinged: 0, ping: Ping::Off })))
    }

    /// What lets a command's first exec pass.
    pub(super) fn exec_nonce(&self) -> CallNonce {
        match self {
            Self::Up(gate) => gate.nonce,
            Self::None | Self::Lost => CallNonce::default(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// When the ping has to be looked at again.
    pub(super) fn next_change(&self) -> Option<Instant> {
        match self {
            Self::Up(gate) => match gate.ping {
                Ping::Due(at) | Ping::Unanswered(at) => Some(at),
                Ping::Off => None,
            },
            Self::None | Self::Lost => None,
        }
    }

    /// A command was started.
    pub(super) fn keep_pinging(&mut self, now: Instant) {
        if let Self::Up(gate) = self
            && gate.ping == Ping::Off
        {
            gate.ping = Ping::Due(now + PING_INTERVAL);
        }
    }
}
