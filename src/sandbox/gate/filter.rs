//! The system calls of a gate: a list of what it does once it is set up. Everything else fails with `EPERM`.
//!
//! It reads what commands have written: paths, arguments, files. Should one of them get the better of it, it can still execute nothing,
//! start and connect to nothing, make no memory executable, send no signal but KILL, change neither memory nor registers of what
//! it traces, and make no file set-user-id. The flags of openat2(2) lie in memory, where no filter sees them: to files it has the rights that
//! commands have.

use libc::c_long;

use crate::sys::{call_list::CallList, kcmp, pidfd, ptrace, seccomp_listener};

const ALWAYS: &[c_long] = &[
    // The event loop and its connections.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    // What callers and files are.
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_faccessat2,
    libc::SYS_process_vm_readv,
    libc::SYS_pread64,
    libc::SYS_pidfd_open,
    libc::SYS_wait4,
];

/// Of the listener, and of descriptors of threads, which say something and change nothing.
const IOCTLS: &[u32] = &[
    seccomp_listener::COMMANDS[0],
    seccomp_listener::COMMANDS[1],
    seccomp_listener::COMMANDS[2],
    pidfd::INFO_COMMAND,
];

const WITH_ARGUMENT: &[(c_long, u32, &[u32])] = &[
    (libc::SYS_ioctl, 1, IOCTLS),
    (libc::SYS_ptrace, 0, ptrace::REQUESTS),
    (libc::SYS_kcmp, 2, &[kcmp::DIRECTORY]),
    (libc::SYS_kill, 1, &[libc::SIGKILL as u32]),
    // Whether a thread is there.
    (libc::SYS_tgkill, 2, &[0]),
    (
        libc::SYS_fcntl,
        1,
        &[libc::F_GETFD as u32, libc::F_SETFD as u32, libc::F_GETFL as u32, libc::F_SETFL as u32],
    ),
];

/// What opens a file for more than to read it.
const TO_WRITE: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// The program.
pub(super) fn program() -> Vec<u8> {
    CallList {
        always: ALWAYS,
        without_execute: &[libc::SYS_mmap, libc::SYS_mprotect],
        with_argument: WITH_ARGUMENT,
        without_bits: &[(libc::SYS_openat, 2, TO_WRITE), (libc::SYS_fchmodat, 2, libc::S_ISUID)],
    }
    .program()
}
