//! Sandboxes that end while no gateway is there to see it: their terminals end as lost, once, and are nobody else's.

use std::{fs, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tonic::Code;

use crate::{
    restart::{
        alone::{Place, each_its_own},
        lines::{Until, must_be_whole, printing, starts, stop},
    },
    support::{
        Follow, Gateway, Process, Refusal, Session, Terminal,
        api::{self, ExitCause, OutputStream, TerminalState},
        code, eventually, within,
    },
};

/// Kills every sandbox of a gateway that is gone, and waits until nothing of them runs.
pub(crate) async fn kill_sandboxes(gateway: &Gateway) {
    eventually("nothing runs", || {
        kill_firsts(gateway);
        let alive = |pid: &u32| Process::read(*pid).is_some_and(|process| !process.is_zombie());
        (!gateway.group.processes().iter().any(alive)).then_some(())
    })
    .await;
}

/// Whether a process is the first one of a pid namespace.
fn is_first(pid: u32) -> bool {
    let ids = Process::read(pid).map(|process| process.field("NSpid").to_owned()).unwrap_or_default();
    ids.split_whitespace().count() > 1 && ids.split_whitespace().last() == Some("1")
}

/// How often the journal says that a terminal has ended, and how.
fn ends(gateway: &Gateway, id: &str) -> Vec<String> {
    let text = format!(r#""kind":"exit","terminal":"{id}""#);
    let mut found = Vec::new();
    for entry in fs::read_dir(gateway.state.join("journal")).expect("there is a journal") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let lines = fs::read_to_string(path).expect("it is text");
            found.extend(lines.lines().filter(|line| line.contains(&text)).map(str::to_owned));
        }
    }
    found
}

/// What holds of a terminal whose sandbox was killed while no gateway was there.
async fn must_be_lost(terminal: &Terminal) -> api::Outcome {
    let outcome = terminal.wait().await;
    assert_eq!((outcome.cause(), outcome.end.clone()), (ExitCause::SandboxLost, None), "no code is made up");
    let info = terminal.get().await.expect("it is known");
    assert_eq!((info.state(), info.outcome.as_ref()), (TerminalState::Finished, Some(&outcome)));
    assert!(info.output_lost);
    let output = terminal.output().await;
    assert!(output.output_lost && output.truncated && output.data.is_empty());
    let mut stream = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
    let event =
        within("the end", stream.message()).await.expect("it ends well").and_then(|event| event.event);
    match event {
        Some(api::stream_output_response::Event::End(end)) => assert!(end.output_lost),
        other => panic!("{other:?}"),
    }
    outcome
}

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn a_hundred_commands_that_are_lost_without_a_gateway_are_told_as_lost_once_and_never_run_again() {
    commands_that_are_lost_are_told_as_lost_once_and_never_run_again(100).await;
}

async fn commands_that_are_lost_are_told_as_lost_once_and_never_run_again(count: usize) {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let named = |session: &Session, number: usize| {
        let name = format!("lost-{number}");
        printing(session, &name, Until::Stopped, 0).request_id(&name)
    };
    let mut terminals = Vec::new();
    for number in 0..count {
        terminals.push(named(&session, number).create().await);
    }
    for terminal in &terminals {
        terminal.until(" 0\n").await;
    }
    let ended = session.sh("echo said; exit 3").request_id("ended").create().await;
    let told = ended.wait().await;
    let released = session.command("true").request_id("released").create().await;
    released.release().await;
    gateway.crash();
    kill_sandboxes(&gateway).await;

    let mut before: Option<Vec<api::Outcome>> = None;
    for _ in 0..3 {
        gateway.start_again();
        session.go_on(&gateway.caller().await);
        let mut outcomes = Vec::new();
        for (number, terminal) in terminals.iter().enumerate() {
            outcomes.push(must_be_lost(&terminal.over(&session.caller)).await);
            let again = named(&session, number).create().await;
            assert_eq!(again.id, terminal.id, "the same request has the same terminal");
        }
        assert_eq!(*before.get_or_insert(outcomes.clone()), outcomes, "an outcome does not change");
        assert_eq!(ended.over(&session.caller).wait().await, told, "what was told stays");
        let again = session.sh("echo said; exit 3").request_id("ended").create().await;
        assert_eq!(again.id, ended.id);
        let refusal = released.over(&session.caller).get().await.unwrap_err();
        assert_eq!(refusal.code, Code::NotFound, "what was released does not come back");
        let listed = api::ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
        let listed =
            within("the list", session.caller.terminals.clone().list_terminals(listed)).await.unwrap();
        assert_eq!(listed.into_inner().terminals.len(), count + 1);
        gateway.crash();
    }
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    for (number, terminal) in terminals.iter().enumerate() {
        let terminal = terminal.over(&session.caller);
        terminal.release().await;
        let gone: Refusal = terminal.get().await.expect_err("it is gone");
        assert_eq!(gone.code, Code::NotFound);
        assert_eq!(starts(&session.workspace, &format!("lost-{number}")), 1, "it was run once");
        assert_eq!(ends(&gateway, &terminal.id).len(), 1, "its end is in the journal once");
    }
    assert_eq!(ends(&gateway, &ended.id).len(), 1);
    // The request's id is free again, and the session goes on.
    let fresh = named(&session, 0).create().await;
    assert_ne!(fresh.id, terminals[0].id);
    stop(&session.workspace);
    assert_eq!(code(&fresh.wait().await), 0);
    must_be_whole(&fresh, "lost-0").await;
    session.close().await;
    assert_eq!(fs::read_dir(gateway.state.join("terminals")).map_or(0, Iterator::count), 0);
    gateway.stop();
}

#[tokio::test]
async fn terminals_of_a_sandbox_that_was_lost_are_known_to_every_gateway_after() {
    for place in Place::all() {
        let gateway = place.gateway.clone();
        let mut session = place.session().await;
        let lost = printing(&session, "seen", Until::Stopped, 0).request_id("seen").create().await;
        lost.until("seen 0").await;
        kill_firsts(&gateway);
        let told = lost.wait().await;
        assert_eq!(told.cause(), ExitCause::SandboxLost);
        for _ in 0..2 {
            gateway.crash();
            gateway.start_again();
            session.go_on(&place.caller().await);
            let lost = lost.over(&session.caller);
            assert_eq!(must_be_lost(&lost).await, told, "as it was told");
            let again = printing(&session, "seen", Until::Stopped, 0).request_id("seen").create().await;
            assert_eq!(again.id, lost.id);
        }
        assert_eq!(starts(&session.workspace, "seen"), 1);
        assert_eq!(ends(&gateway, &lost.id).len(), 1);
        session.close().await;
        gateway.stop();
    }
}

/// Kills the sandboxes that are there now.
fn kill_firsts(gateway: &Gateway) {
    for pid in gateway.group.processes().into_iter().filter(|pid| is_first(*pid)) {
        // It may have ended meanwhile.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

#[tokio::test]
async fn a_lost_command_in_a_sandbox_of_its_own_is_told_as_lost_and_the_others_go_on() {
    let gateway = Gateway::with_policy(each_its_own);
    let mut session = Session::open(&gateway).await;
    let (lost, kept) = (session.marker(), session.marker());
    let lost_one = session.idle(&lost).request_id("lost").create().await;
    let kept_one = session.idle(&kept).request_id("kept").create().await;
    lost_one.until("ready").await;
    kept_one.until("ready").await;
    gateway.crash();
    let first = Process::all_marked(&lost).pop().expect("it runs");
    let first: i32 = first.field("PPid").parse().expect("a number");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("it is ours");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    must_be_lost(&lost_one.over(&session.caller)).await;
    assert!(Process::all_marked(&lost).is_empty());
    let again = session.idle(&kept).request_id("kept").create().await;
    assert_eq!((again.id.as_str(), Process::all_marked(&kept).len()), (&*kept_one.id, 1));
    assert_eq!(kept_one.over(&session.caller).get().await.unwrap().state(), TerminalState::Running);
    assert_eq!(ends(&gateway, &lost_one.id).len(), 1);
    assert_eq!(ends(&gateway, &kept_one.id).len(), 0);
    session.close().await;
    gateway.stop();
}

#[tokio::test]
async fn a_run_that_is_lost_without_a_gateway_leaves_its_end_in_the_journal_and_nothing_else() {
    for place in Place::all() {
        let gateway = place.gateway.clone();
        let mut session = place.session().await;
        let marker = session.marker();
        let mut run = session.idle(&marker).run().await.expect("it runs");
        let first =
            within("its beginning", run.message()).await.expect("it answers").expect("it says something");
        let Some(api::run_response::Event::Started(started)) = first.event else { panic!("{first:?}") };
        eventually("the command runs", || Process::all_marked(&marker).pop()).await;
        gateway.crash();
        drop(run);
        kill_sandboxes(&gateway).await;
        gateway.start_again();
        session.go_on(&place.caller().await);
        let listed = api::ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
        let mut caller = session.caller.terminals.clone();
        within("nothing is listed", async {
            while !caller
                .list_terminals(listed.clone())
                .await
                .expect("it answers")
                .into_inner()
                .terminals
                .is_empty()
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        session.close().await;
        gateway.stop();
        let ends = ends(&gateway, &started.id);
        assert!(matches!(&ends[..], [end] if end.contains("\"sandbox_lost\"")), "{ends:?}");
    }
}

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn a_damaged_roll_is_put_aside_and_said_and_nothing_else_is_lost() {
    for damage in 0..4 {
        let gateway = Gateway::start();
        let mut session = Session::open(&gateway).await;
        let first = session.sh("exit 3").request_id("first").create().await;
        let told = first.wait().await;
        let runs = printing(&session, "runs", Until::Stopped, 5).request_id("runs").create().await;
        runs.until("runs 0").await;
        gateway.crash();
        let file = gateway.state.join("terminals").join(&session.id);
        let mut bytes = fs::read(&file).expect("there is a roll");
        match damage {
            0 => bytes[20] ^= 1,
            1 => bytes[8] = 99,
            2 => bytes = b"something else".to_vec(),
            // What a gateway that was killed while it wrote leaves: nothing is wrong with that.
            _ => bytes.extend([200, 0, 0, 0, 55]),
        }
        fs::write(&file, bytes).expect("it is ours");
        for _ in 0..2 {
            gateway.start_again();
            session.go_on(&gateway.caller().await);
            let (runs, first) = (runs.over(&session.caller), first.over(&session.caller));
            assert_eq!(runs.get().await.expect("its supervisor knows it").state(), TerminalState::Running);
            assert_eq!(first.wait().await, told);
            let said = gateway.provost(&["doctor"]);
            assert_eq!(said.contains(&format!("{}.damaged", session.id)), damage < 3, "{damage}: {said}");
            gateway.crash();
        }
        // Written again from what the supervisor said, it is as good as the first one.
        kill_sandboxes(&gateway).await;
        gateway.start_again();
        session.go_on(&gateway.caller().await);
        must_be_lost(&runs.over(&session.caller)).await;
        if damage < 3 {
            let said = gateway.provost(&["reap", "--all"]);
            assert!(said.contains("is gone"), "{said}");
            assert!(!gateway.provost(&["doctor"]).contains(".damaged"));
        }
        session.close().await;
        assert_eq!(fs::read_dir(gateway.state.join("terminals")).map_or(0, Iterator::count), 0);
        gateway.stop();
    }
}

#[tokio::test]
async fn a_request_whose_terminal_may_be_running_out_of_reach_is_not_run_again() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let first = printing(&session, "once", Until::Stopped, 0).request_id("once").create().await;
    first.until("once 0").await;
    gateway.crash();
    let sandboxes = fs::read_dir(gateway.state.join("sandboxes")).expect("there are sandboxes");
    let record = sandboxes.last().expect("there is one").expect("it can be read").path().join("record");
    let whole = fs::read(&record).expect("it can be read");
    fs::write(&record, "damaged").expect("it is ours");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let refusal = printing(&session, "once", Until::Stopped, 0).request_id("once").refusal().await;
    assert_eq!((refusal.code, refusal.reason.as_str()), (Code::FailedPrecondition, "TERMINAL_QUARANTINED"));
    assert_eq!(code(&session.command("true").finish().await.outcome), 0, "others are");
    // Once the record is repaired, the terminal is adopted.
    gateway.crash();
    fs::write(&record, whole).expect("it is ours");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let again = printing(&session, "once", Until::Stopped, 0).request_id("once").create().await;
    assert_eq!((again.id.as_str(), again.info.state()), (&*first.id, TerminalState::Running));
    // Reaped, it is lost, as the gateway sees when it looks again.
    gateway.crash();
    fs::write(&record, "damaged").expect("it is ours");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let first = first.over(&session.caller);
    assert_eq!(first.get().await.unwrap_err().code, Code::NotFound);
    assert!(gateway.provost(&["reap", "--all"]).contains("is gone"));
    gateway.signal(Signal::SIGHUP);
    within("its end", async {
        while first.get().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    must_be_lost(&first).await;
    let again = printing(&session, "once", Until::Stopped, 0).request_id("once").create().await;
    assert_eq!(again.id, first.id);
    assert_eq!(starts(&session.workspace, "once"), 1);
    session.close().await;
    gateway.stop();
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test]
    async fn twenty_commands_that_are_lost_without_a_gateway_are_told_as_lost_once_and_never_run_again() {
        commands_that_are_lost_are_told_as_lost_once_and_never_run_again(20).await;
    }
}
