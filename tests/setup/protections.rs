//! What the host is said to offer: tried, explained, and nothing left of the trial.

use std::{collections::BTreeMap, fs, process::Command};

use provost_base::cgroup::hierarchy;
use provost_gateway::sandbox::{
    host::Host,
    probe::{self, ProtectionStatus},
};

#[test]
fn every_protection_is_named_once_and_what_is_not_there_says_why_and_how_to_get_it() {
    let all = probe::protections(&Host::detect());
    let names: BTreeMap<_, _> = all.iter().map(|one| (one.name, one)).collect();
    assert_eq!(names.len(), all.len(), "{all:?}");
    for needed in [
        "namespace-user",
        "namespace-pid",
        "namespace-mount",
        "namespace-ipc",
        "namespace-uts",
        "namespace-cgroup",
        "namespace-network",
        "identity",
        "id-mapped-mounts",
        "pivot-root",
        "proc",
        "devpts",
        "seccomp",
        "landlock",
        "exec-gate",
        "connection-programs",
        "cgroup-v2",
        "cgroup-kill",
        "clone-into-cgroup",
        "cgroup-memory",
        "cgroup-pids",
        "cgroup-cpu",
        "pidfd",
        "memfd-seals",
        "no-new-privs",
    ] {
        assert!(names.contains_key(needed), "{needed} in {:?}", names.keys());
    }
    for one in &all {
        let explained = !one.reason.is_empty() && !one.remedy.is_empty();
        assert!(one.status == ProtectionStatus::Available || explained, "{one:?}");
    }
    // Sandboxes are launched by the other tests here, so their parts are.
    for there in [
        "namespace-user",
        "namespace-pid",
        "namespace-mount",
        "pivot-root",
        "proc",
        "devpts",
        "exec-gate",
        "pidfd",
    ] {
        assert_eq!(names[there].status, ProtectionStatus::Available, "{:?}", names[there]);
    }
    let trial = format!("provost-probe-{}-", std::process::id());
    for group in hierarchy::find_own().unwrap() {
        let Ok(entries) = fs::read_dir(&group.path) else { continue };
        // Other tests of this process may be trying at this moment: what stays is what is there twice.
        let left = |entries: fs::ReadDir| -> Vec<_> {
            let names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.starts_with(&trial)).collect()
        };
        let first = left(entries);
        if first.is_empty() {
            continue;
        }
        let deadline = std::time::Instant::now() + crate::setup::CLEANUP;
        while first.iter().any(|name| group.path.join(name).exists()) {
            assert!(std::time::Instant::now() < deadline, "{first:?} in {:?}", group.path);
            std::thread::yield_now();
        }
    }
}

/// `provost doctor -o json` in a namespace where something was taken away first.
fn doctor_after(taken: &str) -> String {
    let line = format!("{taken}; exec {} doctor -o json", env!("CARGO_BIN_EXE_provost"));
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &line])
        .output()
        .unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

/// The report's row of a protection, as it is printed.
fn row<'a>(report: &'a str, name: &str) -> &'a str {
    let at = report.find(&format!("\"{name}\"")).unwrap_or_else(|| panic!("no {name} in {report}"));
    let row = &report[at..];
    &row[..row.find('}').unwrap_or(row.len())]
}

#[test]
fn what_is_taken_away_is_missed_by_name_and_cause() {
    let whole = doctor_after("true");
    for name in ["namespace-network", "proc"] {
        assert!(row(&whole, name).contains("\"available\""), "{whole}");
    }
    let bounded = doctor_after("echo 0 > /proc/sys/user/max_net_namespaces");
    let network = row(&bounded, "namespace-network");
    assert!(network.contains("\"missing\"") && network.contains("user.max_net_namespaces is 0"), "{network}");
    assert!(row(&bounded, "namespace-pid").contains("\"available\""), "{bounded}");
    // As containers do it: a part of each /proc is covered, and so no other /proc may show it.
    let each = "while read -r _ at kind _; do [ $kind != proc ] || echo $at; done </proc/mounts";
    let masked = doctor_after(&format!("for at in $({each}); do mount -t tmpfs none $at/sys; done"));
    let proc = row(&masked, "proc");
    assert!(proc.contains("\"missing\"") && proc.contains("unmasked"), "{proc}");
}
