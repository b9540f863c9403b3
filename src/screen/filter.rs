//! The system calls of a screen process: a list of what is allowed, as a classic BPF program. Everything else fails with
//! `EPERM`.

use libc::c_long;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const THIRD_ARGUMENT: u32 = 32;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NATIVE: u32 = 0;

/// Numbers from here on are of x32.
const X32: u32 = 0x4000_0000;

/// Reading and writing what is open, memory, time, the event loop, the end.
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
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Allowed unless they make memory executable.
const ALLOWED_WITHOUT_EXECUTE: &[c_long] = &[libc::SYS_mmap, libc::SYS_mprotect];

/// The program.
pub(super) fn program() -> Vec<u8> {
    let mut program = Vec::new();
    let mut push = |code: u16, if_true: u8, if_false: u8, value: u32| {
        program.extend(code.to_ne_bytes());
        program.extend([if_true, if_false]);
        program.extend(value.to_ne_bytes());
    };
    push(LOAD, 0, 0, ARCHITECTURE);
    push(JUMP_EQUAL, 1, 0, NATIVE);
    push(RETURN, 0, 0, KILL_PROCESS);
    push(LOAD, 0, 0, NUMBER);
    push(JUMP_AT_LEAST, 0, 1, X32);
    push(RETURN, 0, 0, KILL_PROCESS);
    for call in ALLOWED {
        push(JUMP_EQUAL, 0, 1, *call as u32);
        push(RETURN, 0, 0, ALLOW);
    }
    for call in ALLOWED_WITHOUT_EXECUTE {
        push(JUMP_EQUAL, 0, 4, *call as u32);
        push(LOAD, 0, 0, THIRD_ARGUMENT);
        push(JUMP_IF_ANY_BIT, 1, 0, libc::PROT_EXEC as u32);
        push(RETURN, 0, 0, ALLOW);
        push(RETURN, 0, 0, REFUSE);
    }
    push(RETURN, 0, 0, REFUSE);
    program
}
