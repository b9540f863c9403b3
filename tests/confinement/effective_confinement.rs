//! The effective confinement of a command, against the expected one: any difference fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    confinement::kernel::{ABOUT_THE_MACHINE, DIRECTORIES_ABOUT_THE_MACHINE},
    support::{Gateway, Process, Session, api::Network, in_session, is_root},
};

/// What the attack program `confined` printed, part by part.
pub(super) struct Confinement(BTreeMap<String, String>);

impl Confinement {
    pub(super) fn of(text: &str) -> Self {
        let mut parts = BTreeMap::new();
        let mut name = String::new();
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("== ") {
                name = next.to_owned();
                parts.insert(name.clone(), String::new());
            } else if let Some(part) = parts.get_mut(&name) {
                part.push_str(line);
                part.push('\n');
            }
        }
        assert!(parts.contains_key("end"), "the program was cut short: {text}");
        Self(parts)
    }

    pub(super) fn part(&self, name: &str) -> &str {
        self.0.get(name).map_or_else(|| panic!("there is no part {name}"), |part| part.trim_end())
    }

    pub(super) fn lines(&self, name: &str) -> Vec<&str> {
        self.part(name).lines().collect()
    }

    pub(super) fn status(&self, field: &str) -> &str {
        self.part("status")
            .lines()
            .find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_else(|| panic!("no {field}"))
    }
}

pub(super) async fn confinement_in(session: &Session) -> Confinement {
    let done = session.attack("confined").finish().await;
    Confinement::of(&done.text())
}

/// The nice value that this process, and so its gateway, was started with: proc(5), field 19 of `stat`.
fn own_nice() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc(5)");
    let behind_name = stat.rsplit(") ").next().expect("a state behind the name");
    behind_name.split(' ').nth(16).expect("a nice value").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_has_three_descriptors_and_no_other() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        let fds = confinement.lines("fds");
        assert_eq!(fds.len(), 3, "{fds:?}");
        assert!(fds[0].starts_with("0 /dev/null "), "{fds:?}");
        assert!(fds[1].starts_with("1 pipe:[") && fds[2].starts_with("2 pipe:["), "{fds:?}");
        assert_eq!(fds[1][2..], fds[2][2..], "merged: one pipe");
        let done = session.attack("confined").split().stdin().create().await;
        // It reads nothing, and may have ended before this comes.
        if let Err(refusal) = done.write(b"", crate::support::EndOfInput::After).await {
            assert_eq!(refusal.reason, "COMMAND_ENDED", "{refusal:?}");
        }
        done.wait().await;
        let text = String::from_utf8_lossy(&done.output().await.data).into_owned();
        let confinement = Confinement::of(&text);
        let fds = confinement.lines("fds");
        assert_eq!(fds.len(), 3, "{fds:?}");
        assert!(fds.iter().all(|line| line.contains(" pipe:[")), "{fds:?}");
        let pipes: BTreeSet<_> = fds.iter().map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(pipes.len(), 3, "split: three pipes: {fds:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_has_no_privilege_and_cannot_get_one() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(confinement.status(set), "0000000000000000", "{set}");
        }
        assert_eq!(confinement.status("NoNewPrivs"), "1");
        assert_eq!(confinement.status("Seccomp"), "2");
        // Provost installs one filter: one more than this process has.
        let own: u32 =
            Process::read(std::process::id()).expect("self").field("Seccomp_filters").parse().unwrap_or(0);
        assert_eq!(confinement.status("Seccomp_filters"), (own + 1).to_string());
        for (signals, mask) in [
            ("SigBlk", confinement.status("SigBlk")),
            ("SigIgn", confinement.status("SigIgn")),
            ("SigCgt", confinement.status("SigCgt")),
        ] {
            assert_eq!(mask, "0000000000000000", "{signals}");
        }
        assert_eq!(confinement.status("Groups"), "", "no supplementary group");
        assert_eq!(confinement.status("TracerPid"), "0");
        let flags: BTreeMap<_, _> =
            confinement.lines("flags").into_iter().filter_map(|l| l.split_once(' ')).collect();
        // NOROOT, NO_SETUID_FIXUP locked off, KEEP_CAPS locked off, NO_CAP_AMBIENT_RAISE: capabilities(7).
        assert_eq!(flags["securebits"], "0xeb");
        assert_eq!(flags["no_new_privs"], "1");
        assert_eq!(flags["keepcaps"], "0");
        assert_eq!(flags["personality"], "0");
        assert_eq!(flags["umask"], "22");
        assert_eq!(flags["nice"], own_nice(), "no more favour than the gateway has");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_is_one_ordinary_user_in_a_session_of_its_own() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        let ids = confinement.lines("ids");
        assert_eq!(ids[0], "uid 1000 1000 1000");
        assert_eq!(ids[1], "gid 1000 1000 1000");
        assert_eq!(ids[2], "groups 0");
        let words: Vec<&str> = ids[3].split(' ').collect();
        // pid N ppid 1-or-0 sid N pgid N: it leads its session and group, and its parent is PID 1.
        assert_eq!((words[1], words[1]), (words[5], words[7]), "{ids:?}");
        assert_eq!(words[3], "1", "{ids:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_namespace_of_a_command_is_its_sessions_own() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let (first, second, again) =
                (confinement_in(one).await, confinement_in(other).await, confinement_in(one).await);
            let host = Process::read(std::process::id()).expect("self");
            let of = |confinement: &Confinement| -> BTreeMap<String, String> {
                let lines = confinement.lines("ns");
                lines
                    .iter()
                    .filter_map(|l| l.split_once(' '))
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
                    .collect()
            };
            for kind in ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"] {
                let (a, b, c) = (&of(&first)[kind], &of(&second)[kind], &of(&again)[kind]);
                assert!(a.starts_with(&format!("{kind}:[")), "{a}");
                assert_ne!(a, &host.namespace(kind), "{kind} is the host's");
                assert_ne!(a, b, "{kind} is shared between sessions");
                assert_eq!(a, c, "{kind} is the same for the commands of a session");
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_environment_is_exactly_what_the_profile_gives() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        let mut env = confinement.lines("env");
        env.sort_unstable();
        let expected = [
            "CARGO_NET_RETRY=0",
            "DEBIAN_FRONTEND=noninteractive",
            "GIT_PAGER=cat",
            "GIT_TERMINAL_PROMPT=0",
            "HOME=/home/agent",
            "LANG=C.UTF-8",
            "LOGNAME=agent",
            "PAGER=cat",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PIP_RETRIES=0",
            "TERM=dumb",
            "USER=agent",
            "npm_config_fetch_retries=0",
        ];
        let env: Vec<&str> = env.into_iter().filter(|line| !line.starts_with("PWD=")).collect();
        assert_eq!(env, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_mounts_are_exactly_those_of_the_profile() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        let mut seen = BTreeMap::new();
        for line in confinement.lines("mountinfo") {
            let (before, after) = line.split_once(" - ").expect("a dash");
            let fields: Vec<&str> = before.split(' ').collect();
            let kind = after.split(' ').next().expect("a type");
            let options: BTreeSet<&str> = fields[5].split(',').collect();
            assert!(
                !fields[6..].iter().any(|f| f.starts_with("shared:") || f.starts_with("master:")),
                "it propagates: {line}"
            );
            assert!(options.contains("nosuid"), "{line}");
            seen.insert(
                fields[4].to_owned(),
                (kind.to_owned(), options.contains("ro"), options.contains("nodev"), line.to_owned()),
            );
        }
        let workspace = session.workspace.display().to_string();
        let mut expected: BTreeMap<String, bool> = ["/", "/proc", "/dev", "/etc/passwd", "/etc/group"]
            .iter()
            .map(|p| ((*p).to_owned(), true))
            .collect();
        for place in ["/tmp", "/dev/shm", "/dev/pts", "/dev/mqueue", "/home/agent", &workspace] {
            expected.insert(place.to_owned(), false);
        }
        for device in ["null", "zero", "full", "random", "urandom", "tty"] {
            expected.insert(format!("/dev/{device}"), false);
        }
        // The null device, over what is the whole machine's.
        for covered in ABOUT_THE_MACHINE.split_whitespace().map(|name| format!("/proc/{name}")) {
            if std::path::Path::new(&covered).exists() {
                if let Some((.., line)) = seen.get(&covered) {
                    assert!(line.contains(" /null "), "{line}");
                }
                expected.insert(covered, true);
            }
        }
        // Empty directories, likewise.
        for covered in DIRECTORIES_ABOUT_THE_MACHINE.split_whitespace().map(|name| format!("/proc/{name}")) {
            if std::path::Path::new(&covered).exists() {
                expected.insert(covered, true);
            }
        }
        // What is installed, as package managers know it, and how many processors there are.
        for shown in ["/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman/local", "/sys/devices/system/cpu"] {
            if std::path::Path::new(shown).is_dir() {
                expected.insert(shown.to_owned(), true);
            }
        }
        for system in ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc"] {
            if std::fs::symlink_metadata(system).is_ok_and(|m| m.is_dir()) {
                expected.insert(system.to_owned(), true);
            }
        }
        let seen_places: BTreeSet<_> = seen.keys().collect();
        // Mounts of the host below a system directory come along, read-only, and the sandbox's own cgroup is shown with its limits
        // (which the v2 suite looks at); nothing else may be there.
        let more: Vec<_> = seen
            .iter()
            .filter(|(place, (kind, read_only, ..))| {
                let below_system = ["/usr/", "/opt/", "/etc/"].iter().any(|s| place.starts_with(s));
                let own_cgroup = place.starts_with("/sys/fs/cgroup") && kind.starts_with("cgroup");
                !(expected.contains_key(*place) || (below_system || own_cgroup) && *read_only)
            })
            .collect();
        assert!(more.is_empty(), "more than expected: {more:#?}");
        let missing: Vec<_> = expected.keys().filter(|place| !seen_places.contains(place)).collect();
        assert!(missing.is_empty(), "less than expected: {missing:?}\n{}", confinement.part("mountinfo"));
        for (place, read_only) in expected {
            let (_, is_read_only, no_devices, line) = &seen[&place];
            assert_eq!(*is_read_only, read_only, "{line}");
            if !place.starts_with("/dev") && !place.starts_with("/proc/") {
                assert!(no_devices, "{line}");
            }
        }
        assert_eq!(
            confinement.part("dev").lines().collect::<BTreeSet<_>>(),
            BTreeSet::from([
                "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
                "tty", "urandom", "zero",
            ])
        );
        assert_eq!(confinement.part("home"), "agent");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn keyrings_sockets_and_cgroups_of_the_host_are_not_to_be_seen() {
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        let keys = confinement.part("keys");
        // A session keyring of the sandbox's own, empty, and nothing else.
        let own = |line: &&str| line.contains("keyring") && line.ends_with("_ses: empty");
        assert!(
            keys.is_empty() || (keys.lines().count() == 1 && keys.lines().all(|l| own(&l))),
            "keys: {keys}"
        );
        // The sandbox's own pair of supervisor and gate has no name, so that nobody can connect to it.
        let sockets = confinement.lines("unix");
        let has_name = |line: &&&str| line.split_whitespace().count() > 7;
        assert!(!sockets.iter().skip(1).any(|line| has_name(&line)), "{}", confinement.part("unix"));
        assert!(sockets.len() <= 3, "only the heading and one pair: {}", confinement.part("unix"));
        for line in confinement.lines("cgroup") {
            let path = line.rsplit(':').next().unwrap_or_default();
            assert!(!path.contains("test-of-provost"), "the host's place is told: {line}");
        }
        assert_eq!(confinement.part("run"), "!ENOENT");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn limits_are_those_of_the_profile_inside_and_on_the_host() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let confinement = confinement_in(session).await;
        let limits: BTreeMap<&str, &str> =
            confinement.lines("rlimits").into_iter().filter_map(|l| l.split_once(' ')).collect();
        assert_eq!(limits["4"], "1 1", "core: less than a file, and no pipe to the host either");
        assert_eq!(limits["7"], "8192 8192", "nofile");
        let marker = session.marker();
        let held = session.idle(&marker).create().await;
        held.until("ready").await;
        let pid = Process::all_marked(&marker).first().expect("it runs").pid;
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups");
        // In every hierarchy in which it has a leaf, the leaf is below the gateway's own group.
        let below = cgroups.lines().filter(|l| l.contains("test-of-provost-")).count();
        assert!(below >= 1, "{cgroups}");
        let receipt = held.info.receipt.clone().expect("a receipt");
        assert!(!receipt.limits.is_empty(), "{receipt:?}");
        println!("{:?} {}", receipt.limits, receipt.cgroup);
        let directories = gateway.group.groups();
        let read = |name: &str| -> Vec<String> {
            directories
                .iter()
                .filter_map(|f| std::fs::read_to_string(f.join(name)).ok())
                .map(|t| t.trim().to_owned())
                .collect()
        };
        let memory = [read("memory.max"), read("memory.limit_in_bytes")].concat();
        let pids = read("pids.max");
        if is_root() {
            assert!(memory.iter().any(|v| v == "4294967296"), "{memory:?}");
            assert!(pids.iter().any(|v| v == "2048"), "{pids:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_receipt_says_what_the_host_sees() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let held = session.idle(&marker).create().await;
        held.until("ready").await;
        let receipt = held.info.receipt.clone().expect("a receipt");
        let host = Process::read(std::process::id()).expect("self");
        let seen = Process::all_marked(&marker).into_iter().next().expect("it runs");
        let differ: BTreeSet<&str> = ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"]
            .into_iter()
            .filter(|kind| seen.namespace(kind) != host.namespace(kind))
            .collect();
        assert_eq!(receipt.namespaces.iter().map(String::as_str).collect::<BTreeSet<_>>(), differ);
        assert_eq!(receipt.no_new_privs, seen.field("NoNewPrivs") == "1");
        assert_eq!(receipt.seccomp_mode.to_string(), seen.field("Seccomp"));
        assert_eq!(receipt.seccomp_filters.to_string(), seen.field("Seccomp_filters"));
        for (set, mask) in &receipt.capabilities {
            assert_eq!(mask, seen.field(set), "{set}");
        }
        assert_eq!(receipt.capabilities.len(), 5, "{receipt:?}");
        assert_eq!(receipt.host_uid.to_string(), seen.field("Uid").split('\t').next().unwrap_or_default());
        assert_eq!(receipt.host_gid.to_string(), seen.field("Gid").split('\t').next().unwrap_or_default());
        assert_eq!((receipt.uid, receipt.gid), (1000, 1000));
        assert!(receipt.landlock_abi >= 6, "{receipt:?}");
        assert_eq!(receipt.network(), Network::None);
        assert!(receipt.shortfalls.is_empty(), "{:?}", receipt.shortfalls);
        assert_eq!(receipt.terminal_id, held.id);
        assert!(receipt.survivors.is_none(), "it has not ended");
        // The supervisor: not root on the host either, and not the command's user.
        let parent: u32 = seen.field("PPid").parse().expect("a number");
        let supervisor = Process::read(parent).expect("its parent is the supervisor");
        if is_root() {
            let uid = supervisor.field("Uid").split('\t').next().unwrap_or_default().to_owned();
            assert_ne!(uid, "0", "the supervisor is the host's root");
            assert_ne!(uid, receipt.host_uid.to_string(), "the supervisor is the command's user");
        }
        assert_eq!(supervisor.field("NoNewPrivs"), "1");
        assert_eq!(supervisor.field("CapBnd"), "0000000000000000");
    })
    .await;
}
