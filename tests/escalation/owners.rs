//! The end of the process that wants a command, against the states that a task can be in: `provost run` and its embedded
//! gateway that are told to end or die, a caller's process that dies while its gateway goes on, a gateway that ends what
//! it runs.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    escalation::{
        hung::{STATES, supervisor_in},
        states::begin_state,
    },
    support::{Attack, Gateway, Options, Process, Session, eventually},
};

/// A workspace with the attack in it, and a policy with a short grace.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory can be made"));
        fs::create_dir(place.work()).expect("a directory can be made");
        fs::create_dir(place.policies()).expect("a directory can be made");
        let shipped = include_str!("../../policies/default.toml");
        let text = shipped
            .replace("requirement = \"require\"", "requirement = \"prefer\"")
            .replace("grace = \"5s\"", "grace = \"100ms\"");
        assert!(text.contains("grace = \"100ms\""), "the shipped policy has a grace");
        fs::write(place.policies().join("default.toml"), text).expect("a file can be written");
        Attack::compiled("states").placed_in(&place.work());
        place
    }

    fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    fn policies(&self) -> PathBuf {
        self.0.path().join("policies")
    }

    fn run(&self, options: &[&str], state: &[&str], marker: &str) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.current_dir(self.work()).env_remove("PROVOST_GATEWAY").arg("run").args(options);
        command.args(["--", "./states"]).args(state).arg(marker);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("provost starts");
        let mut run = Run(child);
        let mut said = String::new();
        let out = run.0.stdout.as_mut().expect("stdout is a pipe");
        BufReader::new(out).read_line(&mut said).expect("stdout can be read");
        assert!(said.ends_with("ready\n"), "{state:?}: {said:?}");
        run
    }

    fn embedded(&self, options: &[&str], state: &[&str], marker: &str) -> Run {
        let policies = self.policies();
        let own = ["--policies", policies.to_str().expect("a plain path")];
        self.run(&[&own, options].concat(), state, marker)
    }
}

/// `provost run`, killed when the test ends before it does.
struct Run(Child);

impl Run {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("it is ours");
    }

    async fn end(&mut self) -> ExitStatus {
        eventually("the end of provost run", || self.0.try_wait().expect("it is ours")).await
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn marker(way: &str, state: &[&str]) -> String {
    format!("owners-{}-{way}-{}", std::process::id(), state[0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_state_ends_when_provost_run_is_told_to_end() {
    let place = Place::new();
    for (signal, status) in [(Signal::SIGTERM, 137), (Signal::SIGINT, 137), (Signal::SIGHUP, 137)] {
        for state in STATES {
            let marker = marker(signal.as_str(), state);
            let mut run = place.embedded(&[], state, &marker);
            run.signal(signal);
            if signal == Signal::SIGINT {
                // It is the command's to treat, and these ignore it.
                run.signal(Signal::SIGTERM);
            }
            assert_eq!(run.end().await.code(), Some(status), "{state:?}, {signal}");
            let left = Process::all_marked(&marker);
            assert!(left.is_empty(), "{state:?}, {signal}: {left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_state_ends_when_provost_run_is_killed() {
    let place = Place::new();
    for state in STATES {
        let marker = marker("killed", state);
        let mut run = place.embedded(&[], state, &marker);
        run.signal(Signal::SIGKILL);
        run.end().await;
        eventually(&format!("the end of {state:?}"), || is_gone(&marker)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_state_ends_when_a_caller_is_killed_and_its_gateway_goes_on() {
    let gateway = Gateway::with_policy(short_grace);
    let socket = format!("unix:{}", gateway.socket.display());
    let place = Place::new();
    // What the gateway makes once, with the first sandbox, is its own.
    let first = Session::open(&gateway).await;
    first.command("true").finish().await;
    first.close().await;
    let before = gateway.footprint();
    for state in STATES {
        let marker = marker("owner", state);
        let mut run = place.run(&["--gateway", &socket], state, &marker);
        run.signal(Signal::SIGKILL);
        run.end().await;
        eventually(&format!("the end of {state:?}"), || is_gone(&marker)).await;
        gateway.comes_back_to(&before).await;
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_state_ends_with_a_gateway_that_stops_what_it_runs() {
    let config = Some("on_stop = \"stop\"\ndrain = \"1s\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, policy: Some(short_grace), ..Options::default() });
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    for state in STATES {
        begin_state(&session, state, &marker).await;
    }
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    let left = Process::all_marked(&marker);
    assert!(left.is_empty(), "{left:?}");
    gateway.must_have_left_nothing();
}

/// A supervisor that does nothing leaves the end to the gateway: what the command was ended for is told all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn provost_run_tells_what_it_was_ended_for_although_its_supervisor_is_stopped() {
    let limited = async |option: &str, cause: &str| {
        let place = Place::new();
        let marker = marker(cause, &["leaders"]);
        // Far enough for the stop to come first.
        let mut run = place.embedded(&[option, "6s"], &["leaders"], &marker);
        kill(supervisor_in(&marker), Signal::SIGSTOP).expect("it is ours");
        assert_eq!(run.end().await.code(), Some(124), "{cause}");
        assert_eq!(is_gone(&marker), Some(()), "{cause}");
    };
    let interrupted = async {
        let place = Place::new();
        let marker = marker("interrupted", &["leaders"]);
        let mut run = place.embedded(&[], &["leaders"], &marker);
        kill(supervisor_in(&marker), Signal::SIGSTOP).expect("it is ours");
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().await.code(), Some(137));
        assert_eq!(is_gone(&marker), Some(()));
    };
    tokio::join!(limited("--timeout", "time_limit"), interrupted);
}

fn short_grace(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["times"]["grace"] = "100ms".into();
}

fn is_gone(marker: &str) -> Option<()> {
    Process::all_marked(marker).is_empty().then_some(())
}
