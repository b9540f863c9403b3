//! Calls that are refused (`EPERM`) whatever their arguments, family by family.

use super::table::{ListedCall, Numbers, listed};

const fn on(x86_64: libc::c_long, aarch64: libc::c_long) -> Numbers {
    Numbers::new(x86_64, aarch64)
}

const fn same(number: libc::c_long) -> Numbers {
    Numbers::same(number)
}

const fn x86(number: libc::c_long) -> Numbers {
    Numbers::only_x86_64(number)
}

/// All of them.
pub(super) const CALLS: &[ListedCall] = &[
    // Large parts of the kernel that nobody who builds or tests needs.
    listed("bpf", on(321, 280), "programs in the kernel, and a history of holes in what checks them"),
    listed(
        "perf_event_open",
        on(298, 241),
        "a large part of the kernel with a history of holes; measures other processes",
    ),
    listed("userfaultfd", on(323, 282), "holds the kernel at a page fault: makes its races easy to win"),
    listed("fanotify_init", on(300, 262), "sees what others open, and can make them wait"),
    // The kernel's code.
    listed("init_module", on(175, 105), "loads code into the kernel"),
    listed("finit_module", on(313, 273), "loads code into the kernel"),
    listed("delete_module", on(176, 106), "takes code out of the kernel"),
    listed("kexec_load", on(246, 104), "replaces the kernel"),
    listed("kexec_file_load", on(320, 294), "replaces the kernel"),
    // Keyrings.
    listed(
        "keyctl",
        on(250, 219),
        "keyrings are not in namespaces: a user's keys are shared by all that run as it",
    ),
    listed("add_key", on(248, 217), "as keyctl; and the host has one quota of keys for each user"),
    listed("request_key", on(249, 218), "as keyctl; and it starts a program of the host's"),
    // Namespaces and mounts: the sandbox's own, which stay as they were made.
    listed("setns", on(308, 268), "enters a namespace that another process has made"),
    listed("mount", on(165, 40), "changes what the sandbox shows"),
    listed("umount2", on(166, 39), "uncovers what a mount hides"),
    listed("pivot_root", on(155, 41), "changes the root"),
    listed("chroot", on(161, 51), "changes the root; with an open directory it is a way out of one"),
    listed("open_tree", same(428), "copies a mount"),
    listed("move_mount", same(429), "changes what the sandbox shows"),
    listed("fsopen", same(430), "makes a file system: a large part of the kernel"),
    listed("fsconfig", same(431), "as fsopen"),
    listed("fsmount", same(432), "as fsopen"),
    listed("fspick", same(433), "changes a mounted file system"),
    listed("mount_setattr", same(442), "makes a read-only mount writable"),
    listed("open_tree_attr", same(467), "as open_tree and mount_setattr"),
    listed("open_by_handle_at", on(304, 265), "opens a file past every directory above it"),
    // The whole machine's.
    listed("swapon", on(167, 224), "the machine's swap"),
    listed("swapoff", on(168, 225), "the machine's swap"),
    listed("reboot", on(169, 142), "the machine's power"),
    listed("settimeofday", on(164, 170), "the machine's clock"),
    listed("clock_settime", on(227, 112), "the machine's clock"),
    listed("adjtimex", on(159, 171), "the machine's clock"),
    listed("clock_adjtime", on(305, 266), "the machine's clock"),
    listed("acct", on(163, 89), "has the kernel write a file about every process"),
    listed("quotactl", on(179, 60), "quotas of the host's file systems"),
    listed("quotactl_fd", same(443), "quotas of the host's file systems"),
    listed("syslog", on(103, 116), "the kernel's log, with addresses and what other users do"),
    listed("vhangup", on(153, 58), "takes a terminal from all who have it open"),
    listed("lookup_dcookie", on(212, 18), "names of files of others, for a profiler that is gone"),
    listed("nfsservctl", on(180, 42), "gone from the kernel; nobody has judged what takes its number"),
    // Memory of others by way of the machine's layout.
    listed("migrate_pages", on(256, 238), "moves the memory of other processes between nodes"),
    listed("move_pages", on(279, 239), "moves memory, and tells where it lies"),
    // Calls that only x86 has.
    listed("iopl", x86(172), "the machine's ports"),
    listed("ioperm", x86(173), "the machine's ports"),
    listed("modify_ldt", x86(154), "segments for 16-bit programs, and a history of holes"),
    listed("_sysctl", x86(156), "the kernel's settings; gone from the kernel"),
    listed("ustat", x86(136), "file systems by their device, past every path"),
    listed("sysfs", x86(139), "names of the kernel's file systems; no program uses it"),
    listed("uselib", x86(134), "loads a library of an old format; gone from the kernel"),
    listed("create_module", x86(174), "as init_module, of old kernels"),
    listed("get_kernel_syms", x86(177), "the kernel's addresses, of old kernels"),
    listed("query_module", x86(178), "as get_kernel_syms"),
];
