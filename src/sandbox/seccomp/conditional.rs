//! Calls that are checked by their arguments, family by family. Only arguments in registers can be checked.

use libc::c_long;

use super::{AnonymousPrograms, arch::Arch};

/// A call that is refused for some of its arguments.
pub(super) struct ConditionalRule {
    pub(super) call: c_long,
    pub(super) when: ArgumentCondition,
}

/// When a call is refused with `EPERM`; else it is allowed.
pub(super) enum ArgumentCondition {
    AnyBit {
        index: u32,
        bits: u32,
    },
    /// The argument has one of the bits, or lacks another.
    AnyBitOrLacking {
        index: u32,
        bits: u32,
        lacking: u32,
    },
    Creating {
        flags: u32,
        mode: u32,
    },
    OneOf {
        index: u32,
        values: &'static [u32],
    },
    /// The first argument has this value, and the second is one of those.
    Both {
        first: (u32, u32),
        second: (u32, &'static [u32]),
    },
    /// socket(2): a family that is none of [`FAMILIES`] (`EAFNOSUPPORT`), or a protocol of one of them that is none of
    /// [`INET_PROTOCOLS`] or [`NETLINK_PROTOCOLS`] (`EPROTONOSUPPORT`).
    Socket,
    /// The argument is an address family that is none of [`FAMILIES`]: refused with `EAFNOSUPPORT`.
    FamilyOf {
        index: u32,
    },
    /// The process is another than the caller (0), and the pointer is not null.
    OfAnother {
        pid: u32,
        unless_null: u32,
    },
    /// The target is every process of a user, or has the supervisor's number.
    OfSupervisorOrUser {
        which: u32,
        user: u32,
        who: u32,
    },
    /// The argument is one of the values, and another one has the bit.
    OneOfWithBit {
        index: u32,
        values: [u32; 3],
        data: u32,
        bit: u32,
    },
    OtherThan {
        index: u32,
        values: [u32; 2],
        mask: u32,
    },
}

/// All of them, those that are made most often first.
pub(super) fn rules(machine: Arch, anonymous: AnonymousPrograms) -> Vec<ConditionalRule> {
    [
        files(machine),
        terminals(machine),
        uncounted(machine, anonymous),
        namespaces(machine),
        sockets(machine),
        listeners(machine),
        personality(machine),
        supervisor(machine),
        tracers(machine),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Modes: no set-id bits.
fn files(machine: Arch) -> Vec<ConditionalRule> {
    let mode_bits =
        |call, index| ConditionalRule { call, when: ArgumentCondition::AnyBit { index, bits: SET_ID } };
    let creating =
        |call, flags, mode| ConditionalRule { call, when: ArgumentCondition::Creating { flags, mode } };
    let mut rules = vec![
        creating(machine.number(257, 56), 2, 3), // openat
        mode_bits(machine.number(91, 52), 1),    // fchmod
        mode_bits(machine.number(268, 53), 2),   // fchmodat
        mode_bits(452, 2),                       // fchmodat2
        mode_bits(machine.number(258, 34), 2),   // mkdirat
        mode_bits(machine.number(259, 33), 2),   // mknodat
    ];
    if machine == Arch::X86_64 {
        rules.insert(0, creating(2, 1, 2)); // open
        rules.extend([
            mode_bits(85, 1),  // creat
            mode_bits(90, 1),  // chmod
            mode_bits(83, 1),  // mkdir
            mode_bits(133, 1), // mknod
        ]);
    }
    rules
}

/// No typing into terminals.
fn terminals(machine: Arch) -> Vec<ConditionalRule> {
    vec![ConditionalRule {
        call: machine.number(16, 29), // ioctl
        when: ArgumentCondition::OneOf { index: 1, values: &TERMINAL_COMMANDS },
    }]
}

/// No namespaces but the sandbox's own.
fn namespaces(machine: Arch) -> Vec<ConditionalRule> {
    vec![
        ConditionalRule {
            call: machine.number(56, 220), // clone
            when: ArgumentCondition::AnyBit { index: 0, bits: NAMESPACES },
        },
        ConditionalRule {
            call: machine.number(272, 97), // unshare
            when: ArgumentCondition::AnyBit { index: 0, bits: NAMESPACES | TIME_NAMESPACE },
        },
    ]
}

/// No protocols but those that programs use.
fn sockets(machine: Arch) -> Vec<ConditionalRule> {
    vec![
        ConditionalRule { call: machine.number(41, 198), when: ArgumentCondition::Socket }, // socket
        ConditionalRule { call: machine.number(53, 199), when: ArgumentCondition::FamilyOf { index: 0 } }, // socketpair
    ]
}

/// Nothing of what the host has a fixed number of and no cgroup counts.
fn uncounted(machine: Arch, anonymous: AnonymousPrograms) -> Vec<ConditionalRule> {
    let bits = |call, index, bits| ConditionalRule { call, when: ArgumentCondition::AnyBit { index, bits } };
    let memfd_create = machine.number(319, 279);
    vec![
        bits(machine.number(9, 222), 3, MAP_HUGETLB), // mmap
        match anonymous {
            AnonymousPrograms::Allowed => bits(memfd_create, 1, MFD_HUGETLB),
            AnonymousPrograms::Refused => ConditionalRule {
                call: memfd_create,
                when: ArgumentCondition::AnyBitOrLacking {
                    index: 1,
                    bits: MFD_HUGETLB,
                    lacking: MFD_NOEXEC_SEAL,
                },
            },
        },
        bits(machine.number(29, 194), 2, SHM_HUGETLB), // shmget
        ConditionalRule {
            call: machine.number(54, 208), // setsockopt
            when: ArgumentCondition::Both { first: (1, SOL_SOCKET), second: (2, &SOCKET_PROGRAMS) },
        },
    ]
}

/// No answering of other processes' calls: a listener lives on where its filter does, and what it answers is seen by
/// nobody.
fn listeners(machine: Arch) -> Vec<ConditionalRule> {
    vec![ConditionalRule {
        call: machine.number(317, 277), // seccomp
        when: ArgumentCondition::AnyBit { index: 1, bits: !FILTER_FLAGS },
    }]
}

/// No execution domain but the plain one.
fn personality(machine: Arch) -> Vec<ConditionalRule> {
    vec![ConditionalRule {
        call: machine.number(135, 92), // personality
        when: ArgumentCondition::OtherThan { index: 0, values: [PERSONALITY_QUERY, 0], mask: !NO_RANDOMIZE },
    }]
}

/// Limits and scheduling of the supervisor stay as they are.
fn supervisor(machine: Arch) -> Vec<ConditionalRule> {
    let of_supervisor = |on_x86, on_arm| ConditionalRule {
        call: machine.number(on_x86, on_arm),
        when: ArgumentCondition::OneOf { index: 0, values: &[SUPERVISOR] },
    };
    let of_supervisor_or_user = |on_x86, on_arm, user| ConditionalRule {
        call: machine.number(on_x86, on_arm),
        when: ArgumentCondition::OfSupervisorOrUser { which: 0, user, who: 1 },
    };
    vec![
        ConditionalRule {
            call: machine.number(302, 261), // prlimit64: to read another's limits is harmless.
            when: ArgumentCondition::OfAnother { pid: 0, unless_null: 2 },
        },
        of_supervisor(142, 118),                         // sched_setparam
        of_supervisor(144, 119),                         // sched_setscheduler
        of_supervisor(203, 122),                         // sched_setaffinity
        of_supervisor(314, 274),                         // sched_setattr
        of_supervisor_or_user(141, 140, PRIO_USER),      // setpriority
        of_supervisor_or_user(251, 30, IOPRIO_WHO_USER), // ioprio_set
    ]
}

/// No tracer that holds back an end.
fn tracers(machine: Arch) -> Vec<ConditionalRule> {
    vec![ConditionalRule {
        call: machine.number(101, 117), // ptrace
        when: ArgumentCondition::OneOfWithBit {
            index: 0,
            values: PTRACE_WITH_OPTIONS,
            data: 3,
            bit: TRACE_EXIT,
        },
    }]
}

/// `S_ISUID | S_ISGID`. On an id-mapped workspace a command's files belong to the principal on disk, so a set-id
/// program made by a command would run as the principal for any user who starts it outside.
pub(super) const SET_ID: u32 = 0o6000;

/// `O_CREAT | __O_TMPFILE`: without them open(2) has no mode, and its register holds anything.
pub(super) const CREATES: u32 = 0o100 | 0o20_000_000;

/// Every namespace: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 = 0x7E02_0000;
/// CLONE_NEWTIME: for unshare(2) only, because clone(2) has the exit signal in these bits.
const TIME_NAMESPACE: u32 = 0x80;

/// TIOCSTI types a character into a terminal, also one that other processes share; TIOCLINUX pastes on a console;
/// TIOCCONS redirects the console; TIOCSETD loads a line discipline, each of them a protocol in the kernel.
const TERMINAL_COMMANDS: [u32; 4] = [0x5412, 0x541C, 0x541D, 0x5423];

/// Huge pages are set aside for the whole host, and no controller that sandboxes have counts them.
const MAP_HUGETLB: u32 = 0x4_0000;
const MFD_HUGETLB: u32 = 0x4;
/// The file has no execute bit and cannot get one.
const MFD_NOEXEC_SEAL: u32 = 0x8;
const SHM_HUGETLB: u32 = 0o4000;

const SOL_SOCKET: u32 = 1;
/// SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF: programs in the kernel, out of the
/// memory that the whole host has for them (`net.core.bpf_jit_limit`), which sandboxes' own filters need.
const SOCKET_PROGRAMS: [u32; 4] = [26, 50, 51, 52];

/// SECCOMP_FILTER_FLAG_TSYNC, LOG, SPEC_ALLOW and TSYNC_ESRCH. Not NEW_LISTENER, what only makes sense with it, or flags of later
/// kernels.
const FILTER_FLAGS: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 4;

/// The address families that programs use: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others are parts of the kernel
/// that nobody needs here, and AF_VSOCK reaches the hypervisor's host from any network namespace.
pub(super) const FAMILIES: [u32; 4] = [1, 2, 10, 16];

/// IPPROTO_IP (whatever fits the type), ICMP, TCP, UDP, ICMPV6. Others (SCTP, DCCP, MPTCP, L2TP, SMC) are modules that a
/// socket loads.
pub(super) const INET_PROTOCOLS: [u32; 5] = [0, 1, 6, 17, 58];
/// NETLINK_ROUTE (getifaddrs(3), ip(8)), NETLINK_SOCK_DIAG (ss(8)), NETLINK_KOBJECT_UEVENT (libudev).
pub(super) const NETLINK_PROTOCOLS: [u32; 3] = [0, 4, 15];

/// The execution domain of Linux, and "do not change, only tell".
const PERSONALITY_QUERY: u32 = 0xffff_ffff;
/// ADDR_NO_RANDOMIZE: debuggers switch address randomisation off for what they start.
const NO_RANDOMIZE: u32 = 0x0004_0000;

/// The supervisor's number in the pid namespace of its commands. Where it has their user id, as under an ordinary user,
/// the kernel would let them change how it is scheduled.
pub(super) const SUPERVISOR: u32 = 1;
/// PRIO_USER of setpriority(2), IOPRIO_WHO_USER of ioprio_set(2): every process of a user, the supervisor among them.
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

/// PTRACE_SETOPTIONS, PTRACE_SEIZE and PTRACE_OLDSETOPTIONS of ptrace(2): their last argument is a set of options. The last
/// one is of x86 and in no manual; other machines answer it with EIO.
const PTRACE_WITH_OPTIONS: [u32; 3] = [0x4200, 0x4206, 21];
/// PTRACE_O_TRACEEXIT: two processes that trace each other with it are ended by nothing, not even by the end of their
/// pid namespace (Linux 6.18).
const TRACE_EXIT: u32 = 0x40;
