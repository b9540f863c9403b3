//! The system call filter, as a classic BPF program: what no build and no test needs, and what would let a command
//! reach past its sandbox.
//!
//! Pure: it makes bytes and installs nothing. It is a list of refusals over an allowing default, because the
//! boundary is made of namespaces, ids and mounts; the filter keeps commands away from the kernel's riskier parts
//! and closes the few ways around that the other layers leave open. The supervisor lives under it too.

use libc::c_long;

/// A machine that a filter can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Machine {
    /// The one that this program was built for, if it is known here.
    #[must_use]
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    const fn audit_arch(self) -> u32 {
        match self {
            Self::X86_64 => 0xC000_003E,
            Self::Aarch64 => 0xC000_00B7,
        }
    }
}

/// The program: `struct sock_filter`s in native byte order, ready for seccomp(2).
#[must_use]
pub fn program(machine: Machine) -> Vec<u8> {
    let mut filter = Filter::default();
    filter.push(LOAD, 0, 0, OFFSET_ARCH);
    // Another machine's calls have other numbers, which this filter cannot judge.
    filter.push(JUMP_EQUAL, 1, 0, machine.audit_arch());
    filter.push(RETURN, 0, 0, KILL_PROCESS);
    filter.push(LOAD, 0, 0, OFFSET_NUMBER);
    if machine == Machine::X86_64 {
        // x32: the same calls under other numbers, and a history of holes.
        filter.push(JUMP_AT_LEAST, 0, 1, X32_BIT);
        filter.push(RETURN, 0, 0, errno(libc::EPERM));
    }
    let numbers = Numbers::of(machine);
    for rule in numbers.conditional() {
        filter.rule(rule);
    }
    for call in numbers.absent() {
        filter.refuse(*call, libc::ENOSYS);
    }
    for call in numbers.forbidden() {
        filter.refuse(call, libc::EPERM);
    }
    filter.push(RETURN, 0, 0, ALLOW);
    filter.0
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const X32_BIT: u32 = 0x4000_0000;

const fn errno(number: i32) -> u32 {
    0x0005_0000 | number.cast_unsigned()
}

/// Offset of the lower half of an argument. Both machines are little-endian; the upper half of what is looked at
/// here is ignored by the kernel too (modes, flags and commands are 32 bits).
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

#[derive(Default)]
struct Filter(Vec<u8>);

impl Filter {
    fn push(&mut self, code: u16, if_true: u8, if_false: u8, value: u32) {
        self.0.extend_from_slice(&code.to_ne_bytes());
        self.0.extend_from_slice(&[if_true, if_false]);
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn refuse(&mut self, call: c_long, with: i32) {
        self.push(JUMP_EQUAL, 0, 1, number(call));
        self.push(RETURN, 0, 0, errno(with));
    }

    /// The call's number is in the accumulator before and, when the rule is for another call, after.
    fn rule(&mut self, rule: &Conditional) {
        let refuse = (RETURN, 0, 0, errno(libc::EPERM));
        let allow = (RETURN, 0, 0, ALLOW);
        let body: Vec<(u16, u8, u8, u32)> = match rule.when {
            When::AnyBit { index, bits } => {
                vec![(LOAD, 0, 0, argument(index)), (JUMP_IF_ANY_BIT, 0, 1, bits), refuse, allow]
            }
            When::Creating { flags, mode } => vec![
                (LOAD, 0, 0, argument(flags)),
                (JUMP_IF_ANY_BIT, 0, 3, CREATES),
                (LOAD, 0, 0, argument(mode)),
                (JUMP_IF_ANY_BIT, 0, 1, SET_ID),
                refuse,
                allow,
            ],
            When::OneOf { index, values: [first, second] } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 1, 0, first),
                (JUMP_EQUAL, 0, 1, second),
                refuse,
                allow,
            ],
            When::FamilyOf { index } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 4, 0, FAMILIES[0]),
                (JUMP_EQUAL, 3, 0, FAMILIES[1]),
                (JUMP_EQUAL, 2, 0, FAMILIES[2]),
                (JUMP_EQUAL, 1, 0, FAMILIES[3]),
                (RETURN, 0, 0, errno(libc::EAFNOSUPPORT)),
                allow,
            ],
            When::OtherThan { index, values: [first, second], mask } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 2, 0, first),
                (AND, 0, 0, mask),
                (JUMP_EQUAL, 0, 1, second),
                allow,
                refuse,
            ],
        };
        self.push(JUMP_EQUAL, 0, body.len() as u8, number(rule.call));
        for (code, if_true, if_false, value) in body {
            self.push(code, if_true, if_false, value);
        }
    }
}

fn number(call: c_long) -> u32 {
    // Call numbers are small and positive; one that were not could never match.
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// `S_ISUID | S_ISGID`. On an id-mapped workspace a command's files belong to the principal on disk, so a set-id
/// program made by a command would run as the principal for whoever starts it outside.
const SET_ID: u32 = 0o6000;

/// `O_CREAT | __O_TMPFILE`: without them open(2) has no mode, and its register holds anything.
const CREATES: u32 = 0o100 | 0o20_000_000;

/// Every namespace: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 = 0x7E02_0000;
/// CLONE_NEWTIME: for unshare(2) only, because clone(2) has the exit signal in these bits.
const TIME_NAMESPACE: u32 = 0x80;

/// Types a character into a terminal: into the one of whoever shares it.
const TIOCSTI: u32 = 0x5412;
/// Pastes on a console, likewise.
const TIOCLINUX: u32 = 0x541C;

/// The address families that programs use: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others are parts of the kernel
/// that nobody needs here, and AF_VSOCK reaches the hypervisor's host from any network namespace.
const FAMILIES: [u32; 4] = [1, 2, 10, 16];

/// The execution domain of Linux, and "do not change, only tell".
const PERSONALITY_QUERY: u32 = 0xffff_ffff;
/// ADDR_NO_RANDOMIZE: debuggers switch address randomisation off for what they start.
const NO_RANDOMIZE: u32 = 0x0004_0000;

struct Conditional {
    call: c_long,
    when: When,
}

/// When a call is refused with `EPERM`; else it is allowed.
enum When {
    AnyBit {
        index: u32,
        bits: u32,
    },
    Creating {
        flags: u32,
        mode: u32,
    },
    OneOf {
        index: u32,
        values: [u32; 2],
    },
    /// The argument is an address family that is none of [`FAMILIES`]: refused with `EAFNOSUPPORT`.
    FamilyOf {
        index: u32,
    },
    OtherThan {
        index: u32,
        values: [u32; 2],
        mask: u32,
    },
}

/// The numbers of calls, as far as they differ between machines.
struct Numbers {
    machine: Machine,
    conditional: Vec<Conditional>,
}

impl Numbers {
    fn of(machine: Machine) -> Self {
        let x86 = machine == Machine::X86_64;
        let pick = |on_x86: c_long, on_arm: c_long| if x86 { on_x86 } else { on_arm };
        let mode_bits = |call, index| Conditional { call, when: When::AnyBit { index, bits: SET_ID } };
        let creating = |call, flags, mode| Conditional { call, when: When::Creating { flags, mode } };
        // The calls that are made most often come first.
        let mut conditional = vec![
            creating(pick(257, 56), 2, 3), // openat
            Conditional {
                call: pick(16, 29), // ioctl
                when: When::OneOf { index: 1, values: [TIOCSTI, TIOCLINUX] },
            },
            Conditional {
                call: pick(56, 220), // clone
                when: When::AnyBit { index: 0, bits: NAMESPACES },
            },
            mode_bits(pick(91, 52), 1),  // fchmod
            mode_bits(pick(268, 53), 2), // fchmodat
            mode_bits(452, 2),           // fchmodat2
            mode_bits(pick(258, 34), 2), // mkdirat
            mode_bits(pick(259, 33), 2), // mknodat
            Conditional {
                call: pick(272, 97), // unshare
                when: When::AnyBit { index: 0, bits: NAMESPACES | TIME_NAMESPACE },
            },
            Conditional { call: pick(41, 198), when: When::FamilyOf { index: 0 } }, // socket
            Conditional { call: pick(53, 199), when: When::FamilyOf { index: 0 } }, // socketpair
            Conditional {
                call: pick(135, 92), // personality
                when: When::OtherThan { index: 0, values: [PERSONALITY_QUERY, 0], mask: !NO_RANDOMIZE },
            },
        ];
        if x86 {
            conditional.insert(0, creating(2, 1, 2)); // open
            conditional.extend([
                mode_bits(85, 1),  // creat
                mode_bits(90, 1),  // chmod
                mode_bits(83, 1),  // mkdir
                mode_bits(133, 1), // mknod
            ]);
        }
        Self { machine, conditional }
    }

    fn conditional(&self) -> &[Conditional] {
        &self.conditional
    }

    /// Answered as if the kernel did not have them, because programs then fall back to what can be judged.
    fn absent(&self) -> &'static [c_long] {
        &[
            425, 426, 427, // io_uring_*: a second way to make calls, out of this filter's sight.
            437, // openat2: its mode lies in memory, where a filter cannot look for set-id bits.
        ]
    }

    fn forbidden(&self) -> Vec<c_long> {
        let x86 = self.machine == Machine::X86_64;
        let pick = |on_x86: c_long, on_arm: c_long| if x86 { on_x86 } else { on_arm };
        let mut calls = vec![
            // Large parts of the kernel that nobody who builds or tests needs.
            pick(321, 280), // bpf
            pick(298, 241), // perf_event_open
            pick(323, 282), // userfaultfd: makes races in the kernel easy to win.
            // The kernel's code.
            pick(175, 105), // init_module
            pick(313, 273), // finit_module
            pick(176, 106), // delete_module
            pick(246, 104), // kexec_load
            pick(320, 294), // kexec_file_load
            // Keyrings are not namespaced.
            pick(250, 219), // keyctl
            pick(248, 217), // add_key
            pick(249, 218), // request_key
            // Namespaces and mounts: the sandbox's own, which stay as they were made.
            pick(308, 268), // setns
            pick(165, 40),  // mount
            pick(166, 39),  // umount2
            pick(155, 41),  // pivot_root
            pick(161, 51),  // chroot
            428,            // open_tree
            429,            // move_mount
            430,            // fsopen
            431,            // fsconfig
            432,            // fsmount
            433,            // fspick
            442,            // mount_setattr
            467,            // open_tree_attr
            // Around the path, straight to the file.
            pick(304, 265), // open_by_handle_at
            // The whole machine's.
            pick(167, 224), // swapon
            pick(168, 225), // swapoff
            pick(169, 142), // reboot
            pick(164, 170), // settimeofday
            pick(227, 112), // clock_settime
            pick(159, 171), // adjtimex
            pick(305, 266), // clock_adjtime
            pick(163, 89),  // acct
            pick(179, 60),  // quotactl
            443,            // quotactl_fd
            pick(103, 116), // syslog
            pick(153, 58),  // vhangup
            pick(212, 18),  // lookup_dcookie
            pick(180, 42),  // nfsservctl
            // Memory of others by way of the machine's layout.
            pick(256, 238), // migrate_pages
            pick(279, 239), // move_pages
        ];
        if x86 {
            calls.extend([
                172, // iopl
                173, // ioperm
                154, // modify_ldt
                156, // _sysctl
                136, // ustat
                139, // sysfs
                134, // uselib
                174, // create_module
                177, // get_kernel_syms
                178, // query_module
            ]);
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Call {
        arch: u32,
        number: c_long,
        arguments: [u64; 6],
    }

    fn call(number: c_long, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call { arch: Machine::X86_64.audit_arch(), number, arguments: all }
    }

    /// A small classic BPF machine, for what the kernel would answer.
    fn judge(program: &[u8], call: &Call) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&(call.number as u32).to_ne_bytes());
        data.extend_from_slice(&call.arch.to_ne_bytes());
        data.extend_from_slice(&0_u64.to_ne_bytes());
        for argument in call.arguments {
            data.extend_from_slice(&argument.to_ne_bytes());
        }
        let code: Vec<_> = program.chunks_exact(8).collect();
        let mut accumulator = 0_u32;
        let mut at = 0_usize;
        loop {
            let one = code[at];
            let operation = u16::from_ne_bytes([one[0], one[1]]);
            let value = u32::from_ne_bytes([one[4], one[5], one[6], one[7]]);
            let jump = |taken: bool| 1 + usize::from(if taken { one[2] } else { one[3] });
            at += match operation {
                LOAD => {
                    let from = value as usize;
                    accumulator = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
                    1
                }
                AND => {
                    accumulator &= value;
                    1
                }
                JUMP_EQUAL => jump(accumulator == value),
                JUMP_AT_LEAST => jump(accumulator >= value),
                JUMP_IF_ANY_BIT => jump(accumulator & value != 0),
                RETURN => return value,
                other => panic!("no such operation {other:#x}"),
            };
        }
    }

    const EPERM: u32 = errno(libc::EPERM);
    const ENOSYS: u32 = errno(libc::ENOSYS);

    fn answers(number: c_long, arguments: &[u64]) -> u32 {
        judge(&program(Machine::X86_64), &call(number, arguments))
    }

    #[test]
    fn ordinary_calls_are_allowed() {
        for number in [0, 1, 9, 57, 59, 60, 231, 435, 101, 322] {
            assert_eq!(answers(number, &[]), ALLOW, "{number}");
        }
        assert_eq!(answers(257, &[0, 0, 0o101, 0o644]), ALLOW, "openat that creates");
        assert_eq!(answers(56, &[0x0120_0011]), ALLOW, "clone as fork does it");
        assert_eq!(answers(56, &[0x003d_0f00]), ALLOW, "clone of a thread");
    }

    #[test]
    fn sockets_are_of_the_families_that_a_network_namespace_holds() {
        for call in [41, 53] {
            for family in FAMILIES {
                assert_eq!(answers(call, &[u64::from(family)]), ALLOW, "{family}");
            }
            for family in [0, 9, 15, 17, 29, 30, 38, 40] {
                assert_eq!(answers(call, &[family]), errno(libc::EAFNOSUPPORT), "{family}");
            }
        }
    }

    #[test]
    fn set_id_modes_are_refused_wherever_a_mode_can_be_given() {
        for (number, arguments) in [
            (90, [0, 0o4755, 0, 0]),
            (91, [0, 0o2755, 0, 0]),
            (268, [0, 0, 0o4755, 0]),
            (452, [0, 0, 0o6755, 0]),
            (85, [0, 0o4755, 0, 0]),
            (2, [0, 0o101, 0o4755, 0]),
            (257, [0, 0, 0o101, 0o4755]),
            (257, [0, 0, 0o20_200_002, 0o4755]),
            (133, [0, 0o104_755, 0, 0]),
            (259, [0, 0, 0o104_755, 0]),
        ] {
            assert_eq!(answers(number, &arguments), EPERM, "{number}");
        }
        assert_eq!(answers(257, &[0, 0, 0, 0o4755]), ALLOW, "a mode without creation means nothing");
        assert_eq!(answers(90, &[0, 0o1777]), ALLOW, "the sticky bit is harmless");
        assert_eq!(answers(437, &[]), ENOSYS);
    }

    #[test]
    fn namespaces_are_refused_in_clone_and_unshare() {
        for bit in [0x2_0000_u64, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
            assert_eq!(answers(56, &[bit | 17]), EPERM, "clone {bit:#x}");
            assert_eq!(answers(272, &[bit]), EPERM, "unshare {bit:#x}");
        }
        assert_eq!(answers(272, &[0x80]), EPERM);
        assert_eq!(answers(272, &[0x400]), ALLOW, "unshare of descriptors");
    }

    #[test]
    fn typing_into_a_terminal_is_refused_whatever_the_upper_half_says() {
        assert_eq!(answers(16, &[0, 0x5412]), EPERM);
        assert_eq!(answers(16, &[0, 0xdead_0000_0000_5412]), EPERM);
        assert_eq!(answers(16, &[0, 0x1_0000_5412]), EPERM);
        assert_eq!(answers(16, &[0, 0x541C]), EPERM);
        assert_eq!(answers(16, &[0, 0x5413]), ALLOW);
    }

    #[test]
    fn only_the_plain_personality_is_allowed() {
        for allowed in [0, 0xffff_ffff, 0x0004_0000] {
            assert_eq!(answers(135, &[allowed]), ALLOW, "{allowed:#x}");
        }
        for refused in [8, 0x0040_0000, 0x0044_0000] {
            assert_eq!(answers(135, &[refused]), EPERM, "{refused:#x}");
        }
    }

    #[test]
    fn other_machines_and_x32_are_refused() {
        let mut foreign = call(1, &[]);
        foreign.arch = 0x4000_0003;
        assert_eq!(judge(&program(Machine::X86_64), &foreign), KILL_PROCESS);
        assert_eq!(answers(0x4000_0001, &[]), EPERM);
    }

    #[test]
    fn both_machines_refuse_what_matters_by_their_own_numbers() {
        let arm = program(Machine::Aarch64);
        let mut bpf = call(280, &[]);
        bpf.arch = Machine::Aarch64.audit_arch();
        assert_eq!(judge(&arm, &bpf), EPERM);
        assert_eq!(answers(321, &[]), EPERM);
        let mut write = call(64, &[]);
        write.arch = Machine::Aarch64.audit_arch();
        assert_eq!(judge(&arm, &write), ALLOW);
        assert_eq!(answers(425, &[]), ENOSYS);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_numbers_are_the_c_library_s() {
        assert_eq!(libc::SYS_bpf, 321);
        assert_eq!(libc::SYS_openat, 257);
        assert_eq!(libc::SYS_openat2, 437);
        assert_eq!(libc::SYS_mount_setattr, 442);
        assert_eq!(libc::SYS_fchmodat2, 452);
        assert_eq!(libc::SYS_personality, 135);
        assert_eq!(libc::SYS_unshare, 272);
    }
}
