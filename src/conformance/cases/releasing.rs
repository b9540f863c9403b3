//! Release: a running command is killed, waiters are answered, and the id is invalid from then on.

use std::time::Duration;

use serde_json::json;

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, ensure},
};

cases! {
    110 Must Agent "v1 terminals, releasing: kills the command if it is still running":
        "release of a running command kills it, and its children" => kills;
    111 Should Agent "practice: a command is all that it started":
        "release kills a child that has fled into a session of its own" => kills_fled_children;
    112 Must Agent "v1 terminals, releasing: the id becomes invalid for all other methods":
        "a released id is refused by output, wait, kill and release" => id_is_invalid;
    113 Should Agent "v1 schema: ErrorCode -32002, resource not found":
        "a released id is refused with -32002" => refused_as_not_found;
    114 Must Agent "practice: some agents release while a wait is pending":
        "a wait that is pending is answered when its terminal is released" => pending_wait;
    115 Must Agent "v1 schema: ReleaseTerminalResponse is an object":
        "release is answered with an object, whether the command runs or has ended" => answers_with_an_object;
    116 Must Agent "v1 terminals, releasing":
        "an id is not given again" => ids_are_not_reused;
    117 Must Agent "v1 terminals, releasing: resources are freed":
        "two hundred terminals one after the other are no trouble" => resources_are_freed;
    118 Must Agent "v1 terminals: one id, one command":
        "release touches no other terminal" => others_live;
    119 Should Agent "practice: agents kill and release without waiting":
        "release right after create leaves nothing" => right_after_create;
}

async fn kills(stage: TestContext) -> Result<(), Fault> {
    dies_with_release(&stage, "trap '' TERM; sleep 100 & while echo . >&9; do sleep 0.2; done").await
}

async fn kills_fled_children(stage: TestContext) -> Result<(), Fault> {
    dies_with_release(&stage, "(setsid sh -c 'trap \"\" HUP TERM; sleep 100 & sleep 100' &); sleep 100").await
}

async fn dies_with_release(stage: &TestContext, script: &str) -> Result<(), Fault> {
    let mut probe = stage.fifo_probe()?;
    let id = stage.script(&probe.holding_script(script)).await?;
    probe.wait_until_held().await?;
    ensure!(probe.is_held_for(Duration::from_millis(300)).await, "the command ended before it was released");
    stage.release(&id).await?;
    probe.wait_until_released().await
}

const METHODS: [&str; 4] = ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"];

async fn id_is_invalid(stage: TestContext) -> Result<(), Fault> {
    for script in ["exit 0", "exec sleep 100"] {
        let id = stage.script(script).await?;
        if script == "exit 0" {
            stage.wait(&id).await?;
        }
        stage.release(&id).await?;
        for method in METHODS {
            stage.refused(method, stage.naming(&id)).await?;
        }
    }
    Ok(())
}

async fn refused_as_not_found(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exit 0").await?;
    stage.release(&id).await?;
    for method in METHODS {
        let refusal = stage.refused(method, stage.naming(&id)).await?;
        ensure!(refusal.code == -32002, "{method} was refused with {refusal}");
    }
    Ok(())
}

async fn pending_wait(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let request = stage.agent().fresh_id();
        waits.push(stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?);
    }
    stage.output(&id).await?;
    stage.release(&id).await?;
    for wait in waits {
        // With a status or an error, but answered.
        if let Ok(answer) = stage.agent().answer_to("a wait of a released terminal", wait).await? {
            ensure!(answer["exitCode"] != json!(0), "a killed command's wait was answered with {answer}");
        }
    }
    Ok(())
}

async fn answers_with_an_object(stage: TestContext) -> Result<(), Fault> {
    for script in ["exit 0", "exec sleep 100"] {
        let id = stage.script(script).await?;
        let answer = stage.release(&id).await?;
        ensure!(answer.is_object(), "release was answered with {answer}");
    }
    Ok(())
}

async fn ids_are_not_reused(stage: TestContext) -> Result<(), Fault> {
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = stage.script("exit 0").await?;
        ensure!(!ids.contains(&id), "{id} was given again");
        stage.release(&id).await?;
        ids.push(id);
    }
    Ok(())
}

async fn resources_are_freed(stage: TestContext) -> Result<(), Fault> {
    for _ in 0..200 {
        let id = stage.create(json!({"command": "true", "args": []})).await?;
        stage.wait(&id).await?;
        stage.release(&id).await?;
    }
    Ok(())
}

async fn others_live(stage: TestContext) -> Result<(), Fault> {
    let mut probe = stage.fifo_probe()?;
    let other = stage.script(&probe.holding_script("exec sleep 100")).await?;
    probe.wait_until_held().await?;
    let id = stage.script("exec sleep 100").await?;
    stage.release(&id).await?;
    ensure!(probe.is_held_for(Duration::from_millis(300)).await, "the other command is dead");
    ensure!(stage.output(&other).await?.exit.is_none(), "the other terminal has an exit status");
    Ok(())
}

async fn right_after_create(stage: TestContext) -> Result<(), Fault> {
    for _ in 0..10 {
        let id = stage.script("sleep 0.5; touch survived").await?;
        stage.release(&id).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(!stage.directory().join("survived").exists(), "a released command went on");
    Ok(())
}
