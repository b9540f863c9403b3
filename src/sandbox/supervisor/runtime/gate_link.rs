//! The gate of a sandbox, as the event loop knows it: the socket to it, its dead-man pipe, and how far its ping has come.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
};

use crate::{
    supervisor::ready::SupervisedGate,
    sys::{
        fdpass::{FrameReceiver, FrameSender},
        spawn::ExecNonce,
    },
};

/// Between an answer and the next ping.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

/// How long the gate may take to answer a ping before it is killed.
pub const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// The sandbox's gate.
#[derive(Debug)]
pub(super) enum GateLink {
    /// The profile has none.
    None,
    /// It runs.
    Up(Box<GateConnection>),
    /// It has ended: the kernel fails every exec with ENOSYS.
    Lost,
}

/// A gate that runs.
#[derive(Debug)]
pub(super) struct GateConnection {
    pub(super) socket: OwnedFd,
    pub(super) receiver: FrameReceiver,
    pub(super) sender: FrameSender,
    pub(super) dead_man: OwnedFd,
    nonce: ExecNonce,
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

impl GateLink {
    pub(super) fn new(gate: Option<SupervisedGate>) -> Result<Self, Errno> {
        let Some(SupervisedGate { socket, dead_man, nonce }) = gate else { return Ok(Self::None) };
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self::Up(Box::new(GateConnection {
            socket,
            receiver: FrameReceiver::new(),
            sender: FrameSender::new(),
            dead_man,
            nonce,
            pinged: 0,
            ping: Ping::Off,
        })))
    }

    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Self::Up(gate) => Some(&gate.socket),
            Self::None | Self::Lost => None,
        }
    }

    /// What lets a command's first exec pass.
    pub(super) fn exec_nonce(&self) -> ExecNonce {
        match self {
            Self::Up(gate) => gate.nonce,
            Self::None | Self::Lost => ExecNonce::default(),
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
