//! One layer at a time: what it alone refuses, and what it alone ends.

use std::{
    fs,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use provost_base::{
    cgroup::{directory, hierarchy},
    sys::rights::Rights,
};
use provost_gateway::sandbox::{
    cgroup::Killed,
    launch::LaunchError,
    roots::{self, governing::Governing},
    spec::SandboxSpec,
};
use provost_policy::profile::{Network, Profile};

use crate::{
    setup::{CLEANUP, Place, privileged},
    support::Mounted,
};

fn adapted(mut spec: SandboxSpec, adapt: impl FnOnce(&mut Profile)) -> SandboxSpec {
    let mut profile = (*spec.profile).clone();
    adapt(&mut profile);
    spec.profile = Arc::new(profile);
    spec
}

#[test]
fn landlock_alone_keeps_commands_from_abstract_sockets_of_the_hosts_network() {
    let place = Place::new();
    if place.host.landlock_abi() < 6 {
        println!("SKIPPED: landlock has no scopes before its ABI 6");
        assert!(std::env::var_os("CI").is_none(), "CI has a kernel with landlock's scopes");
        return;
    }
    let name = format!("provost-setup-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connect = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
         connect(S, pack(\"S\", AF_UNIX).\"\\0{name}\") or do {{ print $!{{EPERM}} ? \"EPERM\" : $!; exit }}; print \"in\"'"
    );
    for (id, enabled, wanted) in [("sbx_scoped", true, "EPERM"), ("sbx_unscoped", false, "in")] {
        let mut spec = adapted(place.spec(id), |profile| profile.landlock.enabled = enabled);
        spec.network = Network::Host;
        let up = place.launch(spec).unwrap();
        let ran = up.sh(&connect);
        assert_eq!(ran.output, wanted, "landlock enabled: {enabled}");
        // It is the host's network that it was refused in.
        let network = up.sh("readlink /proc/self/ns/net").output;
        assert_eq!(Path::new(network.trim()), fs::read_link("/proc/self/ns/net").unwrap());
    }
}

#[test]
fn a_root_inside_another_is_shown_and_written_in_both() {
    let place = Place::new();
    let inner = place.work.path().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    let mut spec = place.spec("sbx_nested");
    spec.roots.insert(
        0,
        roots::open(&inner, roots::RootRole::Work, &Rights::own(), &Governing::default()).unwrap(),
    );
    let up = place.launch(spec).unwrap();
    let (outer, inner) = (place.work.path().display(), inner.display());
    let ran = up.sh(&format!("set -e; echo 1 > {outer}/o; echo 2 > {inner}/i; cat {outer}/o {outer}/a/b/i"));
    assert_eq!((ran.code, ran.output.as_str()), (Some(0), "1\n2\n"));
    assert_eq!(fs::read_to_string(place.work.path().join("a/b/i")).unwrap(), "2\n");
}

#[test]
fn where_a_root_cannot_map_ids_commands_are_its_owner() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let root = place.work.path().join("ram");
    fs::create_dir(&root).unwrap();
    let _mounted = Mounted::try_new(&["-t", "ramfs", "none"], &root).expect("root can mount");
    let open = |path: &std::path::Path| {
        roots::open(path, roots::RootRole::Work, &Rights::own(), &Governing::default()).unwrap()
    };
    for owner in [0, 4242] {
        std::os::unix::fs::chown(&root, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut spec = place.spec(&format!("sbx_ramfs_{owner}"));
        spec.roots = vec![open(&root)];
        let up = place.launch(spec).unwrap();
        let file = root.join(format!("made-{owner}"));
        let ran = up.sh(&format!(
            "echo 1 > {0}; cat {0}; id -u; cat /etc/shadow; cat /proc/self/status",
            file.display()
        ));
        assert!(ran.output.starts_with("1\n1000\n"), "{ran:?}");
        // What its owner could read, and nobody else, stays hidden.
        assert!(!ran.output.contains("root:"), "{ran:?}");
        assert!(ran.output.contains("CapEff:\t0000000000000000"), "{ran:?}");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&file).unwrap()), owner);
        let said: Vec<_> = up.launched.shortfalls.iter().map(|one| one.reason.as_str()).collect();
        let whose = format!("commands run as uid {owner}, its owner");
        assert!(said.iter().any(|one| one.contains("ramfs") && one.contains(&whose)), "{said:?}");
    }
}

#[test]
fn roots_of_several_owners_that_cannot_map_ids_are_refused_by_the_name_of_their_file_system() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let root = place.work.path().join("ram");
    fs::create_dir(&root).unwrap();
    let _mounted = Mounted::try_new(&["-t", "ramfs", "none"], &root).expect("root can mount");
    let mut spec = place.spec("sbx_ramfs");
    for (name, owner) in [("one", 0), ("two", 4242)] {
        fs::create_dir(root.join(name)).unwrap();
        std::os::unix::fs::chown(root.join(name), Some(owner), Some(owner)).unwrap();
    }
    let open = |name: &str| {
        roots::open(&root.join(name), roots::RootRole::Work, &Rights::own(), &Governing::default()).unwrap()
    };
    spec.roots = vec![open("one"), open("two")];
    match place.launch(spec).map(|_| ()) {
        Err(LaunchError::NoIdMapping { path, filesystem }) => {
            assert_eq!((path, filesystem.as_str()), (root.join("one"), "ramfs"));
        }
        other => panic!("{other:?}"),
    }
    assert!(!place.state.path().join("sandboxes/sbx_ramfs").exists());
}

/// Whether this process's groups can be limited, by what `Host` found.
fn has(place: &Place, protection: &str) -> bool {
    let all = provost_gateway::sandbox::probe::protections(&place.host);
    let one = all.iter().find(|one| one.name == protection).unwrap();
    let has = one.status == provost_gateway::sandbox::probe::ProtectionStatus::Available;
    if !has {
        println!("SKIPPED: {protection}: {}", one.reason);
        assert!(std::env::var_os("CI").is_none(), "CI has {protection}");
    }
    has
}

#[test]
fn the_sessions_limit_holds_for_all_of_its_commands() {
    let place = Place::new();
    if !has(&place, "cgroup-pids") {
        return;
    }
    let forks = "i=0; while [ $i -lt 30 ]; do sleep 300 & i=$((i+1)); done; echo all; kill $(jobs -p)";
    let free = place.launch(place.spec("sbx_many")).unwrap();
    assert!(free.sh(forks).output.contains("all"));
    let few = adapted(place.spec("sbx_few"), |profile| profile.limits.session.pids = Some(12));
    let few = place.launch(few).unwrap();
    let ran = few.sh(forks);
    assert!(!ran.output.contains("all"), "{ran:?}");
}

#[test]
fn a_sandbox_is_killed_by_its_group() {
    let place = Place::new();
    if !has(&place, "cgroup-kill") {
        return;
    }
    let up = place.launch(place.spec("sbx_kill")).unwrap();
    assert_eq!(up.launched.cgroup.kill().unwrap(), Killed::All);
    let mut ended = [PollFd::new(up.launched.supervisor.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut ended, PollTimeout::from(60_000_u16)), Ok(1), "the supervisor has ended");
    let group = up.launched.cgroup.path().unwrap().to_owned();
    assert!(directory::wait_until_empty(&group, CLEANUP).unwrap());
}

#[test]
fn groups_of_dead_gateways_are_removed_and_those_of_the_living_are_not() {
    let place = Place::new();
    if !has(&place, "cgroup-v2") {
        return;
    }
    let own = hierarchy::find_own().unwrap().remove(0).path;
    // Other tests start gateways meanwhile: nothing may be taken for abandoned before it is all there.
    let make = |name: &str| {
        let path = own.join(format!("provost-{name}-{}", std::process::id()));
        let presence = directory::make_locked(&path).unwrap();
        fs::create_dir_all(path.join("sbx_old/leaf")).unwrap();
        (path, presence)
    };
    let ((dead, not_yet_dead), (locked, lock), (occupied, not_yet_occupied)) =
        (make("dead"), make("locked"), make("occupied"));
    let processes = occupied.join("sbx_old/leaf/cgroup.procs");
    let mut sleeper = Command::new("sleep");
    sleeper.arg("1000").stdin(Stdio::null()).process_group(0);
    let mut sleeper = sleeper.spawn().unwrap();
    fs::write(&processes, sleeper.id().to_string()).unwrap();
    drop((not_yet_dead, not_yet_occupied));
    // A gateway looks once. At that moment another test's gateway may look as well, or a process that another test has just
    // forked may still hold a copy of the lock.
    let begun = Instant::now();
    let (up, seen) = loop {
        let other = Place::new();
        let up = other.launch(other.spec("sbx_after")).unwrap();
        let seen = (dead.exists(), locked.exists(), occupied.exists());
        if !seen.0 || begun.elapsed() > CLEANUP {
            break ((up, other), seen);
        }
    };
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    drop((lock, up));
    for path in [&locked, &occupied] {
        assert!(directory::wait_until_empty(path, CLEANUP).unwrap());
        directory::remove(path).unwrap();
    }
    assert_eq!(seen, (false, true, true), "dead, locked, occupied");
}
