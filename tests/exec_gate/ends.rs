//! A gate that is stopped, killed, or without a gateway: execs end, kills and limits do not.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use provost::proto::{
    gate::{Answer, answer::Verdict, ask_ended::End, exec_denied::Cause, report, to_gate},
    supervisor::{Spawn, Stage, StopCause},
};
use provost_base::sys::namespace;
use provost_sandbox::supervisor::runtime::PONG_TIMEOUT;

use crate::exec_gate::{
    execs::RULES,
    sandbox::{Gateway, Sandbox, can_launch, eventually},
};

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

#[test]
fn a_gate_that_is_stopped_is_ended_within_its_bound_and_kills_work_all_the_time() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let gateway = sandbox.gateway(RULES);
    let held = sandbox.start("while :; do /bin/true; done");
    let gate = sandbox.gate().pid;
    eventually("the first exec", || is_alive(gate));
    kill(Pid::from_raw(gate.cast_signed()), Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    eventually("the end of the gate", || !is_alive(gate));
    assert!(began.elapsed() < PONG_TIMEOUT + Duration::from_secs(10), "{:?}", began.elapsed());
    sandbox.client.stop("term_0", 0);
    let (exit, _) = sandbox.end(&held);
    assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
    drop(gateway);
}

#[test]
fn a_command_is_killed_while_its_gate_is_stopped() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let gateway = sandbox.gateway(RULES);
    let held = sandbox.start("while :; do /bin/true; done");
    kill(Pid::from_raw(sandbox.gate().pid.cast_signed()), Signal::SIGSTOP).unwrap();
    sandbox.client.stop("term_0", 0);
    let (exit, _) = sandbox.end(&held);
    assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
    drop(gateway);
}

#[test]
fn without_its_gate_a_sandbox_executes_nothing_and_is_still_killed() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let gateway = sandbox.gateway(RULES);
    let held = sandbox.start("while [ ! -e go ]; do :; done; /bin/echo ran; echo $?; while :; do :; done");
    namespace::kill_pidfd(sandbox.gate().process.as_fd()).unwrap();
    let gate = sandbox.gate().pid;
    eventually("the end of the gate", || !is_alive(gate));
    std::fs::write(sandbox.work.path().join("go"), "").unwrap();
    // What the shell says about it is a line, too.
    eventually("the failed exec", || held.output(0).ends_with(b"126\n"));
    let output = String::from_utf8_lossy(&held.output(0)).into_owned();
    assert!(!output.contains("ran\n"), "{output}");
    let another = Spawn { terminal_id: "term_1".into(), ..sandbox.spawn_of(&["/bin/true"]) };
    let refused = sandbox.client.spawn(another).err().expect("nothing new is spawned");
    assert_eq!(refused.stage(), Stage::Gate);
    sandbox.client.stop("term_0", 0);
    let (exit, _) = sandbox.end(&held);
    assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
    drop(gateway);
}

#[test]
fn without_a_gateway_the_policy_holds_and_reports_are_kept_for_the_next_one() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    drop(sandbox.gateway(RULES));
    let held = sandbox.start("/bin/cat x; /bin/cat y; /bin/echo ran");
    let (_, output) = sandbox.end(&held);
    assert!(output.ends_with("ran\n"), "{output}");
    let mut gateway = Gateway::connect(sandbox.gate());
    assert_eq!((gateway.hello.policy_generation, gateway.hello.last_report), (1, 2));
    assert_eq!(gateway.hello.terminal_ids, ["term_0"]);
    let numbers = [gateway.report().number, gateway.report().number];
    assert_eq!(numbers, [1, 2]);
    assert_eq!(gateway.denials(), [(Cause::Rule, "cat".into()), (Cause::Rule, "cat".into())]);
    gateway.recorded(1);
    let again = Gateway::connect(sandbox.gate());
    assert_eq!((again.hello.last_report, again.hello.last_recorded), (2, 1));
}

const ASKING: &str = "
[[rule]]
id = 'ask-echo'
decision = 'ask'
argv = ['echo', '**']
reason = 'echoes are asked about'
";

#[test]
fn an_exec_that_a_person_approves_runs_and_one_that_is_refused_does_not() {
    if !can_launch() {
        return;
    }
    for (verdict, output, end) in [
        (Verdict::Approved, "ran\n0\n", End::Ran),
        (Verdict::Refused, "126\n", End::Denied),
        (Verdict::Expired, "126\n", End::Denied),
    ] {
        let mut sandbox = Sandbox::launch();
        let mut gateway = sandbox.gateway(ASKING);
        // Longer than the idle limit, which stands still.
        let spawn = Spawn {
            idle_limit_ms: 500,
            ..sandbox.spawn_of(&["/bin/sh", "-c", "/bin/echo ran 2>/dev/null; echo $?"])
        };
        let held = sandbox.client.spawn(spawn).unwrap();
        let report = gateway.recorded_report();
        let Some(report::Report::Asked(asked)) = &report.report else { panic!("{report:?}") };
        assert_eq!((asked.rule.as_str(), asked.reason.as_str()), ("ask-echo", "echoes are asked about"));
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!sandbox.client.exits.contains_key("term_0"));
        gateway.send(to_gate::Message::Answer(Answer { number: report.number, verdict: verdict.into() }));
        let ended = loop {
            let report = gateway.recorded_report();
            if let Some(report::Report::AskEnded(ended)) = report.report {
                break ended;
            }
        };
        assert_eq!((ended.number, ended.end()), (report.number, end));
        let (exit, printed) = sandbox.end(&held);
        assert!(printed.ends_with(output), "{verdict:?}: {printed}");
        assert_eq!(exit.stopped(), StopCause::Unspecified);
    }
}

#[test]
fn an_exec_that_is_asked_about_dies_with_its_terminal() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let mut gateway = sandbox.gateway(ASKING);
    let held = sandbox.start("/bin/echo ran");
    let asked = gateway.recorded_report().number;
    sandbox.client.stop("term_0", 0);
    let (exit, _) = sandbox.end(&held);
    assert_eq!(exit.survivors, 0);
    let report = gateway.recorded_report();
    let Some(report::Report::AskEnded(ended)) = report.report else { panic!("{report:?}") };
    assert_eq!((ended.number, ended.end()), (asked, End::Gone));
}

#[test]
fn a_command_is_killed_while_its_denial_waits_for_the_journal() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let mut gateway = sandbox.gateway(RULES);
    let held = sandbox.start("/bin/cat x");
    let _ = gateway.report();
    sandbox.client.stop("term_0", 0);
    let (exit, _) = sandbox.end(&held);
    assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
}
