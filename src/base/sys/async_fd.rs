//! Descriptors registered with tokio's reactor.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor that the reactor refused: `ENOSPC` at the limit of epoll_ctl(2), `EMFILE`.
#[derive(Debug, thiserror::Error)]
#[error("have a descriptor watched")]
pub struct RegisterError {
    /// The descriptor, for cleaning up without the reactor.
    pub descriptor: OwnedFd,
    /// Why.
    #[source]
    pub cause: io::Error,
}

impl From<RegisterError> for io::Error {
    fn from(unwatched: RegisterError) -> Self {
        unwatched.cause
    }
}

/// Registers a descriptor with the reactor of the current runtime.
///
/// # Errors
/// [`RegisterError`].
pub fn register(descriptor: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, RegisterError> {
    // SAFETY: `register` asks that the descriptor stays open, and stays the same one, for as long as it is
    // registered. The AsyncFd owns it, an OwnedFd never changes its number, and AsyncFd takes it off the reactor
    // before it gives it back or drops it.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    registered.map_err(|refused| {
        let (descriptor, cause) = refused.into_parts();
        RegisterError { descriptor, cause }
    })
}
