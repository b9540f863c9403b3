//! Each way out is shown to work against a plain kill of the process group first, and then not to work here.

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

use crate::support::{self, Attack, Gateway, Process, api::ExitCause, code, eventually, in_session};

/// Starts an escape outside, kills its process group the plain way, and fails unless something survives that.
async fn escapes_a_plain_kill(arguments: &[&str], marker: &str) {
    let attack = Attack::compiled("escape");
    let mut child = Command::new(&attack.program)
        .args(arguments)
        .arg(marker)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the attack can be started outside");
    let mut said = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    while !said.contains("ready") {
        assert_ne!(lines.read_line(&mut said).expect("it speaks"), 0, "it ended without a word");
    }
    // What a simple runner does: TERM to the group of the process that it started.
    let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGTERM);
    // The signal has been delivered when kill(2) returns; what obeys it is gone in an instant.
    let begun = std::time::Instant::now();
    let mut left = Process::all_marked(marker);
    while begun.elapsed() < Duration::from_millis(300) {
        left = Process::all_marked(marker);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!left.is_empty(), "{arguments:?} does not even survive a plain kill");
    eventually("the end of the attack outside", || {
        for process in Process::all_marked(marker) {
            let _ = kill(Pid::from_raw(process.pid as i32), Signal::SIGKILL);
        }
        let _ = child.try_wait();
        Process::all_marked(marker).is_empty().then_some(())
    })
    .await;
    let _ = child.wait();
}

/// A command with a limit of time in which it came as far as to say that it is ready: on a busy machine a longer one.
async fn ready_within_its_limit(command: support::Command) -> support::Terminal {
    let mut limit = Duration::from_millis(700);
    loop {
        let limited = command.clone().with(|r| r.time_limit = Some(support::api_duration(limit)));
        let terminal = limited.create().await;
        terminal.wait().await;
        if terminal.output().await.data.starts_with(b"ready") {
            return terminal;
        }
        terminal.release().await;
        limit *= 4;
        assert!(limit < support::DEADLINE, "it is never ready");
    }
}

/// The escape inside, ended by Kill with a grace, by Kill without, by Release, and by a time limit.
async fn does_not_escape(arguments: &[&str]) {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let grace = Duration::from_millis(150);
        for way in ["kill with a grace", "kill at once", "release", "time limit"] {
            let marker = session.marker();
            let command =
                session.attack("escape").args(arguments.to_vec()).args([marker.as_str()]).grace(grace);
            let terminal = if way == "time limit" {
                ready_within_its_limit(command).await
            } else {
                let terminal = command.create().await;
                terminal.until("ready").await;
                assert!(!Process::all_marked(&marker).is_empty(), "nothing runs that could escape");
                terminal
            };
            match way {
                "kill with a grace" => drop(terminal.kill(Some(grace)).await),
                "kill at once" => drop(terminal.kill(Some(Duration::ZERO)).await),
                "release" => terminal.try_release(Some(grace)).await.expect("it can be released"),
                _ => {}
            }
            if way != "release" {
                let outcome = terminal.wait().await;
                let expected = if way == "time limit" { ExitCause::TimeLimit } else { ExitCause::Killed };
                assert_eq!(outcome.cause(), expected, "{way}: {outcome:?}");
            }
            // Invariant K. The answer has come: there is nothing to wait for.
            let left = Process::all_marked(&marker);
            assert!(left.is_empty(), "after {way}: {:?}", left.iter().map(|p| &p.status).collect::<Vec<_>>());
            if way != "release" {
                terminal.release().await;
            }
            let groups = gateway.group.groups();
            assert!(
                !groups.iter().any(|g| g.to_string_lossy().contains(&terminal.id)),
                "after {way}: {groups:?}"
            );
        }
        // The sandbox has taken no harm.
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
    })
    .await;
}

macro_rules! escapes {
    ($($name:ident: [$($outside:literal),+] [$($inside:literal),+];)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $name() {
            let marker = format!("outside-{}-{}", std::process::id(), stringify!($name));
            escapes_a_plain_kill(&[$($outside),+], &marker).await;
            does_not_escape(&[$($inside),+]).await;
        }
    )+};
}

escapes! {
    a_child_in_a_session_of_its_own_does_not_escape: ["setsid"] ["setsid"];
    a_double_forked_daemon_does_not_escape: ["doublefork"] ["doublefork"];
    a_child_without_hangup_does_not_escape: ["nohup"] ["nohup"];
    a_command_that_ignores_every_signal_does_not_escape: ["ignore"] ["ignore"];
    a_command_that_stops_itself_again_and_again_does_not_escape: ["stopagain"] ["stopagain"];
    a_child_under_a_reaper_of_its_own_does_not_escape: ["subreaper"] ["subreaper"];
    a_command_that_sleeps_in_vfork_does_not_escape: ["vfork"] ["vfork"];
    a_storm_of_forks_does_not_escape: ["storm", "2", "4000", "5000"] ["storm", "8", "20000", "0"];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stopped_command_obeys_term_because_it_is_continued() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let terminal = session.attack("escape").args(["stopself", &marker]).create().await;
        terminal.until("ready").await;
        eventually("the stop", || Process::all_marked(&marker).first()?.is_stopped().then_some(())).await;
        // With a grace far beyond the deadline: only the CONT can end it.
        terminal.kill(Some(Duration::from_secs(600))).await;
        let outcome = terminal.wait().await;
        assert_eq!((crate::support::signal_name(&outcome), outcome.cause()), ("SIGTERM", ExitCause::Killed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn children_that_stay_when_the_main_process_goes_do_not_stay() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let terminal = session.attack("escape").args(["leave", &marker]).create().await;
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause(), outcome.stragglers_killed), (5, ExitCause::Exited, 3));
        assert!(Process::all_marked(&marker).is_empty(), "they are still there when the exit is told");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_can_neither_make_a_cgroup_nor_move_itself_out_of_its_own() {
    let gateway = Gateway::shared();
    let (_, outside) = crate::support::run_outside(&Attack::compiled("escape"), &["cgroup"]);
    let won = |text: &str| text.rsplit("won=").next().and_then(|n| n.trim().parse::<u32>().ok());
    if crate::support::is_root() {
        assert!(won(&outside) > Some(0), "outside it can be done: {outside}");
    }
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let done = session.attack("escape").args(["cgroup"]).finish().await;
        assert_eq!(won(&done.text()), Some(0), "{}", done.text());
        // A directory of cgroups on a mount that the command makes itself, in any namespace that it can make.
        let script = "unshare -Urmp --fork sh -c 'mkdir /tmp/c; mount -t cgroup2 none /tmp/c && echo mounted; \
                      mount -t cgroup -o memory none /tmp/c && echo mounted'; unshare -UrCm sh -c 'mount -t cgroup2 none /tmp && echo mounted'; true";
        let done = session.sh(script).args([marker.as_str()]).finish().await;
        assert!(!done.text().contains("mounted"), "{}", done.text());
    })
    .await;
}
