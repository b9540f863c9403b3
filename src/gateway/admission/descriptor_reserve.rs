//! The limit of this process's descriptors (RLIMIT_NOFILE of getrlimit(2)), and a reserve for when the process has no other left.
//!
//! Without a free descriptor, a waiting connection can be neither accepted nor refused: the listening socket stays ready, and the accept
//! loop spins.

use std::{fs::File, io, os::fd::OwnedFd, time::Duration};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

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

/// Lets this process open as many files as it may, and not only as many as a shell begins with.
pub(in super::super) fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(soft, hard, error = %errno, "the limit of open files cannot be raised");
    }
}

/// How many descriptors this process may have open.
pub(in super::super) fn descriptors_max() -> u64 {
    // It cannot fail for a limit that every kernel has.
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}
