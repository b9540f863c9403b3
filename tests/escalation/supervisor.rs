//! What a command can do to the supervisor that has its user id, as under an ordinary user: nothing that slows it down
//! or takes it what it needs for a kill.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use crate::support::{
    Attack, FIRST_SUBORDINATE, Gateway, Options, Process, Session, api::ExitCause, code, in_session, is_root,
    signal_name, skip,
};

/// An id above those of people and services, and below the ranges that containers get.
const ORDINARY: u32 = 59_998;

/// Whether a gateway of an ordinary user may make cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Given,
    None,
}

fn prefer_limits(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

fn prefer_limits_and_have_a_gate(policy: &mut toml::Table) {
    prefer_limits(policy);
    let workspace = policy["profile"]["workspace"].as_table_mut().expect("a profile");
    workspace.insert("gate".to_owned(), toml::toml! { enabled = true }.into());
}

/// A gateway of an ordinary user. Tests that do not run as root are that user, and have what that user has.
pub(crate) fn ordinary_gateway(tree: Tree) -> Arc<Gateway> {
    let user = is_root().then_some(ORDINARY);
    let delegated = tree == Tree::Given;
    Gateway::start_with(Options { policy: Some(prefer_limits), user, delegated, ..Options::default() })
}

/// The id of a supervisor of a user with subordinate ids; the one before it is the gate's.
pub(crate) const LAST_SUBORDINATE: u32 = FIRST_SUBORDINATE + 65_535;

/// A gateway of an ordinary user with subordinate ids, and with a gate in each sandbox. None, and said, where it cannot be.
pub(crate) fn gateway_with_subordinate_ids(tree: Tree) -> Option<Arc<Gateway>> {
    if !is_root() {
        skip("only root can show a gateway subordinate ids");
        return None;
    }
    let programs = ["newuidmap", "newgidmap"];
    if !programs.iter().all(|name| std::path::Path::new("/usr/bin").join(name).exists()) {
        skip("newuidmap and newgidmap (package uidmap) are not there");
        return None;
    }
    Some(Gateway::start_with(Options {
        policy: Some(prefer_limits_and_have_a_gate),
        user: Some(ORDINARY),
        delegated: tree == Tree::Given,
        subordinate_ids: true,
        ..Options::default()
    }))
}

/// The subordinate user ids of a gateway's children, in order.
fn subordinate_ids_under(gateway: &Gateway) -> Vec<u32> {
    let field = |status: &str, field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok())
    };
    let of = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        (field(&status, "PPid")? == gateway.pid).then(|| field(&status, "Uid")).flatten()
    };
    let children = std::fs::read_dir("/proc").expect("/proc is there").flatten().filter_map(of);
    let mut ids: Vec<u32> = children.filter(|id| *id >= FIRST_SUBORDINATE).collect();
    ids.sort_unstable();
    ids
}

pub(crate) async fn ordinary_session(gateway: &Arc<Gateway>) -> Session {
    match is_root() {
        true => Session::open_as(gateway, ORDINARY).await,
        false => Session::open(gateway).await,
    }
}

/// What the attack says of each call, outside, against a process of the same user.
fn hindered_outside() -> String {
    let as_user = |command: &mut Command| {
        if is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
    };
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("ours");
    let program = Attack::compiled("states").placed_in(directory.path());
    let mut victim = Command::new("sleep");
    as_user(&mut victim);
    let victim = victim.arg("600").spawn().expect("a victim can be started");
    let mut attack = Command::new(program);
    as_user(&mut attack);
    let attack = attack.arg("hinder").arg(victim.id().to_string()).arg("outside").process_group(0);
    let mut attack = attack.stdout(Stdio::piped()).spawn().expect("the attack can be started outside");
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(attack.stdout.take().expect("a pipe"));
    while !said.contains("ready") {
        assert_ne!(std::io::BufRead::read_line(&mut lines, &mut said).expect("it speaks"), 0, "{said}");
    }
    for mut process in [victim, attack] {
        let _ = process.kill();
        let _ = process.wait();
    }
    for child in Process::all_marked("hinder") {
        if child.command_line().ends_with("outside") {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(child.pid as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
    }
    said
}

/// Every call by which a process hinders another one, against the supervisor.
async fn does_not_hinder(session: &Session) {
    let marker = session.marker();
    let command = session.attack("states").args(["hinder", "1", &marker]).grace(Duration::from_millis(100));
    let terminal = command
        .with(|request| request.time_limit = Some(crate::support::api_duration(Duration::from_secs(3))))
        .create()
        .await;
    let said = terminal.until("ready").await;
    for line in said.lines().filter(|line| line.contains('=')) {
        assert!(line.ends_with("=EPERM"), "{line}");
    }
    assert_eq!(said.lines().count(), 10, "{said}");
    let outcome = terminal.wait().await;
    assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::TimeLimit));
    assert!(Process::all_marked(&marker).is_empty(), "it outlives its time limit");
    terminal.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_cannot_hinder_a_supervisor_of_its_own_user() {
    let outside = hindered_outside();
    assert_eq!(outside.matches("=done").count(), 9, "outside it can be done: {outside}");
    for tree in [Tree::Given, Tree::None] {
        let gateway = ordinary_gateway(tree);
        let session = ordinary_session(&gateway).await;
        does_not_hinder(&session).await;
        session.close().await;
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn with_subordinate_ids_supervisor_and_gate_have_ids_that_no_command_has() {
    for tree in [Tree::Given, Tree::None] {
        let Some(gateway) = gateway_with_subordinate_ids(tree) else { return };
        let session = ordinary_session(&gateway).await;
        let running = session.sh("echo ready; id -u; touch made; ls -n made; exec sleep 600").create().await;
        let said = running.until("made").await;
        assert_eq!(
            said.matches(&ORDINARY.to_string()).count(),
            3,
            "commands and their files stay the user's: {said}"
        );
        assert_eq!(subordinate_ids_under(&gateway), [LAST_SUBORDINATE - 1, LAST_SUBORDINATE], "{tree:?}");
        running.release().await;
        does_not_hinder(&session).await;
        // The whole tree ends, also what has left its group, and the next command runs.
        let marker = session.marker();
        let script = format!(
            "(trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' {marker} &) ; echo ready; sleep 600"
        );
        let stubborn = session.sh(&script).grace(Duration::from_millis(100)).create().await;
        stubborn.until("ready").await;
        stubborn.kill(None).await;
        stubborn.wait().await;
        assert!(Process::all_marked(&marker).is_empty(), "it outlives its kill");
        stubborn.release().await;
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
        session.close().await;
        assert_eq!(subordinate_ids_under(&gateway), [0_u32; 0], "{tree:?}");
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_cannot_hinder_a_supervisor_of_another_user() {
    if !is_root() {
        return skip("only root's sandboxes have a user of their own for the supervisor");
    }
    in_session(&Gateway::shared(), does_not_hinder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tracer_cannot_ask_for_a_stop_before_an_end() {
    in_session(&Gateway::shared(), async |session| {
        let done = session.attack("states").args(["trace_exit"]).finish().await;
        let refused = "seize=EPERM\nseize_plainly=done\nset=EPERM\nset_plainly=done\nset_old=EPERM\n";
        assert_eq!(done.text(), refused);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ordinary_tools_change_the_priority_of_their_own_processes() {
    in_session(&Gateway::shared(), async |session| {
        let script = "set -e; sleep 600 & child=$!; trap 'kill $child' EXIT
            has() { command -v $1 > /dev/null; }
            nice -n 5 true
            if has renice; then renice -n 5 -p $child; fi
            if has ionice; then ionice -c 3 -p $child; ionice -c 2 -n 7 true; fi
            if has chrt; then chrt -i -p 0 $child; chrt -b 0 true; fi
            if has taskset; then taskset -p $child; taskset -cp $(taskset -cp $child | sed 's/.*: //') $child; fi
            if has prlimit; then prlimit --pid $child; prlimit --nofile=100 true; fi
            ulimit -n 64";
        let done = session.sh(script).finish().await;
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
    })
    .await;
}
