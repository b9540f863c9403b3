//! Builds of neighbouring versions of the control protocol serve one another's sandboxes; strangers leave them alone.
//!
//! A build with failpoints says by `PROVOST_PROTOCOL_VERSION` which version it is of, to its supervisors too: then it
//! speaks that version and the one before, and no other. The words of both are the same today. `PROVOST_OTHER_BUILD`
//! names another binary to upgrade from and to go back to: then the same test runs with two builds.

use std::path::PathBuf;

use crate::{
    lines::{Until, must_be_whole, printing, starts, stop},
    support::{Gateway, Options, Process, Session, code},
};

const VERSION: &str = "PROVOST_PROTOCOL_VERSION";

/// A gateway of the older build.
fn older() -> std::sync::Arc<Gateway> {
    let binary = std::env::var_os("PROVOST_OTHER_BUILD").map(PathBuf::from);
    println!("the older build: {}", binary.as_ref().map_or("this one".into(), |it| it.display().to_string()));
    Gateway::start_with(Options { binary, ..Options::default() })
}

#[tokio::test]
async fn an_upgrade_and_a_way_back_lose_nothing_that_runs() {
    let gateway = older();
    let mut first = Session::open(&gateway).await;
    let begun_before = printing(&first, "before", Until::Stopped, 1).create().await;
    begun_before.until("before 1").await;

    gateway.crash();
    gateway.start_again_as(None, &[(VERSION, "2")]);
    first.go_on(&gateway.caller().await);
    begun_before.over(&first.caller).get().await.expect("the newer build has taken it back");
    let mut second = Session::open(&gateway).await;
    let begun_between = printing(&second, "between", Until::Stopped, 2).create().await;
    begun_between.until("between 1").await;
    let in_the_old = printing(&first, "in-the-old", Until::Stopped, 3).create().await;

    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    first.go_on(&caller);
    second.go_on(&caller);
    stop(&first.workspace);
    stop(&second.workspace);
    for (terminal, workspace, name, expected) in [
        (begun_before, &first.workspace, "before", 1),
        (begun_between, &second.workspace, "between", 2),
        (in_the_old, &first.workspace, "in-the-old", 3),
    ] {
        let terminal = terminal.over(&caller);
        assert_eq!(code(&terminal.wait().await), expected, "{name}");
        must_be_whole(&terminal, name).await;
        assert_eq!(starts(workspace, name), 1);
    }
    first.close().await;
    second.close().await;
    gateway.stop();
}

#[tokio::test]
async fn a_supervisor_of_an_unknown_version_is_left_alone_and_said() {
    let gateway = Gateway::start();
    gateway.crash();
    gateway.start_again_with(&[(VERSION, "9")]);
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;

    gateway.crash();
    gateway.start_again();
    assert!(terminal.over(&gateway.caller().await).get().await.is_err());
    assert_eq!(Process::all_marked(&marker).len(), 1, "it is not killed");
    let said = gateway.provost(&["doctor"]);
    assert!(said.contains("speaks no version"), "{said}");

    gateway.crash();
    gateway.start_again_with(&[(VERSION, "8")]);
    terminal.over(&gateway.caller().await).get().await.expect("a neighbour takes it back");

    gateway.crash();
    gateway.start_again();
    gateway.provost(&["reap", "--all"]);
    assert!(Process::all_marked(&marker).is_empty(), "reaped");
    gateway.stop();
}
