//! Commands that use up what can be used up: they are held to their limits, and their neighbours go on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{
    Attack, Gateway, Process, Session, api::ExitCause, code, in_session, run_outside, signal_name,
};

/// A gateway whose limits are low enough to be reached in a test.
fn tight() -> Arc<Gateway> {
    Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let profile = profile.as_table_mut().expect("a table");
            let limits: toml::Table = "
                requirement = \"require\"
                terminal = { memory_bytes = 134217728, pids = 64 }
                session = { memory_bytes = 268435456, pids = 128 }
                rlimits = { core = 0, nofile = 256 }"
                .parse()
                .expect("TOML");
            profile.insert("limits".into(), limits.into());
            let filesystem: toml::Table = "tmp_bytes = 16777216\ntmp_inodes = 1000".parse().expect("TOML");
            profile.insert("filesystem".into(), filesystem.into());
        }
    })
}

/// The time of a short command in a session: the median of eleven.
async fn latency(session: &Session) -> Duration {
    let mut all = Vec::new();
    for _ in 0..11 {
        let begun = Instant::now();
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
        all.push(begun.elapsed());
    }
    all.sort();
    all[5]
}

fn memory_is_limited_by_v2() -> bool {
    std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").is_ok_and(|names| names.contains("memory"))
}

fn number(text: &str, name: &str) -> i64 {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_is_held_to_its_limit_and_dies_at_once() {
    let (_, outside) = run_outside(&Attack::compiled("bomb"), &["fork", "500"]);
    assert_eq!(number(&outside, "made"), 500, "outside nothing holds it");
    let gateway = tight();
    in_session(&gateway, async |victim| {
        in_session(&gateway, async |session| {
            let counted = session.attack("bomb").args(["fork", "500"]).finish().await;
            assert!((1..64).contains(&number(&counted.text(), "made")), "{}", counted.text());
            assert!(counted.text().contains("error=EAGAIN"), "{}", counted.text());

            let marker = session.marker();
            let terminal = session.attack("bomb").args(["forkforever", &marker]).create().await;
            terminal.until("ready").await;
            // The neighbour's limits are its own.
            assert_eq!(code(&victim.command("true").finish().await.outcome), 0);
            terminal.kill(Some(Duration::ZERO)).await;
            let outcome = terminal.wait().await;
            assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
            assert!(Process::all_marked(&marker).is_empty());
            // And with a grace, in which it goes on forking.
            let terminal = session.attack("bomb").args(["forkforever", &marker]).create().await;
            terminal.until("ready").await;
            terminal.kill(Some(Duration::from_millis(200))).await;
            assert_eq!(terminal.wait().await.cause(), ExitCause::Killed);
            assert!(Process::all_marked(&marker).is_empty());
            assert_eq!(code(&session.command("true").finish().await.outcome), 0);
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_ends_with_the_memory_limit_as_its_cause() {
    let (status, outside) = run_outside(&Attack::compiled("bomb"), &["heap", "400"]);
    assert_eq!((status, outside.as_str()), (Some(0), "touched=400\n"), "outside nothing holds it");
    in_session(&tight(), async |session| {
        let done = session.attack("bomb").args(["heap", "400"]).finish().await;
        assert_eq!((signal_name(&done.outcome), done.outcome.cause()), ("SIGKILL", ExitCause::MemoryLimit));
        let peak = done.outcome.usage.expect("usage").memory_peak_bytes;
        assert!((64 << 20..=140 << 20).contains(&peak), "the peak is near the limit: {peak}");
        // Within the limit it is fine.
        let done = session.attack("bomb").args(["heap", "60"]).finish().await;
        assert_eq!((done.text().as_str(), done.outcome.cause()), ("touched=60\n", ExitCause::Exited));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_in_a_child_or_in_files_of_memory_is_told_alike() {
    in_session(&tight(), async |session| {
        let program = Attack::compiled("bomb").placed_in(&session.workspace);
        let done = session.attack("bomb").args(["shm", "400"]).finish().await;
        assert_eq!(done.outcome.cause(), ExitCause::MemoryLimit, "memfd: {:?} {}", done.outcome, done.text());
        let done = session.sh(&format!("{} heap 400; exit 5", program.display())).finish().await;
        assert_eq!(done.outcome.cause(), ExitCause::MemoryLimit, "{:?} {}", done.outcome, done.text());
        if memory_is_limited_by_v2() {
            // The kernel ends the whole command (memory.oom.group).
            assert_eq!(signal_name(&done.outcome), "SIGKILL", "{:?}", done.outcome);
        } else {
            // The main process lives on and exits by itself: its code is its own, the cause is still told.
            assert_eq!(code(&done.outcome), 5, "{:?}", done.outcome);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_on_a_private_tmp_meets_a_limit_too() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let profile = profile.as_table_mut().expect("a table");
            let limits: toml::Table =
                "terminal = { memory_bytes = 67108864, pids = 64 }\nsession = { memory_bytes = 268435456, pids = 128 }"
                    .parse()
                    .expect("TOML");
            profile.insert("limits".into(), limits.into());
        }
    });
    in_session(&gateway, async |session| {
        let done = session.attack("bomb").args(["file", "400", "/tmp/bomb"]).finish().await;
        assert_eq!(done.outcome.cause(), ExitCause::MemoryLimit, "{:?} {}", done.outcome, done.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_tmp_refuses_bytes_and_files_and_hurts_nobody_else() {
    let gateway = tight();
    in_session(&gateway, async |victim| {
        in_session(&gateway, async |session| {
            let done = session.attack("bomb").args(["file", "64", "/tmp/big", "remove"]).finish().await;
            assert!(
                number(&done.text(), "written") <= 16 && done.text().contains("ENOSPC"),
                "{}",
                done.text()
            );
            let done = session.attack("bomb").args(["inodes", "5000", "/tmp"]).finish().await;
            assert!(
                number(&done.text(), "made") <= 1000 && done.text().contains("ENOSPC"),
                "{}",
                done.text()
            );
            // Full and left full: the session's commands still start, and the neighbour's /tmp is its own.
            session.attack("bomb").args(["file", "64", "/tmp/big"]).finish().await;
            assert_eq!(code(&session.command("true").finish().await.outcome), 0);
            let done = victim
                .sh("echo room > /tmp/x && cat /tmp/x && ls /tmp | grep -v provost-test")
                .finish()
                .await;
            assert_eq!(done.text(), "room\nx\n");
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_threads_that_burn_leave_a_neighbour_usable() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |victim| {
        in_session(&gateway, async |hog| {
            let quiet = latency(victim).await;
            let terminal = hog.attack("bomb").args(["threads", "1000", "60"]).create().await;
            terminal.until("made=1000").await;
            let loaded = latency(victim).await;
            println!("a short command: {quiet:?} alone, {loaded:?} with 1,000 burning threads");
            // Shares of the processors are what a host's scheduler gives. Usable is what is promised here, and each of
            // the eleven commands had the deadline of every call for it.
            terminal.kill(Some(Duration::ZERO)).await;
            terminal.wait().await;
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_are_held_to_their_limit() {
    let (_, outside) = run_outside(&Attack::compiled("bomb"), &["fds", "600"]);
    assert_eq!(number(&outside, "made"), 600);
    let gateway = tight();
    in_session(&gateway, async |session| {
        let done = session.attack("bomb").args(["fds", "600"]).finish().await;
        assert!(
            number(&done.text(), "made") < 256 && done.text().contains("error=EMFILE"),
            "{}",
            done.text()
        );
        let (_, raised) = (0, session.attack("attack").args(["raise_nofile"]).finish().await.text());
        assert_eq!(raised, "raise_nofile EPERM\n");
    })
    .await;
}
