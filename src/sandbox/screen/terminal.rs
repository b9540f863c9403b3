//! One terminal of the screen process: where its output comes from, its emulator, and where its pictures go.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    time::{Duration, Instant},
};

use nix::{errno::Errno, sys::socket::MsgFlags};

use super::emulator::Emulator;
use crate::{
    display::{
        picture::{MAGIC, MAGIC_AT, PICTURE_AT, SEQUENCE_AT},
        size::ScreenSize,
    },
    sys::ring::{ReadOnlyRing, RingOpenError},
};

/// Time between two pictures that are published for watchers: 30 a second.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(34);
/// Bytes that are taken in of one terminal before others have their turn.
const TURN_BYTES: usize = 64 << 10;
/// Time for which one terminal's output is taken in before others have their turn: a few bytes may change the whole screen.
const TURN_TIME: Duration = Duration::from_millis(50);
/// Bytes that are taken in for a picture that was asked for, before it is published as it is then.
const MAX_CATCH_UP_BYTES: u64 = 16 << 20;
/// Time for which they are taken in. The gateway waits longer for an answer.
const MAX_CATCH_UP_TIME: Duration = Duration::from_secs(1);

/// A terminal.
pub(super) struct ScreenTerminal {
    ring: ReadOnlyRing,
    /// Readable when the ring has changed.
    pub(super) notifier: Option<OwnedFd>,
    memory: File,
    pub(super) emulator: Emulator,
    /// Bytes taken in, or missed.
    position: u64,
    built_from: u64,
    answers_from: u64,
    /// The number of the last picture.
    pub(super) number: u64,
    /// The screen has changed since the last picture.
    has_changed: bool,
    /// A watcher waits for the next picture.
    pub(super) is_watched: bool,
    published_at: Option<Instant>,
    /// The ring may hold more.
    pub(super) is_behind: bool,
    at_end: bool,
    buffer: Vec<u8>,
}

impl ScreenTerminal {
    pub(super) fn new(
        ring: OwnedFd,
        memory: OwnedFd,
        size: ScreenSize,
        answers_from: u64,
    ) -> Result<Self, RingOpenError> {
        Ok(Self {
            ring: ReadOnlyRing::open(ring)?,
            notifier: None,
            memory: File::from(memory),
            emulator: Emulator::new(size),
            position: 0,
            built_from: 0,
            answers_from,
            number: 0,
            has_changed: true,
            is_watched: false,
            published_at: None,
            is_behind: true,
            at_end: false,
            buffer: Vec::new(),
        })
    }

    /// Publishes into other memory from here on.
    pub(super) fn set_memory(&mut self, memory: OwnedFd) {
        self.memory = File::from(memory);
        self.has_changed = true;
        self.is_watched = false;
    }

    pub(super) fn resize(&mut self, size: ScreenSize) {
        if size != self.emulator.size() {
            self.emulator.resize(size);
            self.has_changed = true;
        }
    }

    /// Takes the bytes out of the notifier; whether it may have more to say later.
    pub(super) fn drain_notifier(&mut self) -> bool {
        self.is_behind = true;
        let Some(notifier) = &self.notifier else { return false };
        let mut bytes = [0; 256];
        loop {
            match nix::sys::socket::recv(notifier.as_fd().as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(Errno::EAGAIN) => return true,
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Takes in some of what the ring holds.
    pub(super) fn take_in(&mut self) {
        self.buffer.resize(TURN_BYTES, 0);
        let at_end = self.ring.at_end().unwrap_or(true);
        let read = self.ring.read_at(self.position, &mut self.buffer);
        let Ok(piece) = read else {
            self.is_behind = false;
            return;
        };
        if piece.offset > self.position {
            // Overwritten before they were read: the screen may lack what they showed.
            self.built_from = piece.offset;
            self.position = piece.offset;
            self.has_changed = true;
        }
        if piece.length == 0 {
            self.is_behind = false;
            self.has_changed |= at_end != self.at_end;
            self.at_end = at_end;
            // An idle terminal keeps no buffer.
            self.buffer = Vec::new();
            return;
        }
        // Old questions first, which nobody answers. Output that is not taken in now is read again in the next turn.
        let old = self.answers_from.saturating_sub(self.position).min(piece.length as u64) as usize;
        let bytes = &self.buffer[..if old > 0 { old } else { piece.length }];
        let began = Instant::now();
        let taken = self.emulator.advance_while(bytes, || began.elapsed() < TURN_TIME);
        if old > 0 {
            drop(self.emulator.take_answers());
        }
        self.position += taken as u64;
        self.has_changed = true;
    }

    /// Takes in what the ring holds now, within a bound.
    pub(super) fn catch_up(&mut self) {
        let until = self.ring.head().unwrap_or(0).min(self.position.saturating_add(MAX_CATCH_UP_BYTES));
        self.is_behind = true;
        let began = Instant::now();
        while self.is_behind && self.position < until && began.elapsed() < MAX_CATCH_UP_TIME {
            self.take_in();
        }
    }

    /// Publishes the next change, or what has changed since the picture with this number.
    pub(super) fn watch(&mut self, seen: u64) {
        self.is_watched = true;
        self.has_changed |= seen != self.number;
    }

    /// When the next picture is due, if a watcher waits and there is something new.
    pub(super) fn due_at(&self, now: Instant) -> Option<Instant> {
        let is_due = self.is_watched && self.has_changed;
        is_due.then(|| self.published_at.map_or(now, |at| (at + MIN_INTERVAL).max(now)))
    }

    /// Publishes a picture, unless nothing has changed since the last one.
    pub(super) fn publish(&mut self, now: Instant) -> io::Result<()> {
        if !self.has_changed && self.number > 0 {
            return Ok(());
        }
        let mut picture = self.emulator.picture();
        picture.offset = self.position;
        picture.built_from = self.built_from;
        let mut bytes = Vec::with_capacity(64 << 10);
        picture.encode(&mut bytes);
        self.number += 1;
        self.memory.write_all_at(&(2 * self.number - 1).to_le_bytes(), SEQUENCE_AT)?;
        self.memory.write_all_at(&bytes, PICTURE_AT)?;
        self.memory.write_all_at(&MAGIC.to_le_bytes(), MAGIC_AT)?;
        self.memory.write_all_at(&(2 * self.number).to_le_bytes(), SEQUENCE_AT)?;
        self.has_changed = false;
        self.published_at = Some(now);
        Ok(())
    }

    /// What goes with the picture of this moment, encoded. Empty: there is none.
    pub(super) fn continuation(&mut self) -> Vec<u8> {
        let resets = self.emulator.resets();
        let continuation = self.emulator.continuation(self.position);
        // A screen that had to be made again is another one.
        self.has_changed |= self.emulator.resets() != resets;
        continuation.map(|continuation| continuation.encode(self.emulator.size())).unwrap_or_default()
    }

    /// Whether no more output comes and all of it was taken in.
    pub(super) fn is_at_end(&self) -> bool {
        self.at_end && !self.is_behind
    }
}
