//! clone3(2) with a stack of its own, and bare system calls for the code that runs on it.
//!
//! The new process shares our memory until it executes. So nothing here goes through libc in the child: no
//! errno (it shares our thread-local one), no locks, no allocation. What the child does is not decided here.

use std::{ffi::c_void, ptr::NonNull};

use nix::errno::Errno;

/// Flags of clone(2) that libc types too narrowly.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What the child runs, on its own stack. It must not return.
pub(super) type ChildEntry = extern "C" fn(*mut c_void) -> i32;

/// `struct clone_args` of clone(2).
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CloneArgs {
    pub(super) flags: u64,
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
    pub(super) set_tid: u64,
    pub(super) set_tid_size: u64,
    pub(super) cgroup: u64,
}

/// clone3(2); the child calls `entry(argument)` on the stack that `args` names. The nonce is in registers that the call does not use, by
/// which a sandbox's filter knows its supervisor.
///
/// # Safety
/// `args` must name a stack that nothing else uses until the child has executed or ended, and `entry` and
/// `argument` must be fit to run there while this process goes on in the same memory.
pub(super) unsafe fn clone3(
    args: &CloneArgs,
    entry: ChildEntry,
    argument: *mut c_void,
    nonce: [usize; 2],
) -> Result<i32, Errno> {
    let [first, second] = nonce;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: clone3 reads `args` and returns twice. The parent goes on at 2: with all registers but those named
    // clobbered as they were. The child has a new stack, 16-aligned by the caller, calls `entry` as the C ABI
    // wants it, and never leaves this block.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            in("rdx") first,
            in("r10") second,
            in("r8") entry,
            in("r9") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x10",
            "blr x9",
            "brk #1",
            "2:",
            inlateout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size_of::<CloneArgs>(),
            in("x2") first,
            in("x3") second,
            in("x8") libc::SYS_clone3,
            in("x9") entry,
            in("x10") argument,
            lateout("x30") _,
        );
    }
    if result < 0 { Err(Errno::from_raw(-result as i32)) } else { Ok(result as i32) }
}

/// A system call that touches nothing but registers: the result, or minus the errno.
///
/// # Safety
/// As the system call itself demands.
#[inline(always)]
pub(super) unsafe fn raw_syscall(number: i64, arguments: [usize; 5]) -> isize {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the caller's obligation; the kernel does not look at an argument that a call does not have.
    unsafe { raw_syscall_of_six(number, [a, b, c, d, e, 0]) }
}

/// As [`raw_syscall`], with the sixth argument.
///
/// # Safety
/// As the system call itself demands.
#[inline(always)]
pub(super) unsafe fn raw_syscall_of_six(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; memory is the caller's obligation.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel keeps all registers but x0; memory is the caller's obligation.
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            in("x8") number,
            options(nostack),
        );
    }
    result
}

/// A stack for a child, with a page below it, however large pages are, that faults.
#[derive(Debug)]
pub(super) struct Stack {
    start: NonNull<c_void>,
}

const STACK_BYTES: usize = 64 << 10;
/// The largest page that Linux has on the machines that this is written for (aarch64 may have 4, 16 or 64 KiB): a guard
/// of less would be widened over the stack by the kernel. It takes up addresses and no memory.
const GUARD_BYTES: usize = 64 << 10;

impl Stack {
    pub(super) fn new() -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new anonymous mapping touches no memory that is in use.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), GUARD_BYTES + STACK_BYTES, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let stack = Self { start: NonNull::new(start).ok_or(Errno::EFAULT)? };
        // SAFETY: the first page of our own mapping, which nothing uses yet.
        Errno::result(unsafe { libc::mprotect(start, GUARD_BYTES, libc::PROT_NONE) })?;
        Ok(stack)
    }

    /// Lowest usable address and length, as clone3(2) wants them.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.start.as_ptr() as u64 + GUARD_BYTES as u64, STACK_BYTES as u64)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping; a child that runs on it keeps the `Stack` borrowed.
        unsafe { libc::munmap(self.start.as_ptr(), GUARD_BYTES + STACK_BYTES) };
    }
}
