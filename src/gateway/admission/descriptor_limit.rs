//! The limit of this process's descriptors (RLIMIT_NOFILE of getrlimit(2)).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

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
