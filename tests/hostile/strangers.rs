//! S6: a principal sees nothing of another one's in any stream, whether it names a session or none.
//!
//! A stranger's watch is known to have passed over what others did when the stranger's own event arrives after it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use tokio_stream::StreamExt as _;

use crate::support::{
    Gateway, Session,
    api::{Terminal, TerminalState, WatchTerminalsRequest, WatchTerminalsResponse},
    in_session, is_root, skip, within,
};

const STRANGER: u32 = 54_321;

/// Every event up to the end of `own`, which must come.
async fn events_until_released(
    events: &mut tonic::Streaming<WatchTerminalsResponse>,
    own: &str,
) -> Vec<Terminal> {
    let mut seen = Vec::new();
    loop {
        let event =
            within("the stranger's own event", events.next()).await.expect("it goes on").expect("it goes on");
        let event = event.terminal.expect("it is set");
        let last = event.id == own && event.state() == TerminalState::Released;
        seen.push(event);
        if last {
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_everything_shows_a_stranger_only_its_own_terminals() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let there_before = session.command("sleep").args(["1000"]).create().await;
        let stranger = Session::open_as(&gateway, STRANGER).await;
        let watch = async |caller: &crate::support::Caller| {
            let request = WatchTerminalsRequest::default();
            caller.terminals.clone().watch_terminals(request).await.expect("a watch").into_inner()
        };
        let mut strangers = watch(&stranger.caller).await;
        let mut owners = watch(&session.caller).await;
        // Created, running, finished and released while both watch.
        let meanwhile = session.command("true").finish().await;
        let own = stranger.command("true").create().await;
        own.wait().await;
        own.release().await;
        let seen = events_until_released(&mut strangers, &own.id).await;
        for event in &seen {
            assert_eq!(event.id, own.id, "a stranger was shown {event:?}");
        }
        // The same events were there to be seen: their owner saw them, and nothing of the stranger's.
        there_before.kill(Some(std::time::Duration::ZERO)).await;
        there_before.wait().await;
        there_before.release().await;
        let seen = events_until_released(&mut owners, &there_before.id).await;
        assert!(seen.iter().any(|event| event.id == meanwhile.id), "{seen:?}");
        assert!(seen.iter().all(|event| event.id != own.id), "the owner was shown a stranger's: {seen:?}");
        stranger.close().await;
    })
    .await;
}

/// Whether the stranger can lock this, shared with others or alone.
fn can_lock(path: &Path) -> bool {
    ["--shared", "--exclusive"].into_iter().any(|how| {
        let mut flock = Command::new("setpriv");
        flock.args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups"]);
        flock.args(["flock", "--nonblock", how]).arg(path).arg("true");
        flock.output().expect("setpriv can be started").status.success()
    })
}

#[tokio::test]
async fn a_stranger_can_lock_nothing_that_a_gateway_locks() {
    if !is_root() {
        return skip("another user can only be had as root");
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        assert_eq!(session.command("true").finish().await.outcome.survivors, 0);
    })
    .await;
    let state = gateway.directory().join("state");
    let found = fs::metadata(&state).expect("it is there");
    let name = format!("provost-{:x}-{:x}", found.dev(), found.ino());
    let groups = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &name]).output();
    let groups = String::from_utf8(groups.expect("find can be started").stdout).expect("text");
    let groups: Vec<PathBuf> = groups.lines().map(PathBuf::from).collect();
    if groups.is_empty() {
        return skip("the gateway has no cgroups here");
    }
    for group in &groups {
        // One as any process makes it, beside it.
        let open = group.with_file_name(format!("open-to-all-{}", std::process::id()));
        fs::create_dir(&open).expect("a cgroup can be made");
        let could_lock = can_lock(&open);
        fs::remove_dir(&open).expect("it is empty");
        assert!(could_lock, "the attack works on {}", open.display());
        assert!(!can_lock(group), "{}", group.display());
    }
    let lock = state.join("lock");
    assert_eq!(fs::metadata(&lock).expect("it is there").permissions().mode() & 0o777, 0o600);
    gateway.stop();
}
