//! Which callers are notified of a change, by each front end; whose gateway it is; which directories count; and what is
//! refused.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    support::{
        Gateway, Options, RunResult, Session,
        api::{CreateSessionRequest, WorkspaceAction},
        is_root, new_workspace, skip,
    },
    workspace::{REPOSITORY, gateway, outside, session, shown},
};

const DANGEROUS: &str = "git config core.fsmonitor ./x";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_told_by_run_and_printed_by_the_command_line() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    let events = session.sh(DANGEROUS).run().await.expect("it runs");
    let outcome = RunResult::all(events).await.finished.outcome.expect("it has ended");
    assert_eq!(outcome.workspace_changes.len(), 1, "{}", shown(&outcome.workspace_changes));
    assert_eq!(outcome.workspace_changes[0].action(), WorkspaceAction::Restored);
    for (options, wanted) in
        [(&[][..], "(put back)"), (&["--report", "/dev/stderr"][..], "\"core.fsmonitor = ./x; ")]
    {
        let printed = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["run", "--gateway", &format!("unix:{}", gateway.socket.display())])
            .args(options)
            .args(["--", "git", "config", "core.fsmonitor", "./x"])
            .current_dir(&session.workspace)
            .output()
            .expect("provost starts");
        let text = String::from_utf8_lossy(&[printed.stdout, printed.stderr].concat()).into_owned();
        assert!(
            text.contains(wanted)
                && text.contains("core.fsmonitor = ./x; what was there is now config.provost-quarantine-"),
            "{options:?}: {text}"
        );
    }
    assert_eq!(outside(&session.workspace, "git config core.fsmonitor"), "");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_users_gateway_undoes_it_too() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let user = 54_391;
    let gateway = Gateway::start_with(Options {
        user: Some(user),
        policy: Some(|policy| policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into()),
        ..Options::default()
    });
    let session = Session::open_as(&gateway, user).await;
    session.sh(REPOSITORY).finish().await;
    for (command, left) in [
        (DANGEROUS, "git config -f .git/config core.fsmonitor"),
        (
            "git config core.fsmonitor ./x; chmod 000 .git",
            "chmod 755 .git; git config -f .git/config core.fsmonitor",
        ),
        // Whether it was seen before its second half or not.
        (
            "git init -q n; git -C n config core.fsmonitor ./x",
            "git config -f n/.git/config core.fsmonitor 2>/dev/null",
        ),
        ("echo /etc > .git/commondir", "cat .git/commondir 2>/dev/null"),
        ("mkdir -p a/.vscode; echo {} > a/.vscode/tasks.json", "cat a/.vscode/tasks.json 2>/dev/null"),
        ("echo {} > .mcp.json", "cat .mcp.json 2>/dev/null"),
    ] {
        let done = session.sh(command).finish().await;
        let changes = &done.outcome.workspace_changes;
        assert!(!changes.is_empty(), "{command}: {}", done.text());
        assert!(
            changes.iter().all(|one| one.action() != WorkspaceAction::Failed),
            "{command}: {}",
            shown(changes)
        );
        assert_eq!(outside(&session.workspace, left), "", "{command}");
    }
    session.close().await;
    gateway.stop();
}

/// A directory that a profile names must be known before there is a gateway.
fn extra() -> PathBuf {
    PathBuf::from(format!("/var/tmp/provost-test-writable-{}", std::process::id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writable_directory_of_a_profile_is_watched_too() {
    fs::create_dir_all(extra()).expect("the host can write");
    let gateway = Gateway::with_policy(|policy| {
        let profile = policy["profile"]["workspace"].as_table_mut().expect("a profile");
        let filesystem = profile.entry("filesystem").or_insert_with(|| toml::Table::new().into());
        let writable = toml::Value::Array(vec![extra().display().to_string().into()]);
        filesystem.as_table_mut().expect("a table").insert("writable".into(), writable);
    });
    let session = session(&gateway, "workspace").await;
    let script = format!("cd {} && git init -q r && git -C r config core.fsmonitor ./x", extra().display());
    let done = session.sh(&script).finish().await;
    let left = outside(&extra(), "cat r/.git/config 2>/dev/null");
    fs::remove_dir_all(extra()).expect("the host can remove it");
    let changes = &done.outcome.workspace_changes;
    assert_eq!(changes.len(), 1, "{}{}", done.text(), shown(changes));
    assert!(changes[0].path.ends_with("/r/.git/config"), "{}", shown(changes));
    assert!(!left.contains("fsmonitor"), "{left}");
    session.close().await;
    gateway.stop();
}

/// As `docs/internals/limits.md` says.
const WATCHED_PER_OWNER: usize = 128;
/// The most roots of one session.
const ROOTS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_would_look_no_command_runs_unless_its_profile_only_reports() {
    let gateway = gateway();
    let held = session(&gateway, "workspace").await;
    held.command("true").finish().await;
    for (profile, is_refused) in [("workspace", true), ("report", false)] {
        let mut sessions = Vec::new();
        for _ in 0..WATCHED_PER_OWNER / ROOTS {
            let roots: Vec<String> =
                (0..ROOTS).map(|_| new_workspace(&gateway, None).display().to_string()).collect();
            let change = |request: &mut CreateSessionRequest| {
                request.profile = profile.to_owned();
                request.roots = roots;
            };
            sessions.push(Session::open_with(&gateway, gateway.caller().await, None, change).await);
        }
        let (last, others) = sessions.split_last().expect("some");
        for one in others {
            one.command("true").finish().await;
        }
        if is_refused {
            let refusal = last.command("true").refusal().await;
            assert_eq!(refusal.reason, "QUOTA", "{refusal:?}");
            assert_eq!(refusal.meta("limit"), "workspaces_per_principal", "{refusal:?}");
        } else {
            let done = last.command("true").finish().await;
            assert!(
                done.outcome.workspace_shortfall.contains("128"),
                "{:?}",
                done.outcome.workspace_shortfall
            );
        }
        for one in &sessions {
            one.close().await;
        }
    }
    held.close().await;
    gateway.stop();
}
