//! Why a sandbox that an earlier gateway has started is not adopted.

use std::{io, time::Duration};

use crate::{
    sandbox::{control::connection::ControlConnectError, sandbox_state::SandboxStateError},
    sys::{fdpass::ReceiveError, ring},
};

/// How long a supervisor may take for one answer. One that takes longer is stopped, or hangs.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
