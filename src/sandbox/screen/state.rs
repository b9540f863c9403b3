//! What a screen process has.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
};

use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
};

use super::terminal::ScreenTerminal;
use crate::{
    link::PolledConnection,
    proto::screen::{FromScreen, ToScreen},
    wire::MAX_MESSAGE_BYTES,
};

/// Tokens of the event loop. Those of connections and notifiers count from here on.
pub(super) mod token {
    pub(in crate::screen) const LISTENER: u64 = 0;
    pub(in crate::screen) const SUPERVISOR: u64 = 1;
    pub(in crate::screen) const FIRST: u64 = 2;
}

/// Connections that may wait for their handshake while one is in use.
pub(super) const MAX_CONNECTIONS: usize = 4;

/// A gateway that leaves more than this unread is dropped. Two of the longest messages fit.
pub(super) const MAX_QUEUED_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// The emulators of a sandbox.
pub(super) struct Emulators {
    pub(super) sandbox_id: String,
    pub(super) epoll: Epoll,
    pub(super) listener: OwnedFd,
    /// Readable when the sandbox has ended.
    pub(super) _supervisor: OwnedFd,
    /// The lock of the host id.
    pub(super) _lock: Option<OwnedFd>,
    pub(super) connections: BTreeMap<u64, PolledConnection<FromScreen, ToScreen>>,
    /// The connection in use: the one that has completed its handshake last.
    pub(super) gateway: Option<u64>,
    pub(super) terminals: HashMap<String, ScreenTerminal>,
    /// Terminals by the tokens of their notifiers.
    pub(super) notifiers: HashMap<u64, String>,
    pub(super) next_token: u64,
}

impl Emulators {
    pub(super) fn new(
        sandbox_id: String,
        listener: OwnedFd,
        supervisor: OwnedFd,
        lock: Option<OwnedFd>,
    ) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, token::LISTENER))?;
        epoll.add(&supervisor, EpollEvent::new(EpollFlags::EPOLLIN, token::SUPERVISOR))?;
        Ok(Self {
            sandbox_id,
            epoll,
            listener,
            _supervisor: supervisor,
            _lock: lock,
            connections: BTreeMap::new(),
            gateway: None,
            terminals: HashMap::new(),
            notifiers: HashMap::new(),
            next_token: token::FIRST,
        })
    }

    pub(super) fn take_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token - 1
    }
}
