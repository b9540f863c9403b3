//! Connections between a gateway and the processes of its sandboxes, which carry frames ([`crate::wire`]) with descriptors.
//!
//! There are two: [`Connection`] for a tokio runtime, which the gateway and the net process have, and [`PolledConnection`] for an event loop on
//! epoll, which the supervisor, the gate and the screen process have. Both are for the types of the messages that go out and come in, know
//! nothing of what these mean, and refuse what is no such message. [`LinkError`] says which link has failed, and at which step.

mod connection;
mod polled;

use std::{fmt, io, os::fd::OwnedFd, time::Duration};

pub use self::{
    connection::Connection,
    polled::{Ended, PolledConnection},
};
use crate::{sys::fdpass::ReceiveError, wire::EncodeError};

/// A message, and the descriptors that came with it.
pub type Received<Message> = (Message, Vec<OwnedFd>);

/// Who is at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A gateway.
    Gateway,
    /// The supervisor of a sandbox, with which the sandbox lives and ends.
    Supervisor,
    /// The gate of a sandbox.
    Gate,
    /// The screen process of a sandbox.
    Screen,
    /// The net process of a sandbox.
    Net,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "the gateway",
            Self::Supervisor => "the sandbox",
            Self::Gate => "the sandbox's gate",
            Self::Screen => "the screen process",
            Self::Net => "the net process",
        })
    }
}

impl Peer {
    /// Whether the version that it has answered to a greeting is one of those that were offered, lowest and highest.
    ///
    /// # Errors
    /// [`LinkError::Version`].
    pub fn check_version(self, (lowest, highest): (u32, u32), answered: u32) -> Result<(), LinkError> {
        match (lowest..=highest).contains(&answered) {
            true => Ok(()),
            false => Err(LinkError::Version { peer: self, lowest, highest }),
        }
    }

    /// Waits for something of it, for at most so long.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], and those of what is waited for.
    pub async fn within<T>(
        self,
        limit: Duration,
        outcome: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        tokio::time::timeout(limit, outcome).await.unwrap_or(Err(LinkError::TimedOut(self)))
    }
}

/// Why a process cannot be used over its link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Its socket cannot be connected.
    #[error("connect to {0}")]
    Connect(Peer, #[source] io::Error),
    /// The two sides have no protocol version in common.
    #[error("{peer} speaks no version of the protocol from {lowest} to {highest}")]
    Version {
        /// Who.
        peer: Peer,
        /// The lowest version that was offered.
        lowest: u32,
        /// The highest one.
        highest: u32,
    },
    /// Another sandbox's process answers.
    #[error("another sandbox, {1:?}, answers in the place of {0}")]
    WrongSandbox(Peer, String),
    /// What it sends is no message, or not the answer to what was asked.
    #[error("the answer of {0} does not fit the question")]
    UnexpectedMessage(Peer),
    /// It is gone, or the connection has ended.
    #[error("{0} is gone")]
    Lost(Peer),
    /// It does not read what is sent, or does not answer in time.
    #[error("{0} does not answer")]
    TimedOut(Peer),
    /// Its bytes are not frames.
    #[error("receive from {0}")]
    Receive(Peer, #[source] ReceiveError),
    /// What is to be sent is longer than a message may be.
    #[error("{1} does not fit into a message to {0}")]
    TooLong(Peer, &'static str, #[source] EncodeError),
    /// Nobody takes what it reports.
    #[error("nobody takes the reports of {0}")]
    Unobserved(Peer),
}

impl LinkError {
    /// Whether the connection has ended, as it does with the process at its other end.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Receive(_, ReceiveError::Receive(_) | ReceiveError::Truncated))
    }
}
