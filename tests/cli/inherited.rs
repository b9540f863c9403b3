//! What `provost` was started with, and its commands are not: ignored and blocked signals.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::lacks;

use super::fixture::{Place, code, shown, stdout};

/// Ignores all that can be ignored, blocks all that can be blocked, and becomes what the arguments name.
const DEAF: &str = "import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.argv[1], sys.argv[1:])";

/// Says what it ignores and blocks, and waits for the signal that nohup(1) takes away.
const HEARS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status; kill -HUP $$; echo deaf";

#[test]
fn a_command_ignores_and_blocks_no_signal_whatever_its_gateway_was_started_with() {
    if lacks(&["python3"]) {
        return;
    }
    let outside = Command::new("python3")
        .args(["-c", DEAF, "/bin/sh", "-c", HEARS])
        .output()
        .expect("python3 starts a shell");
    assert!(stdout(&outside).ends_with("deaf\n"), "outside it is deaf: {}", shown(&outside));

    let place = Place::new();
    let policies = place.policies();
    let output = Command::new("python3")
        .args(["-c", DEAF, env!("CARGO_BIN_EXE_provost"), "run", "--policies"])
        .arg(policies)
        .args(["--", "sh", "-c", HEARS])
        .current_dir(place.work())
        .env_remove("PROVOST_GATEWAY")
        .output()
        .expect("python3 starts provost");
    assert_eq!(
        stdout(&output),
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n",
        "{}",
        shown(&output)
    );
    assert_eq!(code(&output), 128 + 1, "{}", shown(&output));
}

#[test]
fn what_nohup_and_a_scripts_background_take_away_does_not_end_a_run() {
    let place = Place::new();
    let mut run = Command::new("sh")
        .args(["-c", "trap '' HUP INT; exec \"$0\" run -- sh -c 'echo ready; read go; echo survived'"])
        .arg(env!("CARGO_BIN_EXE_provost"))
        .current_dir(place.work())
        .env_remove("PROVOST_GATEWAY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut output = BufReader::new(run.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says that it is ready");
    for signal in [Signal::SIGHUP, Signal::SIGINT] {
        kill(Pid::from_raw(run.id().cast_signed()), signal).expect("it is ours");
    }
    run.stdin.take().expect("it is piped").write_all(b"\n").expect("it reads");
    output.read_to_string(&mut line).expect("it writes");
    assert_eq!((line.as_str(), run.wait().expect("it is ours").code()), ("ready\nsurvived\n", Some(0)));
}

#[test]
fn a_gateway_ends_when_it_is_told_to_whatever_was_blocked() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let socket = place.path().join("deaf.sock");
    let mut gateway = Command::new("python3")
        .args(["-c", DEAF, env!("CARGO_BIN_EXE_provost"), "serve", "--listen"])
        .arg(format!("unix:{}", socket.display()))
        .arg("--state")
        .arg(place.path().join("state"))
        .arg("--policies")
        .arg(place.policies())
        .spawn()
        .expect("python3 starts provost");
    super::fixture::eventually("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    kill(Pid::from_raw(gateway.id().cast_signed()), Signal::SIGTERM).expect("it is ours");
    let deadline = std::time::Instant::now() + super::fixture::DEADLINE;
    let ended = loop {
        if let Some(status) = gateway.try_wait().expect("it is ours") {
            break status;
        }
        if std::time::Instant::now() > deadline {
            gateway.kill().expect("it is ours");
            panic!("it does not hear");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_limit_of_file_sizes_or_of_open_files_is_a_failure_that_is_told() {
    let place = Place::new();
    let run = |limit: &str, value: u32| {
        let line = format!("ulimit -{limit} {value}; exec \"$0\" run -- echo ran");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_provost")]).current_dir(place.work());
        shell.env_remove("PROVOST_GATEWAY").output().expect("sh starts")
    };
    // A write beyond it ends a process that does not say otherwise: by SIGXFSZ, which is no status.
    let output = run("f", 0);
    let has_run = stdout(&output) == "ran\n" && code(&output) == 0;
    assert!(has_run || code(&output) == 125 && shown(&output).contains("provost: "), "{}", shown(&output));
    let output = run("n", 8);
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert!(
        shown(&output).contains("ulimit -n") && !shown(&output).contains("ulimit -u"),
        "{}",
        shown(&output)
    );
}
