//! Calls that fail as if the kernel did not have them (`ENOSYS`), so that programs fall back to calls that the
//! filter can check.

use libc::c_long;

use super::arch::Arch;

/// All of them.
pub(super) fn calls(machine: Arch) -> Vec<c_long> {
    vec![
        // The host's root and all sandboxes have one number of contexts together (`fs.aio-max-nr`). Libraries that want
        // them go on with threads.
        machine.number(206, 0), // io_setup
        447,                    // memfd_secret: memory that not even the kernel can look into.
        425,
        426,
        427, // io_uring_*: a second way to make calls, out of this filter's sight.
        451, // cachestat: which pages of the host's files others have read.
        457,
        458, // statmount, listmount: mounts; programs read /proc/self/mountinfo.
        459,
        460,
        461, // lsm_*: what /proc/self/attr says, and a way round its being read-only.
        437, // openat2: its mode lies in memory, where a filter cannot look for set-id bits.
    ]
}
