//! A gateway that is killed in the middle of its work, and the next one.

use std::time::Duration;

use serde_json::Value;

use crate::{
    journaled::{directory, kinds, must_be_intact, records, verified},
    support::{Gateway, Session, eventually},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_gateway_has_answered_is_written_and_the_next_one_goes_on() {
    let gateway = Gateway::start();
    let directory = directory(&gateway);
    let session = Session::open(&gateway).await;
    // Creates in several lines at once, so that the end comes in the middle of some.
    let lines: Vec<_> = (0..4)
        .map(|_| {
            let command = session.command("true");
            tokio::spawn(async move {
                let mut answered = Vec::new();
                while let Ok(terminal) = command.clone().try_create().await {
                    answered.push(terminal.info.id.clone());
                    let _ = terminal.try_release(None).await;
                }
                answered
            })
        })
        .collect();
    eventually("some work", || {
        (records(&directory, &[]).iter().filter(|record| record["kind"] == "exit").count() > 20).then_some(())
    })
    .await;
    gateway.crash();
    let mut answered: Vec<String> = Vec::new();
    for line in lines {
        answered.extend(line.await.expect("it does not panic"));
    }
    assert!(!answered.is_empty(), "nothing was running");
    let (status, report) = verified(&directory, &[]);
    assert!(matches!(status, Some(0 | 3)), "{report:#}");

    gateway.start_again();
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    session.close().await;
    gateway.stop();
    must_be_intact(&directory);
    let all = records(&directory, &[]);
    let starts = kinds(&all).iter().filter(|kind| **kind == "gateway_started").count();
    assert_eq!(starts, 2);
    // Each terminal that the gateway answered with is in the journal, from the decision to the start.
    for id in &answered {
        let life: Vec<Value> = all.iter().filter(|record| record["terminal"] == **id).cloned().collect();
        assert!(kinds(&life).starts_with(&["decision", "spawn"]), "{id}: {:?}", kinds(&life));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_end_is_written_once_whichever_gateway_hears_of_it() {
    let gateway = Gateway::start();
    let directory = directory(&gateway);
    let session = Session::open(&gateway).await;
    let before = session.command("true").create().await;
    before.wait().await;
    let between = session.sh("sleep 0.3").create().await;
    let after = session.idle(&session.marker()).create().await;
    after.until("ready").await;
    let ids = [&before, &between, &after].map(|terminal| terminal.info.id.clone());
    let exits = |id: &str| {
        let life = records(&directory, &["--terminal", id]);
        kinds(&life).iter().filter(|kind| **kind == "exit").count()
    };
    eventually("the first exit", || (exits(&ids[0]) == 1).then_some(())).await;
    for _ in 0..2 {
        gateway.crash();
        tokio::time::sleep(Duration::from_millis(400)).await;
        gateway.start_again();
    }
    let session = Session { caller: gateway.caller().await, ..session };
    session.close().await;
    gateway.stop();
    assert_eq!(ids.map(|id| exits(&id)), [1, 1, 1]);
    must_be_intact(&directory);
}
