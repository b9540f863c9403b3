//! A reserve of descriptors, for when the process has no other left.
//!
//! Without a free descriptor, a waiting connection can be neither accepted nor refused: the listening socket stays
//! ready, and the accept loop spins.

use std::{fs::File, io, os::fd::OwnedFd, time::Duration};

use nix::errno::Errno;

/// Descriptors that are held in reserve.
const RESERVED: usize = 4;
/// After an accept that failed for want of descriptors, the next one comes so much later.
pub(in super::super) const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// At most, after several in a row.
const BACKOFF_MAX: Duration = Duration::from_millis(250);

/// The reserve.
#[derive(Debug)]
pub(in super::super) struct DescriptorReserve {
    held: Vec<OwnedFd>,
    backoff: Duration,
}

impl DescriptorReserve {
    /// Opens them.
    pub(in super::super) fn open() -> Self {
        let mut reserve = Self { held: Vec::new(), backoff: BACKOFF_MIN };
        reserve.refill();
        reserve
    }

    /// Closes one, so that one connection can be accepted and closed. Nothing is left when this returns `None`.
    pub(in super::super) fn close_one(&mut self) -> Option<()> {
        self.held.pop().map(drop)
    }

    /// Opens again what was lent, as far as there are descriptors.
    pub(in super::super) fn refill(&mut self) {
        while self.held.len() < RESERVED {
            match File::open("/dev/null") {
                Ok(file) => self.held.push(file.into()),
                // The next time.
                Err(_) => return,
            }
        }
    }

    /// How long to wait before the next accept.
    pub(in super::super) fn next_backoff(&mut self) -> Duration {
        let wait = self.backoff;
        self.backoff = (wait * 2).min(BACKOFF_MAX);
        wait
    }

    /// An accept has succeeded.
    pub(in super::super) fn reset_backoff(&mut self) {
        self.backoff = BACKOFF_MIN;
    }

    /// Whether this failure is for want of descriptors, or of memory for them.
    pub(in super::super) fn is_shortage(error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM))
    }
}
