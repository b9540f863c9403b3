//! `provost run -d` and `--session` of an ordinary user where no gateway serves: one is started, and found again.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getpgid},
};

use crate::rootless::user::{User, shown, text};

/// The gateways that this user's binary serves as.
fn gateways(binary: &Path) -> Vec<Pid> {
    let serves = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary)
            && text(&line).contains("\0serve\0--idle-exit\0")
    };
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(serves).map(Pid::from_raw).collect()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_detached_run_starts_a_gateway_that_later_commands_find() {
    let Some(user) = User::find() else { return };
    let binary = user.provost();
    let provost =
        |arguments: &[&str]| user.outside(&[&[binary.to_str().expect("UTF-8")], arguments].concat());
    assert!(gateways(&binary).is_empty());
    let script = "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over; exit 3";
    let started = provost(&["run", "-d", "--", "sh", "-c", script]);
    assert!(started.status.success(), "{}", shown(&started));
    let id = text(&started.stdout).trim().to_owned();
    assert!(id.starts_with("term_") && text(&started.stdout).lines().count() == 1, "{}", shown(&started));
    let gateway = gateways(&binary);
    assert_eq!(gateway.len(), 1, "it is left running");
    assert_eq!(getpgid(Some(gateway[0])), Ok(gateway[0]), "no signal to this process's group reaches it");
    // It runs in the same gateway.
    let second = provost(&["run", "-d", "--", "true"]);
    assert!(second.status.success(), "{}", shown(&second));
    assert_eq!(gateways(&binary), gateway);
    let listed = provost(&["ps"]);
    assert!(text(&listed.stdout).contains(&id), "{}", shown(&listed));
    fs::write(user.work().join("go"), "").expect("the workspace can be written");
    let waited = provost(&["wait", &id]);
    assert_eq!(waited.status.code(), Some(3), "{}", shown(&waited));
    let logs = provost(&["logs", &id]);
    assert_eq!(text(&logs.stdout), "begun\nover\n", "{}", shown(&logs));
    let refused = provost(&["run", "-d", "--", "no-such-program"]);
    assert_eq!(refused.status.code(), Some(127), "{}", shown(&refused));
    assert!(refused.stdout.is_empty(), "{}", shown(&refused));

    kill(gateway[0], Signal::SIGINT).expect("it is ours");
    eventually("the end of the gateway", || gateways(&binary).is_empty());
}

#[test]
fn a_detached_run_says_when_no_gateway_can_be_started() {
    let Some(user) = User::find() else { return };
    let binary = user.provost();
    // The directory of its socket is not its own.
    let script = format!("XDG_RUNTIME_DIR=/proc/self/fdinfo {} run -d -- true", binary.display());
    let failed = user.outside(&["sh", "-c", &script]);
    assert_eq!(failed.status.code(), Some(125), "{}", shown(&failed));
    assert!(text(&failed.stderr).contains("provost serve"), "{}", shown(&failed));
    eventually("the end of the gateway", || gateways(&binary).is_empty());
}

#[test]
fn a_session_with_a_name_starts_a_gateway_that_the_next_command_finds() {
    let Some(user) = User::find() else { return };
    let binary = user.provost();
    let provost =
        |arguments: &[&str]| user.outside(&[&[binary.to_str().expect("UTF-8")], arguments].concat());
    assert!(gateways(&binary).is_empty());
    // Policies are a gateway's: none is started that would not have these.
    let policies = user.work().join("policies");
    fs::create_dir(&policies).expect("the workspace can be written");
    let own = ["run", "--policies", policies.to_str().expect("UTF-8"), "--session", "dev", "--", "true"];
    let refused = provost(&own);
    assert_eq!(refused.status.code(), Some(125), "{}", shown(&refused));
    assert!(text(&refused.stderr).contains("--policies"), "{}", shown(&refused));
    assert!(gateways(&binary).is_empty());

    let first = provost(&["run", "--session", "dev", "--", "sh", "-c", "echo kept > /tmp/file; exit 3"]);
    assert_eq!(first.status.code(), Some(3), "{}", shown(&first));
    let gateway = gateways(&binary);
    assert_eq!(gateway.len(), 1, "it is left running");
    let again = provost(&["run", "--session", "dev", "--", "cat", "/tmp/file"]);
    assert_eq!(text(&again.stdout), "kept\n", "{}", shown(&again));
    assert_eq!(gateways(&binary), gateway);
    let closed = provost(&["close", "dev"]);
    assert!(closed.status.success(), "{}", shown(&closed));
    let fresh = provost(&["run", "--session", "dev", "--", "ls", "/tmp"]);
    assert_eq!(text(&fresh.stdout), "", "{}", shown(&fresh));

    kill(gateway[0], Signal::SIGINT).expect("it is ours");
    eventually("the end of the gateway", || gateways(&binary).is_empty());
}
