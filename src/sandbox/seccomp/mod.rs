//! The system call filter, as a classic BPF program: what no build and no test needs, and what would let a command
//! reach past its sandbox.
//!
//! Pure: it makes bytes and installs nothing. It is a list of refusals over an allowing default, because the
//! boundary is made of namespaces, ids and mounts; the filter keeps commands away from the kernel's riskier parts
//! and closes the few ways around that the other layers leave open. The supervisor lives under it too.
//!
//! The lists are by family: `conditional` looks at arguments, `unimplemented` and `forbidden` at the number alone.

pub mod arch;
mod bytecode;
mod conditional;
mod forbidden;
mod unimplemented;

use arch::Arch;
use bytecode::{ALLOW, FilterBuilder, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS, LOAD, RETURN, errno};

/// The program: `struct sock_filter`s in native byte order, ready for seccomp(2).
#[must_use]
pub fn program(machine: Arch) -> Vec<u8> {
    let mut filter = FilterBuilder::default();
    filter.push(LOAD, 0, 0, OFFSET_ARCH);
    // Another machine's calls have other numbers, which this filter cannot judge.
    filter.push(JUMP_EQUAL, 1, 0, machine.audit_arch());
    filter.push(RETURN, 0, 0, KILL_PROCESS);
    filter.push(LOAD, 0, 0, OFFSET_NUMBER);
    if machine == Arch::X86_64 {
        // x32: the same calls under other numbers, and a history of holes.
        filter.push(JUMP_AT_LEAST, 0, 1, X32_BIT);
        filter.push(RETURN, 0, 0, errno(libc::EPERM));
    }
    // What a later kernel adds has been judged by nobody; programs go on without it, as on the kernels of today.
    filter.push(JUMP_AT_LEAST, 0, 1, LAST_KNOWN + 1);
    filter.push(RETURN, 0, 0, errno(libc::ENOSYS));
    for rule in conditional::rules(machine) {
        filter.rule(&rule);
    }
    for call in unimplemented::calls(machine) {
        filter.refuse(call, libc::ENOSYS);
    }
    for call in forbidden::calls(machine) {
        filter.refuse(call, libc::EPERM);
    }
    filter.push(RETURN, 0, 0, ALLOW);
    filter.into_bytes()
}

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;

/// The newest call that these lists know: file_setattr, of Linux 6.17. All machines have the same numbers from 424 on.
const LAST_KNOWN: u32 = 469;

/// The bit that calls of x32 have in their numbers.
const X32_BIT: u32 = 0x4000_0000;

#[cfg(test)]
mod tests;
