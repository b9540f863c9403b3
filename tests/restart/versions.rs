//! Builds of neighbouring versions of the control protocol serve one another's sandboxes; strangers leave them alone.
//!
//! A build with failpoints says by `PROVOST_PROTOCOL_VERSION` which version it is of, to its supervisors too: then it
//! speaks that version and the one before, and no other. The words of both are the same today, so that this shows the
//! agreement and not a change of words. Two builds of the whole program for one test would double what CI compiles.
//! `PROVOST_OTHER_BUILD` names another binary to upgrade from and to go back to: then the same test runs with two builds.

use std::path::PathBuf;

use crate::{
    restart::{
        alone::each_its_own,
        lines::{Until, must_be_whole, printing, starts, stop},
    },
    support::{Gateway, Options, Process, Session, code},
};

const VERSION: &str = "PROVOST_PROTOCOL_VERSION";

/// A gateway of the older build.
fn older(policy: Option<fn(&mut toml::Table)>) -> std::sync::Arc<Gateway> {
    let binary = std::env::var_os("PROVOST_OTHER_BUILD").map(PathBuf::from);
    println!("the older build: {}", binary.as_ref().map_or("this one".into(), |it| it.display().to_string()));
    Gateway::start_with(Options { binary, policy, ..Options::default() })
}

#[tokio::test]
async fn an_upgrade_and_a_way_back_lose_nothing_that_runs() {
    let gateway = older(None);
    let mut first = Session::open(&gateway).await;
    let begun_before = printing(&first, "before", Until::Stopped, 1).create().await;
    begun_before.until("before 1").await;

    gateway.crash();
    gateway.start_again_as(None, &[(VERSION, "3")]);
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
async fn builds_that_take_turns_lose_nothing_of_what_both_have_begun() {
    for policy in [None, Some(each_its_own as fn(&mut toml::Table))] {
        let gateway = older(policy);
        let mut session = Session::open(&gateway).await;
        let mut begun: Vec<(String, Until, String)> = Vec::new();
        for turn in 0..5_u32 {
            for until in [Until::Lines(3 + turn * 5), Until::Stopped] {
                let name = format!("turn-{turn}-{}", begun.len());
                let terminal = printing(&session, &name, until, turn).request_id(&name).create().await;
                begun.push((name, until, terminal.id));
            }
            let released = session.sh("echo gone").request_id(&format!("gone-{turn}")).create().await;
            released.release().await;
            gateway.crash();
            if turn % 2 == 0 {
                gateway.start_again_as(None, &[(VERSION, "3")]);
            } else {
                gateway.start_again();
            }
            session.go_on(&gateway.caller().await);
            for (name, until, id) in &begun {
                let again = printing(&session, name, *until, 9).request_id(name).create().await;
                assert_eq!(again.id, *id, "{name} in turn {turn}: the same request has the same terminal");
            }
            let gone = released.over(&session.caller).get().await.expect_err("it was released");
            assert_eq!(gone.reason, "TERMINAL_NOT_FOUND");
        }
        stop(&session.workspace);
        for (number, (name, until, id)) in begun.iter().enumerate() {
            let terminal = printing(&session, name, *until, 9).request_id(name).create().await;
            assert_eq!(terminal.id, *id);
            assert_eq!(code(&terminal.wait().await) as usize, number / 2, "{name}");
            must_be_whole(&terminal, name).await;
            assert_eq!(starts(&session.workspace, name), 1, "{name}");
        }
        session.close().await;
        gateway.stop();
    }
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
