//! Kill after kill: terminals, output, ends, limits and idle clocks are as if nothing had happened.

use nix::sys::signal::Signal;

use crate::{
    restart::lines::{Until, must_be_whole, printing, starts, stop},
    support::{
        Collected, Follow, Gateway, Options, Process, Refusal, Session,
        api::{
            ExitCause, OutputStream, Overflow, StreamOutputResponse, TerminalState, stream_output_response,
        },
        code, eventually, in_session, within,
    },
};

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn a_hundred_commands_survive_twenty_kills_of_the_gateway() {
    survive(10, 10, 20).await;
}

async fn survive(session_count: usize, terminals_of_each: usize, kills: usize) {
    let gateway = Gateway::start();
    // What a first command leaves behind for the next ones is no leak.
    in_session(&gateway, async |session| drop(session.command("true").finish().await)).await;
    let before = gateway.footprint();
    let mut sessions = Vec::new();
    let mut terminals = Vec::new();
    for number in 0..session_count {
        let session = Session::open(&gateway).await;
        for place in 0..terminals_of_each {
            let name = format!("{number}-{place}");
            // Some end early, some in the middle, most after the last kill; in between there is no gateway often.
            let until = match place {
                0..3 => Until::Lines((number * 12 + place * 35 + 5) as u32),
                _ => Until::Stopped,
            };
            let expected = (number * terminals_of_each + place) as u32 % 200;
            let terminal = printing(&session, &name, until, expected).retain(1 << 20).create().await;
            terminals.push((terminal, name, expected));
        }
        sessions.push(session);
    }
    for kill in 0..kills {
        gateway.crash();
        gateway.start_again();
        let caller = gateway.caller().await;
        terminals.iter_mut().for_each(|(terminal, ..)| *terminal = terminal.over(&caller));
        let (terminal, name, _) = &terminals[kill * 7 % terminals.len()];
        let seen =
            terminal.get().await.unwrap_or_else(|refusal| panic!("{name} after kill {kill}: {refusal:?}"));
        assert_eq!((seen.id.as_str(), seen.session_id.as_str()), (&*terminal.id, &*terminal.session_id));
        assert_eq!(seen.args[0], *name);
        // Until something was written that only this gateway has seen.
        let last = &terminals[terminals.len() - 1].0;
        let from = last.get().await.expect("it runs").output[0].next_offset;
        let mut stream = last.stream(OutputStream::Unspecified, from, Follow::Yes).await;
        within("more lines", stream.message()).await.expect("the stream goes on");
    }
    let caller = gateway.caller().await;
    for session in &mut sessions {
        session.go_on(&caller);
        stop(&session.workspace);
    }
    for (terminal, name, expected) in &terminals {
        let (first, second) = (terminal.wait().await, terminal.wait().await);
        assert_eq!(first, second, "one outcome for all who wait");
        assert_eq!((code(&first), first.cause()), (*expected, ExitCause::Exited), "{name}");
        must_be_whole(terminal, name).await;
    }
    for session in &sessions {
        for (terminal, name, _) in terminals.iter().filter(|(terminal, ..)| terminal.session_id == session.id)
        {
            assert_eq!(starts(&session.workspace, name), 1, "{name} was started once: {}", terminal.id);
        }
    }
    for (terminal, ..) in &terminals {
        terminal.release().await;
        let gone: Refusal = terminal.get().await.expect_err("a released terminal is gone");
        assert_eq!(gone.reason, "TERMINAL_NOT_FOUND");
    }
    for session in &sessions {
        session.close().await;
    }
    // With their connections.
    drop((sessions, terminals, caller));
    gateway.comes_back_to(&before).await;
    gateway.crash();
    gateway.start_again();
    assert_eq!(gateway.footprint().state_entries, before.state_entries, "nothing of them comes back");
    gateway.stop();
}

#[tokio::test]
async fn a_session_goes_on_although_its_supervisor_died_while_no_gateway_was_there() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    let command = Process::all_marked(&marker).pop().expect("it runs");
    let supervisor = command.field("PPid").parse().expect("a number");
    gateway.crash();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), nix::sys::signal::SIGKILL)
        .expect("it is ours");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    assert!(Process::all_marked(&marker).is_empty(), "its commands went with it");
    assert!(gateway.log_tail().contains("has ended while no gateway was there"));
    let sandboxes = std::fs::read_dir(gateway.state.join("sandboxes")).map_or(0, |entries| entries.count());
    assert_eq!(sandboxes, 0, "nothing of it is left");
    assert_eq!(code(&session.command("true").finish().await.outcome), 0, "a new sandbox is made");
    session.close().await;
    gateway.stop();
}

fn limited(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

#[tokio::test]
async fn limits_hold_while_no_gateway_is_there_and_ends_meanwhile_are_kept() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let marker = session.marker();
    let line = |script: &str| session.sh(script).args([marker.as_str()]);
    let silent = "echo begun; sleep 600";
    let timed = line(silent).with(|request| request.time_limit = limited(3)).create().await;
    let idle = line(silent).with(|request| request.idle_limit = limited(3)).create().await;
    let ended = line("while [ ! -e go ]; do sleep 0.05; done; echo last; exit 7").create().await;
    gateway.crash();
    std::fs::write(session.workspace.join("go"), "").expect("the workspace is ours");
    eventually("all have ended with no gateway there", || {
        Process::all_marked(&marker).is_empty().then_some(())
    })
    .await;
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let [timed, idle, ended] = [timed, idle, ended].map(|terminal| terminal.over(&session.caller));
    let outcome = ended.wait().await;
    assert_eq!((code(&outcome), outcome.cause()), (7, ExitCause::Exited));
    assert_eq!(ended.output().await.data, b"last\n"[..]);
    for (terminal, cause) in [(timed, ExitCause::TimeLimit), (idle, ExitCause::IdleLimit)] {
        let outcome = terminal.wait().await;
        assert_eq!(outcome.cause(), cause);
        let wall = outcome.usage.and_then(|usage| usage.wall).expect("the supervisor measured it");
        assert!(wall.seconds >= 3, "not before its time: {wall:?}");
    }
    session.close().await;
    gateway.stop();
}

#[tokio::test]
async fn limits_go_on_where_they_were_however_often_the_gateway_dies() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let silent = |change: fn(&mut crate::support::api::CreateTerminalRequest)| {
        session.sh("echo begun; sleep 600").with(change).create()
    };
    let timed = silent(|request| request.time_limit = limited(5)).await;
    let idle = silent(|request| request.idle_limit = limited(5)).await;
    // Begun again by every gateway, they would never be over: none of these gateways lives for long.
    within("the ends", async {
        loop {
            gateway.crash();
            gateway.start_again();
            session.go_on(&gateway.caller().await);
            let [timed, idle] = [&timed, &idle].map(|terminal| terminal.over(&session.caller));
            let states = [timed.get().await, idle.get().await].map(|seen| seen.expect("it is known").state());
            if states == [TerminalState::Finished; 2] {
                break;
            }
        }
    })
    .await;
    for (terminal, cause) in [(timed, ExitCause::TimeLimit), (idle, ExitCause::IdleLimit)] {
        assert_eq!(terminal.over(&session.caller).wait().await.cause(), cause);
    }
    session.close().await;
    gateway.stop();
}

#[tokio::test]
async fn a_command_that_waits_for_its_reader_loses_nothing_when_the_gateway_is_killed_or_ends() {
    let gateway =
        Gateway::start_with(Options { config: Some("drain = \"100ms\"".into()), ..Options::default() });
    let mut session = Session::open(&gateway).await;
    let blocking = session.command("seq").args(["3000000"]).retain(4 << 20);
    let mut terminal = blocking.with(|request| request.overflow = Overflow::Block as i32).create().await;
    let mut read = Vec::new();
    for end in [End::Killed, End::Asked, End::Killed] {
        let mut stream = terminal.stream(OutputStream::Unspecified, read.len() as u64, Follow::Yes).await;
        let until = read.len() + 2_000_000;
        while read.len() < until {
            take(&mut read, within("output", stream.message()).await.expect("it goes on"));
        }
        match end {
            End::Killed => gateway.crash(),
            End::Asked => {
                gateway.signal(Signal::SIGTERM);
                gateway.wait();
            }
        }
        // What was on the way, to the last byte that arrives.
        while let Ok(Some(event)) = within("the end of the stream", stream.message()).await {
            take(&mut read, Some(event));
        }
        gateway.start_again();
        let caller = gateway.caller().await;
        session.go_on(&caller);
        terminal = terminal.over(&caller);
    }
    let rest = terminal.stream(OutputStream::Unspecified, read.len() as u64, Follow::Yes).await;
    let rest = Collected::all(rest, read.len() as u64).await;
    assert_eq!(rest.lost(), 0);
    read.extend(rest.data);
    let expected: String = (1..=3_000_000).fold(String::new(), |text, n| text + &format!("{n}\n"));
    assert_eq!(read.len(), expected.len());
    assert!(read == expected.as_bytes(), "other bytes");
    assert_eq!(code(&terminal.wait().await), 0);
    session.close().await;
}

enum End {
    Killed,
    Asked,
}

/// Adds an event's bytes, which must be the next ones.
fn take(read: &mut Vec<u8>, event: Option<StreamOutputResponse>) {
    match event.and_then(|event| event.event) {
        Some(stream_output_response::Event::Chunk(chunk)) => {
            assert_eq!(chunk.offset, read.len() as u64);
            read.extend(chunk.data);
        }
        Some(stream_output_response::Event::End(_)) => {}
        other => panic!("{other:?} after {} bytes", read.len()),
    }
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test]
    async fn twenty_commands_survive_four_kills_of_the_gateway() {
        survive(2, 10, 4).await;
    }
}
