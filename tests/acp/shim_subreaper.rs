//! An agent that is in no sandbox, and whose processes flee: into sessions of their own, away from their parents, deaf to
//! TERM. First without us, where they get away; then behind the shim, however that ends.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use tempfile::TempDir;

use crate::{
    acp::shim_peer::TIMEOUT,
    support::{mark, sleepers, sleeping, wait_for_sleepers},
};

/// Three processes: one in a session of its own, one that also ignores signals and has lost its parent, and the agent.
const FLEEING: &str =
    r#"setsid sleep "$0" & (setsid sh -c 'trap "" TERM HUP INT; sleep "$0"; :' "$0" &); exec sleep "$0""#;
const PROCESSES: usize = 3;

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// The agent behind a shim, with all of its processes there.
fn shim(directory: &TempDir, mark: &str) -> Child {
    let shim = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["acp", "--", "/bin/sh", "-c", FLEEING, mark])
        .env_remove("PROVOST_GATEWAY")
        // Nobody's gateway but an embedded one.
        .env("XDG_RUNTIME_DIR", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the shim starts");
    wait_for_sleepers(mark, PROCESSES);
    shim
}

/// Waits for the shim's own end.
fn end_of(shim: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = shim.try_wait().expect("it is our child") {
            return status;
        }
        assert!(begun.elapsed() < TIMEOUT, "the shim does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a group cannot hold is what is shown")]
fn processes_that_flee_get_away_without_the_shim() {
    let mark = mark();
    let mut agent = Command::new("/bin/sh")
        .args(["-c", FLEEING, &mark])
        .process_group(0)
        .spawn()
        .expect("the agent starts");
    wait_for_sleepers(&mark, PROCESSES);
    killpg(pid_of(&agent), Signal::SIGKILL).expect("it is our group");
    agent.wait().expect("it is our child");
    assert_eq!(sleeping(&mark), PROCESSES - 1, "the attack works outside");
    for id in sleepers(&mark) {
        kill(Pid::from_raw(id), Signal::SIGKILL).expect("it is ours");
    }
}

#[test]
fn nothing_of_an_agent_outlives_the_shim_however_it_flees() {
    let mark = mark();
    // Nobody's but ours: it must stay.
    let neighbours = crate::support::mark();
    let mut neighbour = Command::new("sleep").arg(&neighbours).spawn().expect("sleep starts");
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(&directory, &mark);
    drop(shim.stdin.take());
    let status = end_of(&mut shim);
    assert_eq!(status.code(), Some(143), "the agent was ended by TERM");
    assert_eq!(sleeping(&mark), 0);
    assert_eq!(sleeping(&neighbours), 1);
    neighbour.kill().expect("it is our child");
    neighbour.wait().expect("it is our child");
}

#[test]
fn nothing_of_an_agent_outlives_the_agent() {
    let mark = mark();
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(&directory, &mark);
    let agent = sleepers(&mark).into_iter().find(|id| {
        // Alone it is in the group that it leads and in the session of the shim.
        let id = Some(Pid::from_raw(*id));
        nix::unistd::getpgid(id).ok() == id && nix::unistd::getsid(id) == nix::unistd::getsid(None)
    });
    kill(Pid::from_raw(agent.expect("the agent is there")), Signal::SIGKILL).expect("it is ours");
    assert_eq!(end_of(&mut shim).code(), Some(137));
    assert_eq!(sleeping(&mark), 0);
}

#[test]
fn nothing_of_an_agent_outlives_a_shim_that_is_killed() {
    let mark = mark();
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(&directory, &mark);
    shim.kill().expect("it is our child");
    shim.wait().expect("it is our child");
    wait_for_sleepers(&mark, 0);
}
