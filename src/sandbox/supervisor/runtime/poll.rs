//! The set of descriptors that the loop waits for, level-triggered; the tokens that it returns, and the table with generational keys that
//! they name entries of.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
};

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

    /// The set itself, for a connection that says what it waits for.
    pub(super) fn set(&self) -> &Epoll {
        &self.epoll
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

/// Names an entry. The key of a removed entry finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotKey {
    index: u32,
    generation: u32,
}

impl SlotKey {
    /// The entry's index, which is reused after the entry is removed.
    pub(super) fn index(self) -> u32 {
        self.index
    }
}

/// Entries by key.
#[derive(Debug)]
pub(super) struct SlotMap<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

/// Generations are kept to 24 bits, so that a token has room for them.
const GENERATIONS: u32 = 0x00ff_ffff;

impl<T> SlotMap<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The key that the next [`Self::insert`] gives.
    pub(super) fn next_key(&self) -> SlotKey {
        match self.free.last() {
            Some(&index) => SlotKey { index, generation: self.slots[index as usize].0 },
            None => SlotKey { index: self.slots.len() as u32, generation: 0 },
        }
    }

    pub(super) fn insert(&mut self, value: T) -> SlotKey {
        let key = self.next_key();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].1 = Some(value),
            None => self.slots.push((0, Some(value))),
        }
        key
    }

    pub(super) fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        value.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn get(&self, key: SlotKey) -> Option<&T> {
        let (generation, value) = self.slots.get(key.index as usize)?;
        value.as_ref().filter(|_| *generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: SlotKey) -> Option<T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let value = value.take()?;
        *generation = (*generation + 1) & GENERATIONS;
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn keys(&self) -> Vec<SlotKey> {
        let used = self.slots.iter().zip(0_u32..).filter(|((_, value), _)| value.is_some());
        used.map(|((generation, _), index)| SlotKey { index, generation: *generation }).collect()
    }
}

/// What a descriptor in the epoll set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventSource {
    /// The control listener.
    Listener,
    /// The signalfd for SIGCHLD.
    Children,
    /// A control connection.
    Connection(SlotKey),
    /// The pipe of a terminal's output of this index.
    Output(SlotKey, u8),
    /// The pipe to a terminal's standard input.
    Stdin(SlotKey),
    /// `cgroup.events` of a terminal's leaf.
    Leaf(SlotKey),
    /// The socket to the gate.
    Gate,
    /// The socket at which names are refused.
    Names,
    /// The listener for changes of mode.
    Modes,
}

/// Behind the outputs, of which a terminal has two.
const GATE: u64 = 7;
const NAMES: u64 = 8;
const MODES: u64 = 9;

impl EventSource {
    pub(super) fn token(self) -> u64 {
        let (kind, key) = match self {
            Self::Listener => return 0,
            Self::Children => return 1 << 56,
            Self::Gate => return GATE << 56,
            Self::Names => return NAMES << 56,
            Self::Modes => return MODES << 56,
            Self::Connection(key) => (2_u64, key),
            Self::Stdin(key) => (3, key),
            Self::Leaf(key) => (4, key),
            Self::Output(key, index) => (5 + u64::from(index), key),
        };
        kind << 56 | u64::from(key.generation) << 32 | u64::from(key.index)
    }

    pub(super) fn of_token(token: u64) -> Self {
        let generation = (token >> 32) as u32 & GENERATIONS;
        let key = SlotKey { index: token as u32, generation };
        match token >> 56 {
            0 => Self::Listener,
            1 => Self::Children,
            2 => Self::Connection(key),
            3 => Self::Stdin(key),
            4 => Self::Leaf(key),
            GATE => Self::Gate,
            NAMES => Self::Names,
            MODES => Self::Modes,
            output => Self::Output(key, (output - 5) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_removed_entry_finds_nothing() {
        let mut table = SlotMap::new();
        let first = table.insert("a");
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "b"));
        assert_eq!((table.len(), table.keys()), (1, vec![second]));
    }

    #[test]
    fn tokens_come_back_as_they_went() {
        let key = SlotKey { index: 77, generation: GENERATIONS };
        let all = [
            EventSource::Listener,
            EventSource::Children,
            EventSource::Connection(key),
            EventSource::Stdin(key),
            EventSource::Leaf(key),
            EventSource::Output(key, 0),
            EventSource::Output(key, 1),
            EventSource::Gate,
            EventSource::Names,
            EventSource::Modes,
        ];
        for source in all {
            assert_eq!(EventSource::of_token(source.token()), source);
        }
    }
}
