//! `provost serve`, and how the other commands find a gateway.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;

use super::fixture::{Place, Running, code, eventually, shown, stderr, stdout};

/// A gateway of a test's own.
pub(crate) struct Gateway {
    pub(crate) socket: PathBuf,
    running: Running,
}

impl Gateway {
    pub(crate) fn start(place: &Place) -> Self {
        let socket = place.path().join("gateway.sock");
        let mut serve = Self::command(place);
        serve.arg("--listen").arg(format!("unix:{}", socket.display()));
        let running = Running::start(&mut serve);
        eventually("the gateway listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        Self { socket, running }
    }

    fn command(place: &Place) -> Command {
        let mut serve = place.provost();
        let log = fs::File::create(place.path().join("log")).expect("a file can be made");
        serve.arg("serve").arg("--state").arg(place.path().join("state"));
        serve.arg("--policies").arg(place.policies()).stderr(Stdio::from(log));
        serve
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        self.running.signal(Signal::SIGINT);
        assert_eq!(self.running.end().code(), Some(0));
    }
}

#[test]
fn a_gateway_serves_until_it_is_told_to_stop() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let socket = gateway.socket.clone();
    let mode = || fs::symlink_metadata(&socket).unwrap().permissions().mode();
    // It is bound first.
    eventually("others may not connect", || mode() & 0o007 == 0);
    gateway.stop();
    assert!(!socket.exists(), "the socket goes with it");
}

#[test]
fn the_directory_of_policies_that_is_shipped_is_one() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["policy", "check", shipped])
        .output()
        .expect("provost starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn run_uses_the_gateway_that_is_named() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let named =
        place.provost().args(["run", "--gateway", &gateway.address(), "--", "echo", "by option"]).output();
    let named = named.expect("provost starts");
    assert_eq!(stdout(&named), "by option\n", "{}", shown(&named));
    let mut run = place.provost();
    let named =
        run.env("PROVOST_GATEWAY", gateway.address()).args(["run", "--", "echo", "by variable"]).output();
    let named = named.expect("provost starts");
    assert_eq!(stdout(&named), "by variable\n", "{}", shown(&named));
    gateway.stop();
}

#[test]
fn what_needs_a_gateway_says_so_when_there_is_none() {
    let place = Place::new();
    let nobody = format!("unix:{}", place.path().join("nobody.sock").display());
    for command in [
        &["ps"][..],
        &["logs", "term_x"],
        &["stop", "term_x"],
        &["kill", "term_x"],
        &["wait", "term_x"],
        &["rm", "term_x"],
        &["prune"],
    ] {
        let output =
            place.provost().args(command).args(["--gateway", &nobody]).output().expect("provost starts");
        assert_eq!(code(&output), 125, "{command:?}: {}", shown(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", shown(&output));
    }
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_its_place() {
    let place = Place::new();
    let file = place.path().join("provost.toml");
    fs::write(&file, "socket_mode = \"0600\"\nno_such_key = 1\n").unwrap();
    let output = place.provost().arg("serve").arg("--config").arg(&file).output().expect("provost starts");
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert!(stderr(&output).contains("provost.toml:2:"), "{}", shown(&output));
}

#[test]
fn a_cgroup_that_is_none_is_refused_by_its_name() {
    let place = Place::new();
    let (listen, state) = (place.path().join("provost.sock"), place.path().join("state"));
    for (group, said) in [
        ("/no/such/group", "there is no cgroup /no/such/group"),
        ("relative", "is not absolute"),
        ("/system.slice/../../..", "has \"..\""),
    ] {
        let mut serve = place.provost();
        serve.arg("serve").args(["--cgroup", group]).arg("--state").arg(&state);
        let output =
            serve.arg("--listen").arg(format!("unix:{}", listen.display())).output().expect("it starts");
        assert_eq!(code(&output), 125, "{}", shown(&output));
        assert!(stderr(&output).contains(said), "{}", shown(&output));
    }
}

#[test]
fn a_descriptor_passed_by_a_service_manager_must_be_the_one_socket() {
    let place = Place::new();
    fs::write(place.work().join("file"), "").unwrap();
    let state = place.path().join("state");
    for (count, said) in [("1", "passed 1 descriptors"), ("2", "passed 2 descriptors")] {
        let mut serve = place.provost();
        let program = serve.get_program().to_owned();
        serve = std::process::Command::new("sh");
        serve.current_dir(place.work()).env("LISTEN_FDS", count);
        serve.args(["-c", "LISTEN_PID=$$ exec \"$@\" 3<file 4<file", "sh"]).arg(program);
        let output = serve.args(["serve", "--state"]).arg(&state).output().expect("sh starts");
        assert_eq!(code(&output), 125, "{}", shown(&output));
        assert!(stderr(&output).contains(said), "{}", shown(&output));
    }
}

#[test]
fn every_command_has_a_help_with_an_example() {
    let place = Place::new();
    for command in ["serve", "run", "ps", "logs", "stop", "kill", "wait", "rm", "prune"] {
        let output = place.provost().args([command, "--help"]).output().expect("provost starts");
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("Example"), "{command}: {}", stdout(&output));
    }
}
