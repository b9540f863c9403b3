//! A gateway that is killed in the middle of its work.

use std::{sync::Arc, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    kinds, must_be_intact, records,
    support::{Gateway, Options, Session},
    verified,
};

fn gateway_with(folder: &std::path::Path) -> Arc<Gateway> {
    let config = Some(format!("[journal]\nfolder = {:?}\n", folder.display().to_string()));
    Gateway::start_with(Options { config, ..Options::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_gateway_has_answered_is_written_and_the_next_one_goes_on() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("journal");
    let first = gateway_with(&folder);
    let session = Session::open(&first).await;
    let mut answered: Vec<String> = Vec::new();
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
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.signal(Signal::SIGKILL);
    first.wait();
    for line in lines {
        answered.extend(line.await.expect("it does not panic"));
    }
    assert!(!answered.is_empty(), "nothing was running");
    let (status, report) = verified(&folder, &[]);
    assert!(matches!(status, Some(0 | 3)), "{report:#}");
    first.group.destroy();
    drop(session);

    let second = gateway_with(&folder);
    let session = Session::open(&second).await;
    session.command("true").finish().await;
    session.close().await;
    second.stop();
    must_be_intact(&folder);
    let all = records(&folder, &[]);
    let starts = kinds(&all).iter().filter(|kind| **kind == "gateway_started").count();
    assert_eq!(starts, 2);
    // Whoever was told of a terminal finds it in the journal, from the decision to the start.
    for id in &answered {
        let life: Vec<Value> = all.iter().filter(|record| record["terminal"] == **id).cloned().collect();
        assert!(kinds(&life).starts_with(&["decision", "spawn"]), "{id}: {:?}", kinds(&life));
    }
}
