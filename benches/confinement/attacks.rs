//! The attacks: what is tried, by which program, and how it is known whether it worked.
//!
//! In arguments, `{W}` is the workspace, `{HOME}` the caller's home, `{PID}` a process of the caller's on the host; the
//! others are named in [`super::host`].

/// How it is known that an attack worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The program says so.
    Said,
    /// After the command's end the host sees this file, with what the attack put into it.
    Appears(&'static str),
    /// After the command's end a process of it is still there.
    Survivor,
}

/// Which program makes the attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// `tests/attacks/attack.c`: one call.
    Call,
    /// `tests/attacks/breakout.c`.
    Breakout,
    /// The same, started on a terminal of the caller's.
    OnTerminal,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttackCase {
    /// What is tried, for the table.
    pub what: &'static str,
    /// The program.
    pub by: By,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// How success is known.
    pub proof: Proof,
}

const fn call(what: &'static str, arguments: &'static [&'static str]) -> AttackCase {
    AttackCase { what, by: By::Call, arguments, proof: Proof::Said }
}

const fn breakout(what: &'static str, arguments: &'static [&'static str]) -> AttackCase {
    AttackCase { what, by: By::Breakout, arguments, proof: Proof::Said }
}

const fn leaves(what: &'static str, arguments: &'static [&'static str], file: &'static str) -> AttackCase {
    AttackCase { what, by: By::Breakout, arguments, proof: Proof::Appears(file) }
}

/// What a sandbox has to let a command do.
pub(crate) fn harmless() -> AttackCase {
    breakout("nothing", &["nothing"])
}

/// All of them, in the order of the table.
pub(crate) fn all() -> Vec<AttackCase> {
    [FILES, LEFT_FOR_THE_HOST, PROCESSES, SOCKETS, PRIVILEGES, MOUNTS, KERNEL, END].concat()
}

const FILES: &[AttackCase] = &[
    call("read the host's password hashes (`/etc/shadow`)", &["read_some", "/etc/shadow"]),
    call("read a key in the caller's home", &["read_some", "{HOME}/.ssh/id_test"]),
    call("list the caller's home", &["list", "{HOME}"]),
    call("make a file in the caller's home", &["create", "{HOME}/made"]),
    call("make a file in `/usr/local/bin`", &["create", "/usr/local/bin/provost-confinement"]),
    leaves("leave a file in the host's `/tmp`", &["plant", "{TMP}/left"], "{TMP}/left"),
    breakout("read a descriptor that the caller left open", &["descriptor", "{FD}", "{SECRET}"]),
    breakout("read a secret in the caller's environment", &["variable", "CONFINEMENT_SECRET"]),
    breakout("write to the program that guards the command, by `/proc/PID/exe`", &["guard_program"]),
    call("open a file by handle, past its path", &["open_by_handle", "{W}"]),
    call("open the host's disk", &["open_read", "{DISK}"]),
    call("make a device node", &["mknod_char", "{W}/null"]),
    call("write to the host's cgroup tree", &["open_write", "{CGROUP}"]),
];

const LEFT_FOR_THE_HOST: &[AttackCase] = &[
    leaves(
        "make a git hook where there is none",
        &["plant", "{W}/.git/hooks/pre-commit"],
        "{W}/.git/hooks/pre-commit",
    ),
    leaves(
        "add a program to `.git/config`",
        &["append", "{W}/.git/config", "[core] fsmonitor = planted"],
        "{W}/.git/config",
    ),
    leaves("make `.vscode/tasks.json`", &["plant", "{W}/.vscode/tasks.json"], "{W}/.vscode/tasks.json"),
    leaves(
        "make `.claude/settings.json`",
        &["plant", "{W}/.claude/settings.json"],
        "{W}/.claude/settings.json",
    ),
    leaves("make `.mcp.json`", &["plant", "{W}/.mcp.json"], "{W}/.mcp.json"),
    leaves("make `.envrc` in a directory below", &["plant", "{W}/below/.envrc"], "{W}/below/.envrc"),
    call("make a set-id program for other users", &["suid_chmod", "{W}/planted"]),
    call("give a file capabilities", &["setcap", "{W}/capable"]),
    call("give a file to another user", &["chown", "{W}/given"]),
];

const PROCESSES: &[AttackCase] = &[
    call("see a process of the host", &["proc_file", "{PID}", "cmdline"]),
    call("read a host process's environment", &["proc_file", "{PID}", "environ"]),
    call("open a host process's memory for writing", &["proc_mem", "{PID}"]),
    call("read a host process's memory by call", &["vm_read", "{PID}"]),
    call("signal a host process", &["signal", "{PID}"]),
    call("trace a host process", &["ptrace", "{PID}"]),
    call("copy a host process's descriptor", &["pidfd_getfd", "{PID}"]),
    call("change a host process's limits", &["prlimit", "{PID}"]),
    AttackCase {
        what: "type into the caller's terminal (`TIOCSTI`)",
        by: By::OnTerminal,
        arguments: &["type"],
        proof: Proof::Said,
    },
];

const SOCKETS: &[AttackCase] = &[
    call("connect to a unix socket of the host, by path", &["connect_path", "{SOCKET}"]),
    call("connect to an abstract unix socket of the host", &["connect_abstract", "{ABSTRACT}"]),
    call("connect to a service on the host's loopback", &["connect_tcp", "127.0.0.1", "{PORT}"]),
    call("connect to the metadata service (169.254.169.254)", &["connect_tcp", "169.254.169.254", "80"]),
    call("send a datagram to it", &["send_udp", "169.254.169.254", "53"]),
    call("open a packet socket", &["socket", "17", "3", "0"]),
    call("open a raw IP socket", &["socket", "2", "3", "1"]),
    call("open a socket to the hypervisor (vsock)", &["socket", "40", "1", "0"]),
    call("open a socket to the kernel's cryptography (`AF_ALG`)", &["socket", "38", "5", "0"]),
];

const PRIVILEGES: &[AttackCase] = &[
    call("raise a hard limit", &["raise_nofile"]),
    call("gain a capability", &["capset"]),
    call("write `core_pattern`", &["open_write", "/proc/sys/kernel/core_pattern"]),
    call("write `sysrq-trigger`", &["open_write", "/proc/sysrq-trigger"]),
    call("read the kernel's log (`syslog`)", &["syslog"]),
    call("read the kernel's log (`/dev/kmsg`)", &["open_read", "/dev/kmsg"]),
    call("change the host's name", &["sethostname"]),
];

const MOUNTS: &[AttackCase] = &[
    call("mount a file system", &["mount_tmpfs", "/", "own"]),
    call("change a mount's options", &["remount", "own"]),
    call("change the root (`chroot`)", &["chroot"]),
    call("make a user namespace", &["unshare", "user"]),
    call("make one by `clone3`", &["clone3_user"]),
    breakout("mount in a user namespace of one's own", &["nested_mount"]),
    call("enter a namespace (`setns`)", &["setns", "/proc/self/ns/mnt"]),
    call("make a mount by the newer calls (`fsopen`)", &["fsopen"]),
];

const KERNEL: &[AttackCase] = &[
    call("use `io_uring`", &["io_uring"]),
    call("load a BPF map", &["bpf"]),
    call("open a performance counter", &["perf"]),
    call("list a keyring", &["keyctl"]),
    call("add a key", &["add_key"]),
    call("use `userfaultfd`", &["userfaultfd"]),
    call("watch all file accesses (`fanotify`)", &["fanotify"]),
];

const END: &[AttackCase] = &[
    AttackCase {
        what: "outlive the command (`setsid`, double fork)",
        by: By::Breakout,
        arguments: &["outlive", "{MARK}"],
        proof: Proof::Survivor,
    },
    breakout("have 1,024 processes", &["forks", "1024"]),
    breakout("have 768 MiB of memory", &["memory", "768"]),
];
