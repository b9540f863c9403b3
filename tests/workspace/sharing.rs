//! Large workspaces, several sessions in one, and a gateway that is killed while commands run.

use crate::{
    support::{Session, api::WorkspaceAction, eventually},
    workspace::{REPOSITORY, gateway, outside, session, shown},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_five_thousand_directories_a_deep_one_is_found() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    outside(&session.workspace, "mkdir -p $(seq -f 'target/%g/deps' 2500)");
    session.command("true").finish().await;
    let script = "git init -q target/2499/deps; git -C target/2499/deps config core.fsmonitor ./x";
    let done = session.sh(script).finish().await;
    let changes = &done.outcome.workspace_changes;
    assert_eq!(changes.len(), 1, "{}", shown(changes));
    assert!(changes[0].path.ends_with("target/2499/deps/.git/config"), "{}", shown(changes));
    assert_eq!(done.outcome.workspace_shortfall, "");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_another_session_in_the_same_workspace_is_told_too() {
    let gateway = gateway();
    let one = session(&gateway, "workspace").await;
    outside(&one.workspace, REPOSITORY);
    let roots = vec![one.workspace.display().to_string()];
    let two =
        Session::open_with(&gateway, gateway.caller().await, None, |request| request.roots = roots).await;
    let running = two.sh("echo started; while ! test -e go; do sleep 0.05; done").create().await;
    running.until("started").await;
    let done = one.sh("git config core.fsmonitor ./x").finish().await;
    assert_eq!(done.outcome.workspace_changes.len(), 1, "{}", shown(&done.outcome.workspace_changes));
    // Nothing runs in the first session: the second one's command is the one that would be asked.
    one.close().await;
    outside(&one.workspace, "touch go");
    let outcome = running.wait().await;
    assert_eq!(outcome.workspace_changes, done.outcome.workspace_changes);
    running.release().await;
    let again = two.sh("git config core.fsmonitor ./x").finish().await;
    assert_eq!(again.outcome.workspace_changes.len(), 1, "it is still watched");
    two.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_was_at_rest_is_watched_again() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    session.command("true").finish().await;
    // The case itself: its thread sleeps after three seconds without a command.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    session.command("true").finish().await;
    // Seen while the command runs, and not at its end: it ends when its change was undone.
    let script = "git config core.fsmonitor ./x; while grep -q fsmonitor .git/config; do sleep 0.05; done";
    let done = session.sh(script).finish().await;
    assert_eq!(done.outcome.workspace_changes.len(), 1, "{}", shown(&done.outcome.workspace_changes));
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_while_no_gateway_is_there_is_undone_by_the_next_one() {
    let gateway = gateway();
    let mut session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    let script = "echo started; while ! test -e go; do sleep 0.05; done; git config core.fsmonitor ./x; touch done; \
                  while ! test -e end; do sleep 0.05; done";
    let terminal = session.sh(script).create().await;
    terminal.until("started").await;
    // What is known is written off the way of the command.
    let known = gateway.state.join("workspaces");
    eventually("what is known is written down", || {
        std::fs::read_dir(&known).is_ok_and(|files| files.count() > 0).then_some(())
    })
    .await;
    gateway.crash();
    outside(&session.workspace, "touch go; while ! test -e done; do sleep 0.05; done");
    assert_eq!(outside(&session.workspace, "git config core.fsmonitor"), "./x\n");
    gateway.start_again();
    let caller = gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    eventually("it is undone", || {
        outside(&session.workspace, "git config core.fsmonitor").is_empty().then_some(())
    })
    .await;
    outside(&session.workspace, "touch end");
    let outcome = terminal.wait().await;
    assert_eq!(outcome.workspace_changes.len(), 1, "{}", shown(&outcome.workspace_changes));
    assert_eq!(outcome.workspace_changes[0].action(), WorkspaceAction::Restored);
    // The next gateway tells the same.
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    assert_eq!(terminal.wait().await.workspace_changes, outcome.workspace_changes);
    terminal.release().await;
    session.close().await;
    assert_eq!(std::fs::read_dir(&known).map_or(0, Iterator::count), 0, "nothing is left of what was known");
    gateway.stop();
}
