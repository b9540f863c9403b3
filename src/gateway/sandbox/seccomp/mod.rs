//! The system call filter, as a classic BPF program: a denylist of what builds and tests do not need, and of calls
//! by which a command could get past its sandbox.
//!
//! Pure: it makes bytes and installs nothing. The default is to allow, because namespaces, ids and mounts are the
//! boundary; the filter keeps commands away from the kernel's riskier parts and closes what the other layers leave
//! open. The supervisor runs under it too.
//!
//! The tables have a reason for each entry: `conditional` compares arguments, `unimplemented` and `forbidden` only the
//! call's number, and `families` lists the sockets that there may be. docs/confinement.md shows them. `notified` has what the gate evaluates.

pub(crate) mod arch;
mod bytecode;
mod conditional;
mod families;
mod forbidden;
pub(crate) mod notified;
mod table;
mod unimplemented;

use arch::Arch;
use bytecode::{ALLOW, FilterBuilder, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS, LOAD, RETURN, errno};
use notified::Listener;

/// Whether memory without a name may become a program: memfd_create(2) without `MFD_NOEXEC_SEAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnonymousPrograms {
    /// As the kernel does it.
    Allowed,
    /// The seal is demanded, with which nothing makes the file executable.
    Refused,
}

/// The program: `struct sock_filter`s in native byte order, ready for seccomp(2). Where calls are notified, the listener must be
/// installed with it.
#[must_use]
pub(crate) fn program(machine: Arch, anonymous: AnonymousPrograms, listener: Listener<'_>) -> Vec<u8> {
    let mut filter = FilterBuilder::default();
    filter.push(LOAD, 0, 0, OFFSET_ARCH);
    // Calls of another architecture have other numbers, which this filter does not know.
    filter.push(JUMP_EQUAL, 1, 0, machine.audit_arch());
    filter.push(RETURN, 0, 0, KILL_PROCESS);
    filter.push(LOAD, 0, 0, OFFSET_NUMBER);
    if machine == Arch::X86_64 {
        // x32: the same calls under other numbers, and a history of holes.
        filter.push(JUMP_AT_LEAST, 0, 1, X32_BIT);
        filter.push(RETURN, 0, 0, errno(libc::EPERM));
    }
    // Nobody has looked at calls of later kernels, which the rest would allow on the day of the upgrade. Programs go on without
    // them, as on today's kernels.
    filter.push(JUMP_AT_LEAST, 0, 1, LAST_KNOWN + 1);
    filter.push(RETURN, 0, 0, errno(libc::ENOSYS));
    for call in notified::calls(machine, listener) {
        filter.notify(&call);
    }
    for (call, when) in conditional::rules(machine, anonymous, listener) {
        filter.rule(call, when);
    }
    for call in table::numbers(unimplemented::CALLS, machine) {
        filter.refuse(call, libc::ENOSYS);
    }
    for call in table::numbers(forbidden::CALLS, machine) {
        filter.refuse(call, libc::EPERM);
    }
    filter.push(RETURN, 0, 0, ALLOW);
    filter.into_bytes()
}

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;

/// The newest call that these lists know: file_setattr, of Linux 6.17. All machines have the same numbers from 424 on. Who raises
/// it judges every call below it first.
const LAST_KNOWN: u32 = 469;

/// The bit that calls of x32 have in their numbers.
const X32_BIT: u32 = 0x4000_0000;

#[cfg(test)]
mod tests;
