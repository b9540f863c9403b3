//! The set of descriptors that the loop waits for; level-triggered.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
};

use super::slot_map::EventSource;

/// Events handled in one turn. Each source gets its turn before any gets a second one.
const EVENTS: usize = 128;

#[derive(Debug)]
pub(super) struct Poll {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Poll {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); EVENTS] })
    }

    pub(super) fn add(
        &self,
        descriptor: impl AsFd,
        source: EventSource,
        flags: EpollFlags,
    ) -> Result<(), Errno> {
        self.epoll.add(descriptor, EpollEvent::new(flags, source.token()))
    }

    pub(super) fn change(
        &self,
        descriptor: impl AsFd,
        source: EventSource,
        flags: EpollFlags,
    ) -> Result<(), Errno> {
        self.epoll.modify(descriptor, &mut EpollEvent::new(flags, source.token()))
    }

    pub(super) fn remove(&self, descriptor: impl AsFd) -> Result<(), Errno> {
        self.epoll.delete(descriptor)
    }

    /// Waits for ready sources, until `until` at most.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> Result<Vec<(EventSource, EpollFlags)>, Errno> {
        let timeout = match until {
            None => EpollTimeout::NONE,
            Some(until) => {
                // Rounded up: a timer must not fire before its time and spin.
                let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
                EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
            }
        };
        match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => {
                let ready = self.events[..count].iter();
                Ok(ready.map(|event| (EventSource::of_token(event.data()), event.events())).collect())
            }
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }
}
