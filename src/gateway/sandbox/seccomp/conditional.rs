//! Calls that are checked by their arguments, family by family. Only arguments in registers can be checked.

use libc::c_long;

use super::{AnonymousPrograms, arch::Arch, notified::Listener, table::Numbers};

/// A call that is refused for some of its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionalRule {
    pub(super) numbers: Numbers,
    pub(super) when: ArgumentCondition,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) name: &'static str,
    /// What `when` refuses, in words.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) refused: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) reason: &'static str,
}

/// When a call is refused with `EPERM`; else it is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) enum ArgumentCondition {
    /// The mode has `S_ISUID`. With `S_ISGID` alone it is notified: what is to be changed is seen there. Where there is no
    /// listener it is refused, too.
    ChangedMode {
        index: u32,
    },
    AnyBit {
        index: u32,
        bits: u32,
    },
    /// The argument has one of the bits. With another bit, and without a third, the call is allowed and notified to the gate.
    AnyBitOrNotified {
        index: u32,
        bits: u32,
        notified: u32,
        unless: u32,
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
    /// socket(2): a family that is none of [`super::families::FAMILIES`] (`EAFNOSUPPORT`), or a protocol that its family does
    /// not list (`EPROTONOSUPPORT`).
    Socket,
    /// The argument is an address family that is none of [`super::families::FAMILIES`]: refused with `EAFNOSUPPORT`.
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

/// The rules for a machine, those for calls that are made most often first.
pub(super) fn rules(
    machine: Arch,
    anonymous: AnonymousPrograms,
    listener: Listener<'_>,
) -> impl Iterator<Item = (c_long, ArgumentCondition)> {
    let memfd = match anonymous {
        AnonymousPrograms::Allowed => &MEMFD,
        AnonymousPrograms::Refused => &SEALED_MEMFD,
    };
    let clone = if matches!(listener, Listener::Gate(_)) { &NOTIFIED_CLONE } else { &CLONE };
    let has_listener = !matches!(listener, Listener::None);
    let when = move |rule: &ConditionalRule| match rule.when {
        ArgumentCondition::ChangedMode { index } if !has_listener => any_bit(index, SET_ID),
        when => when,
    };
    RULES.iter().chain([clone, memfd]).filter_map(move |rule| Some((rule.numbers.on(machine)?, when(rule))))
}

const fn rule(
    name: &'static str,
    (x86_64, aarch64): (c_long, c_long),
    when: ArgumentCondition,
    refused: &'static str,
    reason: &'static str,
) -> ConditionalRule {
    ConditionalRule { numbers: Numbers::new(x86_64, aarch64), when, name, refused, reason }
}

const fn only_x86_64(
    name: &'static str,
    number: c_long,
    when: ArgumentCondition,
    refused: &'static str,
    reason: &'static str,
) -> ConditionalRule {
    ConditionalRule { numbers: Numbers::only_x86_64(number), when, name, refused, reason }
}

const fn any_bit(index: u32, bits: u32) -> ArgumentCondition {
    ArgumentCondition::AnyBit { index, bits }
}

const fn mode(index: u32) -> ArgumentCondition {
    any_bit(index, SET_ID)
}

const fn changed_mode(index: u32) -> ArgumentCondition {
    ArgumentCondition::ChangedMode { index }
}

const fn of_supervisor() -> ArgumentCondition {
    ArgumentCondition::OneOf { index: 0, values: &[SUPERVISOR] }
}

const fn of_supervisor_or_user(user: u32) -> ArgumentCondition {
    ArgumentCondition::OfSupervisorOrUser { which: 0, user, who: 1 }
}

/// In words, for many entries.
const SET_ID_MODES: &str = "modes with set-id bits";
const AS_OPEN: &str = "as openat";
const SET_ID_CHANGES: &str = "`S_ISUID`; `S_ISGID` of what is no directory";
const AS_FCHMODAT: &str = "as fchmodat";
const SUPERVISOR_ONLY: &str = "process 1";
const AS_SCHEDULING: &str = "the supervisor's scheduling stays as it is";

/// All but those of clone(2) and memfd_create(2).
pub(super) const RULES: &[ConditionalRule] = &[
    only_x86_64("open", 2, ArgumentCondition::Creating { flags: 1, mode: 2 }, SET_ID_MODES, AS_OPEN),
    rule(
        "openat",
        (257, 56),
        ArgumentCondition::Creating { flags: 2, mode: 3 },
        SET_ID_MODES,
        "files of a workspace belong to the principal on disk: a set-id program would run as the principal for any user",
    ),
    rule("fchmod", (91, 52), changed_mode(1), SET_ID_CHANGES, AS_FCHMODAT),
    rule(
        "fchmodat",
        (268, 53),
        changed_mode(2),
        SET_ID_CHANGES,
        "as openat; the supervisor or the gate is notified of `S_ISGID`, and sets it through a descriptor of a directory",
    ),
    rule("fchmodat2", (452, 452), changed_mode(2), SET_ID_CHANGES, AS_FCHMODAT),
    rule("mknodat", (259, 33), mode(2), SET_ID_MODES, AS_OPEN),
    only_x86_64("creat", 85, mode(1), SET_ID_MODES, AS_OPEN),
    only_x86_64("chmod", 90, changed_mode(1), SET_ID_CHANGES, AS_FCHMODAT),
    only_x86_64("mknod", 133, mode(1), SET_ID_MODES, AS_OPEN),
    rule(
        "ioctl",
        (16, 29),
        ArgumentCondition::OneOf { index: 1, values: &TERMINAL_COMMANDS },
        "`TIOCSTI`, `TIOCLINUX`, `TIOCCONS`, `TIOCSETD`, whatever the upper half of the command is",
        "types into a terminal that others share; pastes on a console; takes its output; loads a protocol into the kernel",
    ),
    rule(
        "fcntl",
        (72, 25),
        ArgumentCondition::OneOf { index: 1, values: &LEASE_COMMANDS },
        "`F_SETLEASE`, `F_SETDELEG`, whatever the upper half of the command is",
        "who else opens the file waits for the holder of the lease (`fs.lease-break-time`, 45 s), also outside of the sandbox",
    ),
    rule(
        "mmap",
        (9, 222),
        any_bit(3, MAP_HUGETLB),
        "huge pages",
        "set aside for the whole host; no controller counts them",
    ),
    rule("shmget", (29, 194), any_bit(2, SHM_HUGETLB), "huge pages", "as mmap"),
    rule(
        "setsockopt",
        (54, 208),
        ArgumentCondition::Both { first: (1, SOL_SOCKET), second: (2, &SOCKET_PROGRAMS) },
        "programs on sockets (`SO_ATTACH_FILTER`, `_BPF`, `_REUSEPORT_CBPF`, `_REUSEPORT_EBPF`)",
        "the host has one amount of memory for them (`net.core.bpf_jit_limit`), which sandboxes' filters need",
    ),
    rule(
        "unshare",
        (272, 97),
        any_bit(0, NAMESPACES | TIME_NAMESPACE),
        "new namespaces",
        "as clone; clone3 is refused by a limit of 0 namespaces",
    ),
    rule(
        "socket",
        (41, 198),
        ArgumentCondition::Socket,
        "families and protocols that are not listed below",
        "the table below",
    ),
    rule(
        "socketpair",
        (53, 199),
        ArgumentCondition::FamilyOf { index: 0 },
        "families that are not listed below",
        "the table below",
    ),
    rule(
        "seccomp",
        (317, 277),
        any_bit(1, !FILTER_FLAGS),
        "listeners, and flags that are not known",
        "a listener answers other processes' calls, out of the gate's sight",
    ),
    rule(
        "personality",
        (135, 92),
        ArgumentCondition::OtherThan { index: 0, values: [PERSONALITY_QUERY, 0], mask: !NO_RANDOMIZE },
        "all but Linux's, with or without address randomisation",
        "other execution domains are old parts of the kernel, and switch protections off",
    ),
    rule(
        "prlimit64",
        (302, 261),
        ArgumentCondition::OfAnother { pid: 0, unless_null: 2 },
        "limits of another process",
        "the supervisor's limits stay as they are; to read them is harmless",
    ),
    rule("sched_setparam", (142, 118), of_supervisor(), SUPERVISOR_ONLY, AS_SCHEDULING),
    rule("sched_setscheduler", (144, 119), of_supervisor(), SUPERVISOR_ONLY, AS_SCHEDULING),
    rule("sched_setaffinity", (203, 122), of_supervisor(), SUPERVISOR_ONLY, AS_SCHEDULING),
    rule("sched_setattr", (314, 274), of_supervisor(), SUPERVISOR_ONLY, AS_SCHEDULING),
    rule(
        "setpriority",
        (141, 140),
        of_supervisor_or_user(PRIO_USER),
        "process 1, and all processes of a user",
        AS_SCHEDULING,
    ),
    rule(
        "ioprio_set",
        (251, 30),
        of_supervisor_or_user(IOPRIO_WHO_USER),
        "process 1, and all processes of a user",
        AS_SCHEDULING,
    ),
    rule(
        "ptrace",
        (101, 117),
        ArgumentCondition::OneOfWithBit { index: 0, values: PTRACE_WITH_OPTIONS, data: 3, bit: TRACE_EXIT },
        "the option `PTRACE_O_TRACEEXIT`",
        "two processes that trace each other with it are ended by nothing",
    ),
];

/// clone(2).
pub(super) const CLONE: ConditionalRule = rule(
    "clone",
    (56, 220),
    any_bit(0, NAMESPACES),
    "new namespaces",
    "a namespace of one's own opens the kernel's parts for root",
);

/// The same, where there is a gate: it verifies in which directory a program is executed, and must know that another process may change it.
pub(super) const NOTIFIED_CLONE: ConditionalRule = rule(
    "clone",
    (56, 220),
    ArgumentCondition::AnyBitOrNotified {
        index: 0,
        bits: NAMESPACES,
        notified: CLONE_FS,
        unless: CLONE_THREAD,
    },
    "new namespaces",
    "a namespace of one's own opens the kernel's parts for root",
);

/// memfd_create(2).
pub(super) const MEMFD: ConditionalRule =
    rule("memfd_create", (319, 279), any_bit(1, MFD_HUGETLB), "huge pages", "as mmap");

/// The same, where the profile lists what may be executed.
pub(super) const SEALED_MEMFD: ConditionalRule = rule(
    "memfd_create",
    (319, 279),
    ArgumentCondition::AnyBitOrLacking { index: 1, bits: MFD_HUGETLB, lacking: MFD_NOEXEC_SEAL },
    "with `filesystem.execute`: without `MFD_NOEXEC_SEAL`",
    "landlock knows files by their directories, and a file in memory is in none",
);

/// On an id-mapped workspace a command's files belong to the principal on disk, so a set-id program made by a command would run
/// as the principal for any user who starts it outside. Of a directory `S_ISGID` says which group new files have, and mkdir(2) makes
/// none with it.
pub(super) const SET_USER_ID: u32 = 0o4000;
pub(super) const SET_GROUP_ID: u32 = 0o2000;
pub(super) const SET_ID: u32 = SET_USER_ID | SET_GROUP_ID;

/// `O_CREAT | __O_TMPFILE`: without them open(2) has no mode, and its register holds anything.
pub(super) const CREATES: u32 = 0o100 | 0o20_000_000;

/// Every namespace: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 = 0x7E02_0000;
/// A process that shares its directory, root and umask.
const CLONE_FS: u32 = 0x200;
/// What begins in another thread group ends with none of its execs.
const CLONE_THREAD: u32 = 0x1_0000;
/// CLONE_NEWTIME: for unshare(2) only, because clone(2) has the exit signal in these bits.
const TIME_NAMESPACE: u32 = 0x80;

/// TIOCSTI types a character into a terminal, also one that other processes share; TIOCLINUX pastes on a console;
/// TIOCCONS redirects the console; TIOCSETD loads a line discipline, each of them a protocol in the kernel.
const TERMINAL_COMMANDS: [u32; 4] = [0x5412, 0x541C, 0x541D, 0x5423];

/// F_SETLEASE, and F_SETDELEG, by which later kernels lease directories.
const LEASE_COMMANDS: [u32; 2] = [1_024, 1_040];

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
