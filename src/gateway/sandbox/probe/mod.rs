//! What this host offers to sandboxes, each protection tried in a process or cgroup that is gone afterwards.
//!
//! Says which protections there are, why one is missing and how to get it. Whether a missing one matters is for the
//! profile to decide.
//!
//! Settings and versions do not say it: containers, security modules and masked directories refuse what the kernel has. A trial
//! says what the kernel said a moment ago, not what it will say to a sandbox, whose set-up therefore reports every step.

mod cgroups;
mod kernel;
mod protection;

pub use protection::{Protection, ProtectionStatus};

use protection::{available, missing};

use crate::{
    sandbox::{
        host::{Host, nested, subordinate_ids::other_source},
        seccomp::arch::Arch,
    },
    sys::seccomp,
};

/// Every protection, for people and for `provost doctor`. Trying them takes some milliseconds, so nothing that starts
/// commands calls this.
#[must_use]
pub fn protections(host: &Host) -> Vec<Protection> {
    let mut all = Vec::new();
    if let Err(nested) = nested::check() {
        all.push(missing("nesting", &nested.to_string(), "run the command as it is"));
    }
    all.extend(kernel::namespaces());
    all.push(identity(host));
    all.push(match host.lacks_of_root() {
        Some(lacks) => missing("id-mapped-mounts", &format!("root lacks {lacks}"), &remedy_of_root(&lacks)),
        None => kernel::id_mapped_mounts(host.is_privileged()),
    });
    all.extend(kernel::mounts());
    all.push(system_call_filter());
    all.push(landlock(host));
    all.push(kernel::exec_gate());
    all.push(connection_programs(host));
    all.extend(cgroups::probe_all(host.own_cgroups()));
    all.extend(kernel::kernel_calls());
    all
}

fn identity(host: &Host) -> Protection {
    if host.is_privileged() {
        return available(
            "identity",
            "each sandbox has host ids of its own; files keep their owner by id-mapped mounts",
        );
    }
    let (uid, _) = host.own_ids();
    if let Some(lacks) = host.lacks_of_root() {
        return Protection {
            name: "identity",
            status: ProtectionStatus::Weaker,
            reason: format!(
                "commands run as uid {uid}, without capabilities, in directories of that user alone: this process lacks {lacks}"
            ),
            remedy: remedy_of_root(&lacks),
        };
    }
    let (reason, remedy) = match host.subordinate_ids() {
        Some(ids) => (
            format!(
                "commands run as uid {uid}, and their supervisor as subordinate uid {}",
                ids.supervisor.0
            ),
            "run the gateway as root, so that each sandbox gets ids of its own",
        ),
        None => match other_source() {
            Some(source) => (
                format!(
                    "commands and their supervisor run as uid {uid}, in a user namespace of their own: subordinate ids of this host \
                     come from {source} (/etc/nsswitch.conf), which is not asked"
                ),
                "run the gateway as root, so that each sandbox gets ids of its own",
            ),
            None => (
                format!("commands and their supervisor run as uid {uid}, in a user namespace of their own"),
                "run the gateway as root, so that each sandbox gets ids of its own; or install newuidmap (package uidmap) and \
                 give this user ids in /etc/subuid and /etc/subgid, so that supervisors do",
            ),
        },
    };
    Protection { name: "identity", status: ProtectionStatus::Weaker, reason, remedy: remedy.into() }
}

fn remedy_of_root(lacks: &str) -> String {
    format!("give this process {lacks}, or run it as another user")
}

/// What rules by program need in addition to a cgroup.
fn connection_programs(host: &Host) -> Protection {
    const NAME: &str = CONNECTION_PROGRAMS;
    if !host.sees_descriptors() {
        let reason =
            "the gateway may not see the descriptors of commands: rules by program restrict every program";
        return missing(NAME, reason, "run the gateway with CAP_SYS_PTRACE");
    }
    if !host.finds_connections() {
        return Protection {
            name: NAME,
            status: ProtectionStatus::Weaker,
            reason: format!("{NO_TCP_DIAG}: beyond some thousands, rules by program restrict every program"),
            remedy: "modprobe tcp_diag, or a kernel with CONFIG_INET_TCP_DIAG".into(),
        };
    }
    available(NAME, "the kernel finds a connection by its ends")
}

/// The programs of connections, for rules that name some.
pub(in crate::sandbox) const CONNECTION_PROGRAMS: &str = "connection-programs";

/// Why the programs of connections are looked for in a table.
pub(in crate::sandbox) const NO_TCP_DIAG: &str = "the kernel does not find a TCP connection by its ends (sock_diag), so the sandbox's list is read while it is short";

fn system_call_filter() -> Protection {
    if Arch::native().is_none() {
        missing("seccomp", "no filter is written for this processor", "use x86_64 or aarch64")
    } else if seccomp::has_errno_action() {
        available("seccomp", "system calls are filtered")
    } else {
        missing("seccomp", "the kernel has no seccomp filters", "a kernel with CONFIG_SECCOMP_FILTER")
    }
}

fn landlock(host: &Host) -> Protection {
    match host.landlock_abi() {
        0 => missing(
            "landlock",
            "the kernel does not offer it",
            "boot with landlock in the lsm= list (CONFIG_SECURITY_LANDLOCK)",
        ),
        abi @ 1..=5 => Protection {
            name: "landlock",
            status: ProtectionStatus::Weaker,
            reason: format!("ABI {abi}: no scopes for signals and abstract sockets"),
            remedy: "Linux 6.12 or later".into(),
        },
        abi => available("landlock", &format!("ABI {abi}")),
    }
}
