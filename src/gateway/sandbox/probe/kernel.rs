//! Probes namespaces, mounts and system calls, each in a process that ends at once.
//!
//! Leaves nothing behind. For each refusal it reports the reason and the remedy.

use std::{ffi::CString, fs, os::fd::AsFd, path::Path};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag},
    mount::MntFlags,
    sched::CloneFlags,
};

use crate::{
    sandbox::{
        host::host_ids,
        probe::protection::{Protection, ProtectionStatus, available, missing},
    },
    sys::{
        file,
        mount::{self, Attributes, FsOption},
        namespace::{self, IdPair},
        probe::{self, ProbeError},
        ptrace, seccomp,
    },
};

/// A kind of namespace: protection name, clone flag, limit in /proc/sys/user.
struct NamespaceKind {
    name: &'static str,
    flag: CloneFlags,
    bound: &'static str,
}

const KINDS: [NamespaceKind; 7] = [
    NamespaceKind { name: "namespace-user", flag: CloneFlags::CLONE_NEWUSER, bound: "max_user_namespaces" },
    NamespaceKind { name: "namespace-pid", flag: CloneFlags::CLONE_NEWPID, bound: "max_pid_namespaces" },
    NamespaceKind { name: "namespace-mount", flag: CloneFlags::CLONE_NEWNS, bound: "max_mnt_namespaces" },
    NamespaceKind { name: "namespace-ipc", flag: CloneFlags::CLONE_NEWIPC, bound: "max_ipc_namespaces" },
    NamespaceKind { name: "namespace-uts", flag: CloneFlags::CLONE_NEWUTS, bound: "max_uts_namespaces" },
    NamespaceKind {
        name: "namespace-cgroup",
        flag: CloneFlags::CLONE_NEWCGROUP,
        bound: "max_cgroup_namespaces",
    },
    NamespaceKind { name: "namespace-network", flag: CloneFlags::CLONE_NEWNET, bound: "max_net_namespaces" },
];

/// Probes each kind of namespace, inside a user namespace as sandboxes have them.
pub(super) fn namespaces() -> Vec<Protection> {
    let ids = own_ids();
    let tried = |kind: &NamespaceKind| {
        // Making it is not enough: a security module may allow it and withhold the privileges over it.
        match probe::run(CloneFlags::CLONE_NEWUSER | kind.flag, None, || map_own(ids)) {
            Ok(()) => available(kind.name, ""),
            Err(refused) => {
                let (reason, remedy) = explain(kind, refused);
                missing(kind.name, &reason, &remedy)
            }
        }
    };
    KINDS.iter().map(tried).collect()
}

/// Finds the reason and the remedy for a refused namespace from the kernel's settings.
fn explain(kind: &NamespaceKind, refused: ProbeError) -> (String, String) {
    let sysctl = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let is_root = nix::unistd::geteuid().is_root();
    let bound = kind.bound;
    if sysctl(&format!("/proc/sys/user/{bound}")) == Some(0) {
        return (format!("user.{bound} is 0"), format!("sysctl user.{bound}=10000"));
    }
    if !is_root && sysctl("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        let remedy = "sysctl kernel.unprivileged_userns_clone=1, or run the gateway as root";
        return ("ordinary users may not make user namespaces".into(), remedy.into());
    }
    if !is_root && sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let remedy = "give the provost binary an AppArmor profile with `userns,`, or run the gateway as root";
        return ("AppArmor takes the privileges from ordinary users' namespaces".into(), remedy.into());
    }
    let reason = format!("refused when it was tried ({refused})");
    let remedy = match refused {
        ProbeError::Clone(Errno::ENOSPC) => format!("raise user.{bound}: all of them are in use"),
        ProbeError::Clone(Errno::EINVAL) => "a kernel with all namespaces built in".into(),
        ProbeError::Clone(Errno::ENOSYS) => "Linux 5.3 or later, and no filter that hides clone3".into(),
        _ => "in a container: one whose seccomp and AppArmor profiles allow user namespaces".into(),
    };
    (reason, remedy)
}

/// Probes the mounts of a sandbox in a new mount namespace.
pub(super) fn mounts() -> Vec<Protection> {
    let ids = own_ids();
    let spaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    let tried = |name: &'static str, call: fn() -> Result<(), Errno>, remedy: &str| {
        let outcome = probe::run(spaces, None, || {
            map_own(ids)?;
            mount::make_private(c"/")?;
            call()
        });
        match outcome {
            Ok(()) => available(name, ""),
            Err(refused) => missing(name, &format!("refused when it was tried ({refused})"), remedy),
        }
    };
    vec![
        tried(
            "pivot-root",
            enter_new_root,
            "Linux 5.12 or later, a root that is not the initial ramfs, and in a container a profile that allows mounts",
        ),
        tried(
            "proc",
            || mount::make(c"proc", &[value(c"hidepid", c"invisible")], Attributes::NO_EXEC).map(drop),
            "in a container: run it with its /proc unmasked (`--security-opt systempaths=unconfined`)",
        ),
        tried(
            "devpts",
            || mount::make(c"devpts", &[value(c"ptmxmode", c"0666")], Attributes::NO_EXEC).map(drop),
            "a kernel with CONFIG_UNIX98_PTYS",
        ),
    ]
}

/// Read outside of the namespace, where the ids are mapped.
fn own_ids() -> (u32, u32) {
    (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
}

/// Maps the own id, which needs no privilege.
fn map_own((uid, gid): (u32, u32)) -> Result<(), Errno> {
    let process = Path::new("/proc/self");
    file::write_once(&process.join("setgroups"), b"deny")?;
    namespace::write_map(process, "uid_map", &[IdPair { inside: 0, outside: uid }])?;
    namespace::write_map(process, "gid_map", &[IdPair { inside: 0, outside: gid }])
}

fn enter_new_root() -> Result<(), Errno> {
    let root = mount::make(c"tmpfs", &[value(c"size", c"65536")], Attributes::NO_DEVICES)?;
    mount::attach(root.as_fd(), AT_FDCWD, c"/")?;
    nix::unistd::fchdir(&root)?;
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH)
}

fn value(name: &'static std::ffi::CStr, value: &std::ffi::CStr) -> FsOption {
    FsOption::Value(name, CString::from(value))
}

/// Probes an id-mapped mount of the current directory's file system.
pub(super) fn id_mapped_mounts(privileged: bool) -> Protection {
    const NAME: &str = "id-mapped-mounts";
    if !privileged {
        return Protection {
            name: NAME,
            status: ProtectionStatus::Weaker,
            reason: "only a gateway with the host's root can map ids; files are the user's own inside too"
                .into(),
            remedy: "run the gateway as root (see deploy/)".into(),
        };
    }
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    match map_a_mount(&here) {
        Ok(()) => available(NAME, &format!("tried on the file system of {}", crate::printable::path(&here))),
        Err(errno) => missing(
            NAME,
            &format!("the file system of {} refused it ({errno})", crate::printable::path(&here)),
            "Linux 5.12 or later, and roots on ext4, xfs, btrfs, tmpfs or, on later kernels, overlay, fuse or 9p",
        ),
    }
}

fn map_a_mount(directory: &Path) -> Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(directory, flags, nix::sys::stat::Mode::empty())?;
    mount::try_map_ids(opened.as_fd(), (0, 0), host_ids::DEFAULT_FIRST_ID)
}

/// Probes what the exec gate needs: notified calls, tracing from within a user namespace, and the memory of another process.
pub(super) fn exec_gate() -> Protection {
    const NAME: &str = "exec-gate";
    let in_container = "in a container: one that allows ptrace(2), process_vm_readv(2) and seccomp(2)";
    if !seccomp::has_notify_action() {
        return missing(
            NAME,
            "the kernel does not notify of system calls",
            "Linux 5.0 or later, with CONFIG_SECCOMP_FILTER",
        );
    }
    let parent = || nix::unistd::getppid().as_raw();
    // The inner process stands for the gate, the one outside of it for a command: it waits for the inner one.
    let tried = |call: &dyn Fn() -> Result<(), Errno>| {
        probe::run(CloneFlags::CLONE_NEWUSER, None, || {
            probe::run(CloneFlags::empty(), None, call).map_err(|refused| match refused {
                ProbeError::Clone(errno) | ProbeError::Call(errno) => errno,
            })
        })
    };
    if let Err(refused) = tried(&|| ptrace::seize_for_a_moment(parent())) {
        let reason = format!("a process may not trace another one of its own ({refused})");
        let remedy = match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
            Ok(scope) if scope.trim() == "3" => {
                "a boot without kernel.yama.ptrace_scope=3, which cannot be taken back"
            }
            Ok(_) | Err(_) => in_container,
        };
        return missing(NAME, &reason, remedy);
    }
    let known = 42_u64;
    let read = || {
        let mut bytes = [0; size_of::<u64>()];
        ptrace::read_memory(parent(), (&raw const known).addr() as u64, &mut bytes)?;
        if u64::from_ne_bytes(bytes) == known { Ok(()) } else { Err(Errno::EIO) }
    };
    if let Err(refused) = tried(&read) {
        let reason = format!("a process may not read the memory of another one of its own ({refused})");
        return missing(NAME, &reason, in_container);
    }
    available(NAME, "execs can be notified, read and verified")
}

/// Probes other system calls that the supervisor needs.
pub(super) fn kernel_calls() -> Vec<Protection> {
    let seals = nix::sys::memfd::memfd_create(c"provost-probe", nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING)
        .and_then(|file| {
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(nix::fcntl::SealFlag::F_SEAL_SHRINK))
        })
        .is_ok();
    let no_new_privs = probe::run(CloneFlags::empty(), None, nix::sys::prctl::set_no_new_privs).is_ok();
    [
        ("pidfd", namespace::can_open_pidfd(), "Linux 5.3 or later"),
        ("memfd-seals", seals, "Linux 3.17 or later, and no filter on memfd_create"),
        ("no-new-privs", no_new_privs, "Linux 3.5 or later"),
    ]
    .into_iter()
    .map(|(name, has, remedy)| {
        if has {
            available(name, "")
        } else {
            missing(name, "the kernel refused it when it was tried", remedy)
        }
    })
    .collect()
}
