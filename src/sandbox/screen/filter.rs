//! The system calls of a screen process: a list of what is allowed, as a classic BPF program. Everything else fails with
//! `EPERM`.

use libc::c_long;

use crate::sys::call_list::CallList;

/// Reading and writing what is open, and the event loop.
const ALLOWED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_fstat,
    // How some C libraries do it. There is no path to name.
    libc::SYS_newfstatat,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_sched_yield,
];

/// The program.
pub(super) fn program() -> Vec<u8> {
    CallList {
        always: ALLOWED,
        without_execute: &[libc::SYS_mmap, libc::SYS_mprotect],
        with_argument: &[],
        without_bits: &[],
    }
    .program()
}
