//! Records which places of mutants a program comes by: a byte for each in a file that is mapped before `main`. This file is
//! part of a build by `.ci/mutants` and of no other.
//!
//! Mapped so early, because later a process has another root, another user and filters. What it forks and clones has the same
//! mapping. No descriptor stays open.

use std::{
    fs::OpenOptions,
    os::fd::AsRawFd,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU8, Ordering},
};

/// Beyond the number of mutants; the file's size.
const LENGTH: usize = 1 << 16;

static PLACES: AtomicPtr<u8> = AtomicPtr::new(null_mut());

// SAFETY: the section holds pointers to functions that the C library calls before `main`, with the C calling convention
// and nothing that they return; there is one thread then, and `map` needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = map;

extern "C" fn map() {
    let Some(path) = crate::mutant::record_path() else { return };
    // A program in a sandbox does not see the file: nothing of the gateway is started there.
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that has LENGTH bytes.
    let places = unsafe {
        libc::mmap(null_mut(), LENGTH, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if places != libc::MAP_FAILED {
        PLACES.store(places.cast(), Ordering::Relaxed);
    }
}

/// Records that a place was come by.
pub fn record(place: u32) {
    let places = PLACES.load(Ordering::Relaxed);
    if !places.is_null() && (place as usize) < LENGTH {
        // SAFETY: the mapping has LENGTH bytes, is never removed, and is accessed by atomics alone.
        unsafe { AtomicU8::from_ptr(places.add(place as usize)) }.store(1, Ordering::Relaxed);
    }
}
