//! The effective confinement of a command, as one list that is compared with the expected one: a line more, less or other fails.
//!
//! Descriptors, environment, ids and mounts have tests of their own in [`crate::confinement::effective_confinement`].

use std::collections::BTreeMap;

use crate::{
    confinement::effective_confinement::{Confinement, confinement_in},
    support::{Attack, Gateway, Process, in_session, is_root, run_outside},
};

/// What of it does not depend on the host. Fields of /proc/self/status, flags of prctl(2), layers.
const EXPECTED: &str = "CapAmb 0000000000000000
CapBnd 0000000000000000
CapEff 0000000000000000
CapInh 0000000000000000
CapPrm 0000000000000000
Groups
NoNewPrivs 1
Seccomp 2
SigBlk 0000000000000000
SigCgt 0000000000000000
SigIgn 0000000000000000
ThreadsOfTracer 0
descriptors 0 1 2
dumpable 1
keepcaps 0
landlock_layers more than outside: 1
namespaces of its own cgroup ipc mnt net pid user uts
namespaces of the host time
no_new_privs 1
personality 0
seccomp filters more than outside: 1
securebits 0xeb
umask 22";

fn flags(confinement: &Confinement) -> BTreeMap<String, String> {
    let lines = confinement.lines("flags");
    let pair = |line: &&str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    lines.iter().filter_map(pair).collect()
}

fn number(text: &str) -> i64 {
    text.trim().parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

fn described(inside: &Confinement, outside: &Confinement) -> String {
    let fields = ["CapAmb", "CapBnd", "CapEff", "CapInh", "CapPrm", "Groups", "NoNewPrivs", "Seccomp"];
    let signals = ["SigBlk", "SigCgt", "SigIgn"];
    let mut lines: Vec<String> = fields
        .iter()
        .chain(&signals)
        .map(|field| format!("{field} {}", inside.status(field)).trim_end().to_owned())
        .collect();
    lines.push(format!("ThreadsOfTracer {}", inside.status("TracerPid")));
    let descriptors: Vec<&str> =
        inside.lines("fds").iter().filter_map(|line| line.split(' ').next()).collect();
    lines.push(format!("descriptors {}", descriptors.join(" ")));
    let (flags, flags_outside) = (flags(inside), flags(outside));
    for flag in ["dumpable", "keepcaps", "no_new_privs", "personality", "securebits", "umask"] {
        lines.push(format!("{flag} {}", flags[flag]));
    }
    let layers = number(&flags["landlock_layers"]) - number(&flags_outside["landlock_layers"]);
    lines.push(format!("landlock_layers more than outside: {layers}"));
    let filters = number(inside.status("Seccomp_filters")) - number(outside.status("Seccomp_filters"));
    lines.push(format!("seccomp filters more than outside: {filters}"));
    let (own, shared): (Vec<&str>, Vec<&str>) =
        inside.lines("ns").into_iter().partition(|line| !outside.lines("ns").contains(line));
    for (what, namespaces) in [("of its own", own), ("of the host", shared)] {
        let mut kinds: Vec<&str> = namespaces.iter().filter_map(|line| line.split(' ').next()).collect();
        kinds.sort_unstable();
        lines.push(format!("namespaces {what} {}", kinds.join(" ")));
    }
    lines.sort();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_effective_confinement_of_a_command_is_exactly_the_expected_one() {
    let outside = Confinement::of(&run_outside(&Attack::compiled("confined"), &[]).1);
    in_session(&Gateway::shared(), async |session| {
        let inside = confinement_in(session).await;
        assert_eq!(described(&inside, &outside), EXPECTED);
        if is_root() {
            assert_ne!(described(&outside, &outside), EXPECTED, "outside it is another");
            assert_ne!(outside.status("CapEff"), "0000000000000000", "outside there are capabilities");
        }
    })
    .await;
}

/// By the numbers of getrlimit(2): core, nofile and msgqueue of `policies/default.toml`, and sigpending, which every sandbox has. A
/// core of 1 byte is none, and none for a program of the host's either.
const LIMITS_OF_THE_SANDBOX: [(&str, &str); 4] =
    [("4", "1 1"), ("7", "8192 8192"), ("11", "8192 8192"), ("12", "819200 819200")];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_resource_limit_is_the_sandboxs_or_the_gateways_own() {
    let outside = Confinement::of(&run_outside(&Attack::compiled("confined"), &[]).1);
    let limits = |confinement: &Confinement| -> BTreeMap<String, String> {
        let lines = confinement.lines("rlimits");
        lines
            .iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    };
    let mut expected = limits(&outside);
    assert_eq!(expected.len(), 16, "{expected:?}");
    expected.extend(LIMITS_OF_THE_SANDBOX.map(|(limit, value)| (limit.to_owned(), value.to_owned())));
    in_session(&Gateway::shared(), async |session| {
        assert_eq!(limits(&confinement_in(session).await), expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_id_of_the_hosts_root_or_of_the_caller_is_in_a_sandboxs_maps() {
    if !is_root() {
        return crate::support::skip("as an ordinary user the only id is the user's");
    }
    in_session(&Gateway::shared(), async |session| {
        let confinement = confinement_in(session).await;
        for map in ["uid_map", "gid_map"] {
            let lines = confinement.lines(map);
            assert!(!lines.is_empty(), "{map}");
            for line in lines.iter().filter(|line| !line.is_empty()) {
                // As a process of that namespace reads it: inside, outside, count.
                let fields: Vec<u64> =
                    line.split_whitespace().map(|field| number(field).cast_unsigned()).collect();
                assert_eq!((fields.len(), fields[2]), (3, 1), "one id at a time: {line}");
            }
        }
        let marker = session.marker();
        let held = session.idle(&marker).create().await;
        held.until("ready").await;
        let process = Process::all_marked(&marker).into_iter().next().expect("it runs");
        let map = std::fs::read_to_string(format!("/proc/{}/uid_map", process.pid)).expect("it can be read");
        let on_host: Vec<&str> = map.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert!(!on_host.is_empty() && !on_host.contains(&"0"), "the host's root is mapped: {map}");
    })
    .await;
}
