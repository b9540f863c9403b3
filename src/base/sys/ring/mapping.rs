//! A ring's file in memory, shared between two processes.

use std::{
    ffi::c_void,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use nix::errno::Errno;

use crate::output::ring::HEADER_BYTES;

/// The first bytes of a ring's file, mapped shared; at least its header.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is plain shared memory, not tied to a thread. All access from Rust goes through atomics;
// the data area is only written by the kernel on behalf of `Writer::fill_from`, which takes `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(file: BorrowedFd<'_>, length: usize) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = NonNull::new(start).ok_or(Errno::EFAULT)?;
        Ok(Self { start, length })
    }

    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= HEADER_BYTES as usize);
        // SAFETY: `at` is one of the constants of `field`: aligned, and inside the header page, which every
        // mapping covers and which stays mapped as long as `self` lives. Both processes use it as an atomic only.
        unsafe { self.start.cast::<u8>().add(at).cast::<AtomicU64>().as_ref() }
    }

    pub(super) fn part(&self, from: u64, to: u64) -> libc::iovec {
        debug_assert!(from <= to && to <= self.length as u64);
        // SAFETY: the range lies inside the mapping: `Layout::places` keeps to the file that was mapped whole.
        let base = unsafe { self.start.as_ptr().add(from as usize) };
        libc::iovec { iov_base: base, iov_len: (to - from) as usize }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}
