//! Makes the C library's allocator return freed memory to the system.
//!
//! A large request would leave free memory behind in several arenas.

/// Blocks from this size on are mapped for themselves, and unmapped when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: libc::c_int = 128 << 10;
/// Arenas: threads that allocate at once are few, and each arena keeps what it once had.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 4;

/// Makes freed large blocks return to the system from now on. Call it before threads exist. Does nothing with a C
/// library that lacks these parameters.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) changes the allocator's parameters under its own lock and takes no pointer. A value that it does
    // not take leaves the parameter as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Returns free memory to the system now. Takes some milliseconds.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) gives free pages back under the allocator's own locks, and touches no block in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
