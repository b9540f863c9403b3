//! Host ids for sandboxes: a pair from a range when the gateway is privileged, else the user's own.
//!
//! No two live sandboxes on a host share an id, whichever gateway made them: a pair is claimed by a lock on one
//! byte of a file, and the supervisor holds the lock while it lives. A table of ids in use would have to be shared by all
//! gateways of the host and survive their crashes; here nothing can become stale. Host root is never given out.

use std::{
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};

/// Host ids that sandboxes are made of.
#[derive(Debug)]
pub struct HostIdRange {
    first: u32,
    pairs: u32,
    locks: PathBuf,
    next: AtomicU32,
}

/// The first id, far above what distributions and directories give to people, as systemd's container ranges are.
pub(crate) const DEFAULT_FIRST_ID: u32 = 1_879_048_192;

/// How many sandboxes can live at once on a host.
pub(crate) const DEFAULT_PAIRS: u32 = 16_384;

/// Where the claims of all privileged gateways of a host are held.
pub(crate) const DEFAULT_LOCKS: &str = "/run/provost/ids";

impl Default for HostIdRange {
    fn default() -> Self {
        Self::new(DEFAULT_FIRST_ID, DEFAULT_PAIRS, DEFAULT_LOCKS.into())
    }
}

/// Two host ids that belong to one sandbox.
#[derive(Debug)]
pub struct HostIdClaim {
    /// The supervisor's id, as user and as group.
    pub supervisor: u32,
    /// The commands' id.
    pub command: u32,
    /// More ids, as many as were asked for: of groups, and of the gate.
    pub more: Vec<u32>,
    /// The claim lasts while a copy of this descriptor is open.
    pub lock: OwnedFd,
}

/// Why no ids could be had.
#[derive(Debug, thiserror::Error)]
pub enum HostIdError {
    /// The file of claims cannot be used.
    #[error("open the claims on host ids at {path}")]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A lock failed for another reason than that it is taken.
    #[error("claim host ids")]
    Lock(#[source] Errno),
    /// Every pair belongs to a living sandbox.
    #[error("all {pairs} pairs of host ids are in use")]
    Exhausted {
        /// How many there are.
        pairs: u32,
    },
}

impl HostIdRange {
    /// `pairs` times two ids from `first` on, claimed in the file `locks`.
    #[must_use]
    pub fn new(first: u32, pairs: u32, locks: PathBuf) -> Self {
        // Start at an arbitrary pair, so that ids are not reused at once.
        Self { first, pairs: pairs.max(1), locks, next: AtomicU32::new(std::process::id()) }
    }

    /// All of them.
    #[must_use]
    pub fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.first.saturating_add(self.pairs.saturating_mul(2))
    }

    /// Claims a pair that no living sandbox has, and as many more as that many ids take.
    ///
    /// # Errors
    /// [`HostIdError`].
    pub fn claim(&self, count: usize) -> Result<HostIdClaim, HostIdError> {
        let lock = open_claims(&self.locks)
            .map_err(|cause| HostIdError::Open { path: self.locks.clone(), cause })?;
        let mut ours = Vec::new();
        let supervisor = self.claim_pair(&lock, &mut ours)?;
        let mut more = Vec::with_capacity(count + 1);
        while more.len() < count {
            let first = self.claim_pair(&lock, &mut ours)?;
            more.extend([first, first + 1]);
        }
        more.truncate(count);
        Ok(HostIdClaim { supervisor, command: supervisor + 1, more, lock })
    }

    /// Claims a free pair and returns its first id. Locks on `ours` belong to the same open file and would not
    /// conflict.
    fn claim_pair(&self, lock: &OwnedFd, ours: &mut Vec<u32>) -> Result<u32, HostIdError> {
        // From behind the last one on, so that ids are not used again at once.
        for _ in 0..self.pairs {
            let pair = self.next.fetch_add(1, Ordering::Relaxed) % self.pairs;
            if !ours.contains(&pair) && try_lock(lock, pair)? {
                ours.push(pair);
                return Ok(self.first + 2 * pair);
            }
        }
        Err(HostIdError::Exhausted { pairs: self.pairs })
    }
}

/// Each claim has its own open file, which owns the lock (fcntl(2), open file description locks).
fn open_claims(path: &Path) -> io::Result<OwnedFd> {
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
    };
    match (open(), path.parent()) {
        (Err(cause), Some(directory)) if cause.kind() == io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
            open()
        }
        (opened, _) => opened,
    }
    .map(OwnedFd::from)
}

fn try_lock(file: &OwnedFd, pair: u32) -> Result<bool, HostIdError> {
    let byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(pair),
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&byte)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(HostIdError::Lock(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that is there soon: a child of another test holds a copy of each lock until its exec.
    fn claim_soon(range: &HostIdRange, more: usize) -> HostIdClaim {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match range.claim(more) {
                Ok(claim) => return claim,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn living_sandboxes_never_share_ids_and_dead_ones_give_them_back() {
        let directory = tempfile::tempdir().unwrap();
        let ranges = [0, 1].map(|_| HostIdRange::new(1_000_000, 2, directory.path().join("claims")));
        let first = ranges[0].claim(0).unwrap();
        let second = ranges[1].claim(0).unwrap();
        assert_ne!(first.supervisor, second.supervisor);
        assert_eq!(first.command, first.supervisor + 1);
        assert!(matches!(ranges[0].claim(0), Err(HostIdError::Exhausted { pairs: 2 })));
        let kept = first.lock.try_clone().unwrap();
        let freed = first.supervisor;
        drop(first);
        assert!(
            ranges[1].claim(0).is_err(),
            "a copy of the descriptor, as the supervisor's, holds the claim"
        );
        drop(kept);
        assert_eq!(claim_soon(&ranges[1], 0).supervisor, freed);
        drop(second);
        let wide = claim_soon(&ranges[0], 2);
        assert!(wide.more.len() == 2 && !wide.more.contains(&wide.supervisor));
        assert!(!wide.more.contains(&wide.command) && wide.more[0] != wide.more[1]);
        assert!(matches!(ranges[1].claim(0), Err(HostIdError::Exhausted { .. })));
        drop(wide);
        assert!(matches!(ranges[1].claim(3), Err(HostIdError::Exhausted { .. })));
        // A claim that failed holds nothing.
        claim_soon(&ranges[0], 1);
    }
}
