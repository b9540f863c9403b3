//! What this host offers: found once, by trying where trying is cheap and harmless.
//!
//! Knows which protections there are, why one is missing and how to get it. Launches nothing and skips nothing:
//! whether a missing protection matters is the profile's word.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use caps::{CapSet, Capability};

use super::{
    cgroup::{self, GatewayGroups},
    identity::IdRange,
    launch,
    seccomp::Machine,
    spare::Spare,
};
use crate::{
    cgroup::{Hierarchy, folder, hierarchy::OwnGroup},
    sys::{landlock, seccomp},
};

/// How a protection stands on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// As it is meant to be.
    Available,
    /// There, but with a part missing.
    Weaker,
    /// Not there.
    Missing,
}

/// A protection and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// Its name, stable.
    pub name: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// What was found.
    pub why: String,
    /// How to get it; empty when there is nothing to get.
    pub remedy: String,
}

/// A host as this process can use it.
#[derive(Debug)]
pub struct Host {
    privileged: bool,
    uid: u32,
    gid: u32,
    ids: IdRange,
    landlock_abi: u32,
    own_groups: Vec<OwnGroup>,
    launcher: PathBuf,
    spare: Arc<Spare>,
    gateway_groups: Mutex<Vec<(PathBuf, Arc<GatewayGroups>)>>,
}

impl Host {
    /// Looks at the host. Cheap: some reads and a few system calls.
    #[must_use]
    pub fn probe() -> Self {
        let uid = nix::unistd::geteuid();
        Self {
            privileged: uid.is_root() && NEEDED_TO_MAP.into_iter().all(has_capability) && maps_all_ids(),
            uid: uid.as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            ids: IdRange::default(),
            landlock_abi: landlock::abi(),
            // Without /proc there are no groups to find, and nothing else would work either.
            own_groups: cgroup::find_own().unwrap_or_default(),
            launcher: "/proc/self/exe".into(),
            spare: Arc::default(),
            gateway_groups: Mutex::default(),
        }
    }

    /// Takes host ids from another range than the default one.
    #[must_use]
    pub fn with_ids(mut self, ids: IdRange) -> Self {
        self.ids = ids;
        self
    }

    /// Starts sandboxes with this file instead of the running program's own, which must be the same program.
    #[must_use]
    pub fn with_launcher(mut self, program: PathBuf) -> Self {
        self.launcher = program;
        self
    }

    pub(super) fn launcher(&self) -> &Path {
        &self.launcher
    }

    pub(super) fn spare(&self) -> &Arc<Spare> {
        &self.spare
    }

    /// Starts the launcher of the first launch ahead, and makes the gateway's cgroups, in which it is to live. Of use to
    /// a gateway that begins; never necessary.
    pub fn expect_launch(&self, state: &Path) {
        self.gateway_groups(state);
        self.spare.refill(&self.launcher, launch::DEADLINE);
    }

    /// Whether sandboxes get host ids of their own and id-mapped roots.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// The landlock ABI, 0 for none.
    #[must_use]
    pub fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    pub(super) fn own_ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    pub(super) fn ids(&self) -> &IdRange {
        &self.ids
    }

    /// Whether a terminal's tree can be killed by its own cgroup. Where not, the end of a sandbox's PID 1 is the only
    /// tree kill, and each terminal needs a sandbox of its own.
    #[must_use]
    pub fn kills_trees_by_cgroup(&self, state: &Path) -> bool {
        self.gateway_groups(state).has_v2()
    }

    /// The cgroup folders of the gateway with this state folder, made when first asked for.
    pub(super) fn gateway_groups(&self, state: &Path) -> Arc<GatewayGroups> {
        let mut made: MutexGuard<'_, _> = self.gateway_groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, groups)) = made.iter().find(|(of, _)| of == state) {
            return Arc::clone(groups);
        }
        let groups = Arc::new(GatewayGroups::make(&self.own_groups, state));
        made.push((state.to_owned(), Arc::clone(&groups)));
        groups
    }

    /// Every protection, for people and for `provost doctor`.
    #[must_use]
    pub fn protections(&self) -> Vec<Protection> {
        let mut all = namespaces();
        all.push(self.identity());
        all.push(self.seccomp());
        all.push(self.landlock());
        all.extend(self.cgroups());
        all.extend(kernel_calls());
        all
    }

    fn identity(&self) -> Protection {
        if self.privileged {
            return available(
                "identity",
                "each sandbox has host ids of its own; files keep their owner by id-mapped mounts",
            );
        }
        Protection {
            name: "identity",
            standing: Standing::Weaker,
            why: format!("commands run as uid {}, in a user namespace of their own", self.uid),
            remedy: "run the gateway as root, so that each sandbox gets ids of its own".into(),
        }
    }

    fn seccomp(&self) -> Protection {
        if Machine::native().is_none() {
            missing("seccomp", "no filter is written for this processor", "use x86_64 or aarch64")
        } else if seccomp::has_errno_action() {
            available("seccomp", "system calls are filtered")
        } else {
            missing("seccomp", "the kernel has no seccomp filters", "a kernel with CONFIG_SECCOMP_FILTER")
        }
    }

    fn landlock(&self) -> Protection {
        match self.landlock_abi {
            0 => missing(
                "landlock",
                "the kernel does not offer it",
                "boot with landlock in the lsm= list (CONFIG_SECURITY_LANDLOCK)",
            ),
            abi @ 1..=5 => Protection {
                name: "landlock",
                standing: Standing::Weaker,
                why: format!("ABI {abi}: no scopes for signals and abstract sockets"),
                remedy: "Linux 6.12 or later".into(),
            },
            abi => available("landlock", &format!("ABI {abi}")),
        }
    }

    fn cgroups(&self) -> Vec<Protection> {
        let writable = |group: &&OwnGroup| folder::is_writable(&group.path);
        let delegate = "start the gateway in a group that is delegated to it: a systemd unit with Delegate=yes, or `systemd-run --user --scope -p Delegate=yes`";
        let v2 = self.own_groups.iter().find(|group| group.hierarchy == Hierarchy::V2);
        let mut all = vec![match v2 {
            None => missing(
                "cgroup-v2",
                "the unified hierarchy is not mounted",
                "mount -t cgroup2 none /sys/fs/cgroup/unified",
            ),
            Some(group) if !folder::is_writable(&group.path) => {
                missing("cgroup-v2", &format!("{} cannot be written", group.path.display()), delegate)
            }
            Some(group) => available("cgroup-v2", &group.path.display().to_string()),
        }];
        let kill = v2.filter(writable).map(|group| has_kill(&group.path));
        all.push(match kill {
            Some(true) => available("cgroup-kill", "a whole tree dies by one write"),
            Some(false) => missing("cgroup-kill", "the kernel has no cgroup.kill", "Linux 5.14 or later"),
            None => missing(
                "cgroup-kill",
                "there is no v2 group to kill by; PID 1 of the sandbox is killed instead",
                delegate,
            ),
        });
        for (name, controller) in
            [("cgroup-memory", "memory"), ("cgroup-pids", "pids"), ("cgroup-cpu", "cpu")]
        {
            let has = |group: &&OwnGroup| group.controllers.iter().any(|one| one == controller);
            let offering: Vec<_> = self.own_groups.iter().filter(has).collect();
            all.push(match (offering.iter().find(|group| writable(group)), offering.first()) {
                (Some(group), _) => available(name, &group.path.display().to_string()),
                (None, Some(group)) => {
                    missing(name, &format!("{} cannot be written", group.path.display()), delegate)
                }
                (None, None) => missing(name, "no hierarchy offers it to this process's group", delegate),
            });
        }
        all
    }
}

/// For id maps of others, and for id-mapped mounts.
const NEEDED_TO_MAP: [Capability; 5] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_CHOWN,
    Capability::CAP_KILL,
];

fn has_capability(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Inside a container with a map of its own, root may not have the range.
fn maps_all_ids() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        matches!(
            (numbers.next(), numbers.next(), numbers.next()),
            (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count)))
                if inside <= u64::from(super::identity::DEFAULT_FIRST_ID)
                    && inside + count
                        >= u64::from(super::identity::DEFAULT_FIRST_ID + 2 * super::identity::DEFAULT_PAIRS)
        )
    })
}

fn has_kill(own: &Path) -> bool {
    // The root group has no such file, any other has.
    let trial = own.join(format!("provost-trial-{}", std::process::id()));
    if folder::make(&trial).is_err() {
        return false;
    }
    let has = trial.join("cgroup.kill").exists();
    // Empty, so it goes.
    let _ = folder::remove(&trial);
    has
}

fn namespaces() -> Vec<Protection> {
    const ALL: [(&str, &str, &str); 7] = [
        ("namespace-user", "user", "max_user_namespaces"),
        ("namespace-pid", "pid", "max_pid_namespaces"),
        ("namespace-mount", "mnt", "max_mnt_namespaces"),
        ("namespace-ipc", "ipc", "max_ipc_namespaces"),
        ("namespace-uts", "uts", "max_uts_namespaces"),
        ("namespace-cgroup", "cgroup", "max_cgroup_namespaces"),
        ("namespace-network", "net", "max_net_namespaces"),
    ];
    let root = nix::unistd::geteuid().is_root();
    let sysctl =
        |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    ALL.iter()
        .map(|&(name, link, limit)| {
            if !Path::new("/proc/self/ns").join(link).exists() {
                return missing(name, "the kernel is built without it", "a kernel with all namespaces");
            }
            if sysctl(&format!("/proc/sys/user/{limit}")) == Some(0) {
                return missing(name, &format!("user.{limit} is 0"), &format!("sysctl user.{limit}=10000"));
            }
            if link == "user" && !root {
                if sysctl("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
                    let remedy = "sysctl kernel.unprivileged_userns_clone=1, or run the gateway as root";
                    return missing(name, "ordinary users may not make user namespaces", remedy);
                }
                if sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
                    let remedy = "give the provost binary an AppArmor profile with `userns,`, or run the gateway as root";
                    return Protection {
                        name,
                        standing: Standing::Weaker,
                        why: "AppArmor takes the privileges from ordinary users' namespaces".into(),
                        remedy: remedy.into(),
                    };
                }
            }
            available(name, "")
        })
        .collect()
}

/// Calls that the supervisor's work rests on, each tried.
fn kernel_calls() -> Vec<Protection> {
    let pidfd = std::fs::metadata("/proc/self/ns/pid").is_ok() && crate::sys::namespace::can_open_pidfd();
    let seals = nix::sys::memfd::memfd_create(c"provost-trial", nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING)
        .and_then(|file| {
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(nix::fcntl::SealFlag::F_SEAL_SHRINK))
        })
        .is_ok();
    let no_new_privs = nix::sys::prctl::get_no_new_privs().is_ok();
    [
        ("pidfd", pidfd, "Linux 5.3 or later"),
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

fn available(name: &'static str, why: &str) -> Protection {
    Protection { name, standing: Standing::Available, why: why.into(), remedy: String::new() }
}

fn missing(name: &'static str, why: &str, remedy: &str) -> Protection {
    Protection { name, standing: Standing::Missing, why: why.into(), remedy: remedy.into() }
}
