//! Clocks of clock_gettime(2) that the standard library does not read.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What the calling thread has had of processors since it began (`CLOCK_THREAD_CPUTIME_ID`): what others do on the machine does not count.
pub fn thread_cpu_time() -> Duration {
    now(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The time since the boot, suspended or not, as processes have it for their start: `starttime` of proc_pid_stat(5), in hundredths of a
/// second (USER_HZ, which is 100 on every machine that is known here).
pub fn boot_ticks() -> u64 {
    (now(ClockId::CLOCK_BOOTTIME).as_millis() / 10) as u64
}

fn now(clock: ClockId) -> Duration {
    // It cannot fail for a clock that every kernel has.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
