//! Why a gate cannot be used.

use std::io;

use crate::{
    sys::fdpass::ReceiveError,
    wire::{EncodeError, gate::VERSIONS},
};

/// Why a gate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Its socket cannot be connected.
    #[error("connect to the sandbox's gate")]
    Connect(#[source] io::Error),
    /// The two sides have no protocol version in common.
    #[error("the sandbox's gate speaks no version of the protocol from {} to {}", VERSIONS.0, VERSIONS.1)]
    Version,
    /// Another sandbox's gate answers.
    #[error("the gate of another sandbox, {0:?}, answers")]
    WrongSandbox(String),
    /// Its answer is another message.
    #[error("the gate's answer does not fit the question")]
    UnexpectedMessage,
    /// Nobody takes its reports.
    #[error("nobody takes the reports of the sandbox's gate")]
    Unobserved,
    /// It is gone, or the connection has ended.
    #[error("the sandbox's gate is gone")]
    Lost,
    /// It does not take what is sent, or does not answer.
    #[error("the sandbox's gate does not answer")]
    TimedOut,
    /// Its bytes are not frames.
    #[error("receive from the sandbox's gate")]
    Receive(#[from] ReceiveError),
    /// The policy does not fit into a message.
    #[error("the policy does not fit into a message to the gate")]
    PolicyTooLong(#[source] EncodeError),
    /// Another message does not fit.
    #[error("a message to the gate is too long")]
    TooLong(#[source] EncodeError),
}
