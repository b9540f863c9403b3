//! The processor time of a thread (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`): what others do on the machine does not count.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What the calling thread has had of processors since it began.
pub fn thread_cpu_time() -> Duration {
    // It cannot fail for a clock that every kernel has.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
