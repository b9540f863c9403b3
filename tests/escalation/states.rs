//! States that a task can be in, against the ways in which a command ends: it is gone, and its end is told rightly.
//!
//! Each attack is shown outside first: it outlives what ends an ordinary command there.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{
    Attack, Gateway, Process, Session, Terminal, api::ExitCause, code, eventually, in_session,
};

/// Between TERM and KILL. Every state outlives its TERM.
const GRACE: Duration = Duration::from_millis(100);

/// The ways in which a terminal ends while its session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    Release,
    TimeLimit,
    IdleLimit,
}

/// Begins the state in a session, with the limit that is to end it, and waits until it is reached.
async fn begin(session: &Session, state: &[&str], marker: &str, end: End) -> Terminal {
    let mut limit = Duration::from_millis(1000);
    loop {
        let command = session.attack("states").args(state.to_vec()).args([marker]).grace(GRACE);
        let command = command.with(|request| match end {
            End::TimeLimit => request.time_limit = Some(crate::support::api_duration(limit)),
            End::IdleLimit => request.idle_limit = Some(crate::support::api_duration(limit)),
            End::Kill | End::Release => {}
        });
        let terminal = command.create().await;
        if matches!(end, End::Kill | End::Release) {
            terminal.until("ready").await;
            return terminal;
        }
        terminal.wait().await;
        if terminal.output().await.data.ends_with(b"ready\n") {
            return terminal;
        }
        // The machine was too busy for it to come so far.
        terminal.release().await;
        limit *= 4;
        assert!(limit < crate::support::DEADLINE, "it is never ready");
    }
}

/// Begins the state and waits until it is reached.
pub(crate) async fn begin_state(session: &Session, state: &[&str], marker: &str) -> Terminal {
    begin(session, state, marker, End::Kill).await
}

async fn ends_in_every_way(state: &[&str]) {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        for end in [End::Kill, End::Release, End::TimeLimit, End::IdleLimit] {
            let marker = session.marker();
            let terminal = begin(session, state, &marker, end).await;
            let cause = match end {
                End::Kill => {
                    // In the middle of an exec a process has no command line.
                    eventually("a running process", || Process::all_marked(&marker).pop()).await;
                    terminal.kill(None).await;
                    ExitCause::Killed
                }
                End::Release => ExitCause::Unspecified,
                End::TimeLimit => ExitCause::TimeLimit,
                End::IdleLimit => ExitCause::IdleLimit,
            };
            if end == End::Release {
                terminal.try_release(None).await.expect("it can be released");
            } else {
                let outcome = terminal.wait().await;
                assert_eq!(outcome.cause(), cause, "{state:?}, {end:?}: {outcome:?}");
                assert_eq!(crate::support::signal_name(&outcome), "SIGKILL", "{state:?}, {end:?}");
            }
            // Invariant K. The answer has come: there is nothing to wait for.
            let left = Process::all_marked(&marker);
            assert!(left.is_empty(), "{state:?}, {end:?}: {left:?}");
            if end != End::Release {
                terminal.release().await;
            }
        }
        // The sandbox has taken no harm.
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
    })
    .await;
}

macro_rules! states {
    ($($name:ident: [$($state:literal),+];)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $name() {
            ends_in_every_way(&[$($state),+]).await;
        }
    )+};
}

states! {
    a_process_without_its_main_thread_ends: ["leader"];
    processes_without_their_main_threads_end: ["leaders"];
    two_thousand_threads_without_their_main_one_end: ["threads", "2000"];
    a_stopped_process_ends: ["stopped"];
    a_traced_process_ends: ["traced"];
    a_process_suspended_in_vfork_ends: ["vfork"];
    a_process_that_executes_again_and_again_ends: ["execs"];
}

/// What ends an ordinary tree outside, by cgroup and by thread, leaves a thread group without its main thread alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kill_by_cgroup_outside_leaves_what_has_lost_its_main_thread() {
    let group = crate::support::TestGroup::new();
    let Some(killable) = group.directories().iter().find(|directory| directory.join("cgroup.kill").exists())
    else {
        return crate::support::skip("no v2 tree with cgroup.kill");
    };
    let marker = format!("outside-{}-leader", std::process::id());
    let script = format!("{}exec \"$@\"", group.entry_script());
    let mut child = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(&Attack::compiled("states").program)
        .args(["leader", &marker])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the attack can be started outside");
    let mut said = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    lines.read_line(&mut said).expect("it speaks");
    assert_eq!(said, "ready\n");
    std::fs::write(killable.join("cgroup.kill"), "1").expect("the group can be killed");
    // The signal has been given when write(2) returns; what obeys it is gone in an instant.
    let begun = std::time::Instant::now();
    let mut left = Process::all_marked(&marker);
    while begun.elapsed() < Duration::from_millis(300) {
        left = Process::all_marked(&marker);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if left.is_empty() {
        println!("this kernel's cgroup.kill ends it");
    }
    eventually("the end of the attack outside", || {
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        let _ = child.try_wait();
        Process::all_marked(&marker).is_empty().then_some(())
    })
    .await;
    let _ = child.wait();
    group.destroy();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_stays_without_its_main_thread_when_the_main_process_goes_does_not_stay() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let terminal = session.attack("states").args(["left", &marker]).create().await;
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause(), outcome.stragglers_killed), (5, ExitCause::Exited, 1));
        assert!(Process::all_marked(&marker).is_empty(), "it is still there when the exit is told");
    })
    .await;
}
