//! Why a screen cannot be shown.

use std::io;

use nix::errno::Errno;

use crate::{
    display::{picture::PictureError, reader::ReadPictureError},
    sandbox::host::host_ids::HostIdError,
    sys::fdpass::ReceiveError,
    wire::{EncodeError, screen::VERSIONS},
};

/// Why a screen cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// Its process could not be started.
    #[error("start the screen process")]
    Start(#[source] io::Error),
    /// No host id is left for its process.
    #[error("claim a host id for the screen process")]
    Identity(#[from] HostIdError),
    /// A step of the process's set-up failed.
    #[error("step {step} of the screen process's set-up failed: {errno}")]
    Setup {
        /// As `src/sandbox/screen` numbers them.
        step: u32,
        /// Why.
        errno: Errno,
    },
    /// Its socket cannot be connected.
    #[error("connect to the screen process")]
    Connect(#[source] io::Error),
    /// The two sides have no protocol version in common.
    #[error("the screen process speaks no version of the protocol from {} to {}", VERSIONS.0, VERSIONS.1)]
    Version,
    /// Another sandbox's answers.
    #[error("the screen process of another sandbox answers")]
    WrongSandbox,
    /// Its answer is another message.
    #[error("the screen process's answer does not fit the question")]
    UnexpectedMessage,
    /// It is gone.
    #[error("the screen process is gone")]
    Lost,
    /// It does not answer in time.
    #[error("the screen process does not answer")]
    TimedOut,
    /// It answers with an error.
    #[error("the screen process answers {0}")]
    Refused(Errno),
    /// The terminal has no screen.
    #[error("the screen process does not know the terminal")]
    UnknownTerminal,
    /// Its bytes are not frames.
    #[error("receive from the screen process")]
    Receive(#[from] ReceiveError),
    /// A request is too long.
    #[error("a request to the screen process is too long")]
    TooLong(#[from] EncodeError),
    /// The memory of a screen cannot be made.
    #[error("make the memory of a screen")]
    Memory(#[source] io::Error),
    /// What it has published is not a screen.
    #[error(transparent)]
    Picture(#[from] ReadPictureError),
    /// The scrollback that it has sent is none.
    #[error("scrollback")]
    Scrollback(#[from] PictureError),
}
