//! Who shares a session with a command that has a secret, and does not share the secret (S9).
//!
//! The spy looks through everything that processes show of one another, and through every file that both can reach.
//! Outside it finds a secret in four ways.

use std::{
    io::{BufRead, BufReader},
    process::{Command as Process, Stdio},
};

use crate::{
    secrets::{Armed, VALUE, armed, with_secret},
    support::{Attack, Options, Session, Terminal, eventually, is_root, run_outside, skip},
};

/// The value that the rules of `printenv` and `dash` give.
const RULED: &str = "another-value-altogether";

/// Leaves the value in every place that is a command's own, and waits there.
const HOLDS: &str = r#"value=${TOKEN-$RULED}; for place in ${PLACES-/tmp /dev/shm "$HOME"}; do
    printf %s "$value" > "$place/left" 2>/dev/null && exec 7<"$place/left"
done
echo ready; exec sleep 1000"#;

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

async fn must_find_nothing(spy: Terminal) {
    spy.wait().await;
    let seen = String::from_utf8_lossy(&spy.output().await.data).into_owned();
    assert!(seen.contains("looked "), "it has looked: {seen}");
    assert!(!seen.contains("found "), "{seen}");
    spy.release().await;
}

#[tokio::test]
async fn the_spy_finds_a_secret_where_nothing_keeps_it_out() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut victim = Process::new("sh")
        .args(["-c", HOLDS])
        .env("TOKEN", VALUE)
        .env("PLACES", place.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts outside");
    let mut said = String::new();
    BufReader::new(victim.stdout.take().expect("a pipe")).read_line(&mut said).expect("it says something");
    let pid = victim.id().to_string();
    // In the middle of its last exec a process has no environment yet.
    let part = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).expect("it is there");
    let waits = || (part("comm") == b"sleep\n" && !part("environ").is_empty()).then_some(());
    eventually("the victim's last exec", waits).await;
    let (_, seen) = run_outside(&Attack::compiled("spy"), &[&backwards(VALUE), &pid]);
    victim.kill().expect("it is ours");
    victim.wait().expect("it is ours");
    for way in ["environ", "mem", "vm", "fd"] {
        assert!(seen.contains(&format!("found {way}")), "{way}: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_of_a_session_finds_the_secret_of_another_of_its_commands() {
    armed(async |_, session| must_keep_apart(session).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_ordinary_users_gateway_keeps_secrets_apart_too() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let user = 54_361;
    let armed =
        Armed::start_with(Options { user: Some(user), policy: Some(prefer_limits), ..Options::default() })
            .await;
    let session = Session::open_as(&armed.gateway, user).await;
    must_keep_apart(&session).await;
    session.close().await;
}

/// What a command without a secret has left is not there for one that has one, which would use it, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_with_a_secret_has_neither_the_sessions_tmp_nor_its_home() {
    armed(async |_, session| {
        let leave = session.sh("echo left > /tmp/file; echo left > ~/file").finish().await;
        assert_eq!(leave.text(), "");
        // Below /tmp lies the workspace, too.
        let list = "ls -A ~; ls -A /tmp | grep -v provost-test";
        let look = &format!("{list}; echo mine > /tmp/own; echo mine > ~/own; id -u");
        let plain = session.sh("cat /tmp/file ~/file; id -u").finish().await.text();
        let id = plain.strip_prefix("left\nleft\n").expect("what is the session's");
        for _ in 0..2 {
            let with = with_secret(session.sh(look)).finish().await;
            assert_eq!(with.text(), format!(".gitconfig\n{id}"));
        }
        let after = session.sh(list).finish().await;
        assert_eq!(after.text(), ".gitconfig\nfile\nfile\n");
    })
    .await;
}

/// An ordinary user has no cgroup to make limits in.
fn prefer_limits(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

/// By a profile and by a rule; from a command without secrets, and from one that has one of its own.
async fn must_keep_apart(session: &Session) {
    let by_profile = with_secret(session.sh(HOLDS)).create().await;
    by_profile.until("ready").await;
    let by_rule = session.command("dash").args(["-c", HOLDS]).create().await;
    by_rule.until("ready").await;
    for value in [VALUE, RULED] {
        must_find_nothing(session.attack("spy").args([backwards(value)]).create().await).await;
        must_find_nothing(with_secret(session.attack("spy")).args([backwards(value)]).create().await).await;
    }
    by_profile.release().await;
    by_rule.release().await;
}
