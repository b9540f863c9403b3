//! Descriptors that tokio's reactor watches.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Has the reactor of the current runtime watch a descriptor.
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `register` asks that the descriptor stays open, and stays the same one, for as long as it is
    // registered. The AsyncFd owns it, an OwnedFd never changes its number, and AsyncFd takes it off the reactor
    // before it gives it back or drops it.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(io::Error::from)
}
