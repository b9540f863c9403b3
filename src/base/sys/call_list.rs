//! A system call filter from a list of what is allowed, as a classic BPF program (seccomp(2)). Everything else fails with `EPERM`; calls
//! of another processor's kind end the process. Pure: installs nothing.

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
const FIRST_ARGUMENT: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NATIVE: u32 = 0;

/// Numbers from here on are of x32.
const X32: u32 = 0x4000_0000;

/// Memory, time, signals, the end: what every process needs, whatever it does.
const BASIC: &[c_long] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What is allowed beyond memory, time, signals and the end.
#[derive(Debug, Clone, Copy)]
pub struct CallList<'a> {
    /// Whatever their arguments are.
    pub always: &'a [c_long],
    /// Unless they make memory executable: mmap(2) and mprotect(2).
    pub without_execute: &'a [c_long],
    /// With one of these values in the lower half of one argument: the call, the argument counted from 0, the values.
    pub with_argument: &'a [(c_long, u32, &'a [u32])],
    /// If no bit of these is set in the lower half of one argument: the call, the argument counted from 0, the bits.
    pub without_bits: &'a [(c_long, u32, u32)],
}

impl CallList<'_> {
    /// The program.
    #[must_use]
    pub fn program(&self) -> Vec<u8> {
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
        for call in BASIC.iter().chain(self.always) {
            push(JUMP_EQUAL, 0, 1, *call as u32);
            push(RETURN, 0, 0, ALLOW);
        }
        let protection = self.without_execute.iter().map(|call| (*call, 2, libc::PROT_EXEC as u32));
        for (call, argument, bits) in protection.chain(self.without_bits.iter().copied()) {
            push(JUMP_EQUAL, 0, 4, call as u32);
            push(LOAD, 0, 0, FIRST_ARGUMENT + argument * ARGUMENT_BYTES);
            push(JUMP_IF_ANY_BIT, 1, 0, bits);
            push(RETURN, 0, 0, ALLOW);
            push(RETURN, 0, 0, REFUSE);
        }
        for (call, argument, values) in self.with_argument {
            // Lists are short: a jump reaches 255 instructions.
            push(JUMP_EQUAL, 0, 2 + 2 * values.len() as u8, *call as u32);
            push(LOAD, 0, 0, FIRST_ARGUMENT + argument * ARGUMENT_BYTES);
            for value in *values {
                push(JUMP_EQUAL, 0, 1, *value);
                push(RETURN, 0, 0, ALLOW);
            }
            push(RETURN, 0, 0, REFUSE);
        }
        push(RETURN, 0, 0, REFUSE);
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a call.
    fn run(program: &[u8], architecture: u32, number: u32, arguments: [u32; 6]) -> u32 {
        let word = |at: usize| u32::from_ne_bytes(program[at..at + 4].try_into().unwrap());
        let (mut at, mut loaded) = (0, 0);
        loop {
            let code = u16::from_ne_bytes(program[at..at + 2].try_into().unwrap());
            let (if_true, if_false, value) = (program[at + 2], program[at + 3], word(at + 4));
            let jump = |is: bool| if is { if_true } else { if_false };
            let skipped = match code {
                LOAD if value == NUMBER => (loaded = number, 0).1,
                LOAD if value == ARCHITECTURE => (loaded = architecture, 0).1,
                LOAD => (loaded = arguments[((value - FIRST_ARGUMENT) / ARGUMENT_BYTES) as usize], 0).1,
                JUMP_EQUAL => jump(loaded == value),
                JUMP_AT_LEAST => jump(loaded >= value),
                JUMP_IF_ANY_BIT => jump(loaded & value != 0),
                RETURN => return value,
                other => panic!("{other}"),
            };
            at += 8 * (1 + usize::from(skipped));
        }
    }

    #[test]
    fn what_is_listed_is_allowed_with_its_arguments_and_nothing_else_is() {
        let list = CallList {
            always: &[1, 2],
            without_execute: &[3],
            with_argument: &[(4, 1, &[7, 8]), (5, 0, &[0])],
            without_bits: &[(6, 2, 3)],
        };
        let program = list.program();
        let run = |number, arguments| run(&program, NATIVE, number, arguments);
        let none = [0; 6];
        assert_eq!([run(1, none), run(2, [9; 6]), run(3, none), run(5, none), run(6, none)], [ALLOW; 5]);
        assert_eq!(run(3, [0, 0, libc::PROT_EXEC as u32, 0, 0, 0]), REFUSE);
        assert_eq!([run(4, [0, 7, 0, 0, 0, 0]), run(4, [0, 8, 0, 0, 0, 0])], [ALLOW; 2]);
        assert_eq!([run(4, [7, 0, 0, 0, 0, 0]), run(5, [1; 6]), run(6, [0, 0, 2, 0, 0, 0])], [REFUSE; 3]);
        assert_eq!([run(0, none), run(7, none), run(X32 - 1, none)], [REFUSE; 3]);
        assert_eq!(run(X32 + 1, none), KILL_PROCESS);
        assert_eq!(super::tests::run(&program, NATIVE ^ 1, 1, none), KILL_PROCESS);
    }
}
