//! Kill: the command ends with all that it started, and the terminal stays.

use std::time::Duration;

use serde_json::json;

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    90 Must Agent "v1 terminals, killing":
        "kill ends a running command, and its end is no success" => ends_the_command;
    91 Must Agent "v1 terminals, killing: the terminal remains valid for output and wait_for_exit":
        "after kill the id is valid for output and wait, with what was written before" => id_stays;
    92 Must Agent "v1 schema: KillTerminalResponse is an object":
        "kill is answered with an object" => answers_with_an_object;
    93 Must Agent "practice: the command may end while the kill is on its way":
        "kill of a command that has ended is taken, and changes nothing" => after_the_end;
    94 Must Agent "practice: agents kill twice":
        "a second kill is taken" => twice;
    95 Must Agent "v1 terminals, killing":
        "a wait that is pending is answered when its command is killed" => pending_wait;
    96 Must Agent "practice: a command is all that it started":
        "a child in the background dies with the command" => children_die;
    97 Should Agent "practice: a command is all that it started":
        "a child that has fled into a session of its own dies with the command" => fled_children_die;
    98 Must Agent "v1 terminals, killing":
        "a command that ignores TERM, INT and HUP is killed all the same" => ignoring_signals;
    99 Should Agent "signal(7): a stopped process takes no signal but KILL and CONT":
        "a command that has stopped itself is killed" => stopped;
    100 Must Agent "v1 terminals: one id, one command":
        "kill touches no other terminal" => others_live;
    101 Should Agent "practice: programs clean up at TERM":
        "a command is asked by TERM, and what it writes then is kept" => asked_first;
}

async fn ends_the_command(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    stage.kill(&id).await?;
    let exit = stage.wait(&id).await?;
    ensure!(exit.code != Some(0), "the killed command ended with {exit:?}");
    ensure!(exit.code.is_some() || exit.signal.is_some(), "the end has neither a code nor a signal");
    Ok(())
}

async fn id_stays(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo before; exec sleep 100").await?;
    stage.until(&id, "before").await?;
    stage.kill(&id).await?;
    let exit = stage.wait(&id).await?;
    for _ in 0..2 {
        let seen = stage.output(&id).await?;
        ensure!(seen.text == "before\n", "the output is {:?}", seen.text);
        ensure!(seen.exit.as_ref() == Some(&exit), "the wait says {exit:?}, output says {:?}", seen.exit);
        ensure!(stage.wait(&id).await? == exit, "a second wait has another answer");
    }
    Ok(())
}

async fn answers_with_an_object(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    let answer = stage.kill(&id).await?;
    ensure!(answer.is_object(), "kill was answered with {answer}");
    Ok(())
}

async fn after_the_end(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo all; exit 0").await?;
    stage.wait(&id).await?;
    let before = stage.output(&id).await?;
    stage.kill(&id).await?;
    let after = stage.output(&id).await?;
    ensure!(
        before == after && stage.wait(&id).await? == ExitStatus::with_code(0),
        "{before:?} became {after:?}"
    );
    Ok(())
}

async fn twice(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    stage.kill(&id).await?;
    stage.kill(&id).await?;
    stage.wait(&id).await?;
    stage.kill(&id).await.map(drop)
}

async fn pending_wait(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    let request = stage.agent().fresh_id();
    let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
    stage.output(&id).await?;
    stage.kill(&id).await?;
    let answer = stage.agent().answer_to("the pending wait", wait).await?;
    ensure!(
        answer.as_ref().is_ok_and(|answer| answer["exitCode"] != json!(0)),
        "the pending wait was answered with {answer:?}"
    );
    Ok(())
}

async fn children_die(stage: TestContext) -> Result<(), Fault> {
    dies_with_kill(&stage, "sleep 100 & sh -c 'sleep 100 & sleep 100' & wait").await
}

async fn fled_children_die(stage: TestContext) -> Result<(), Fault> {
    dies_with_kill(&stage, "setsid sh -c 'sleep 100' & (setsid sh -c 'trap \"\" HUP TERM; sleep 100 & sleep 100' &) ; wait; sleep 100").await
}

async fn ignoring_signals(stage: TestContext) -> Result<(), Fault> {
    dies_with_kill(&stage, "trap '' TERM INT HUP QUIT; while echo . >&9; do sleep 0.2; done").await
}

async fn stopped(stage: TestContext) -> Result<(), Fault> {
    dies_with_kill(&stage, "(sleep 0.3; kill -STOP $$) & wait; sleep 100").await
}

async fn dies_with_kill(stage: &TestContext, script: &str) -> Result<(), Fault> {
    let mut probe = stage.fifo_probe()?;
    let id = stage.script(&probe.holding_script(script)).await?;
    probe.wait_until_held().await?;
    ensure!(probe.is_held_for(Duration::from_millis(500)).await, "the command ended before it was killed");
    stage.kill(&id).await?;
    probe.wait_until_released().await?;
    stage.wait(&id).await.map(drop)
}

async fn others_live(stage: TestContext) -> Result<(), Fault> {
    let mut probe = stage.fifo_probe()?;
    let other = stage.script(&probe.holding_script("exec sleep 100")).await?;
    probe.wait_until_held().await?;
    let id = stage.script("exec sleep 100").await?;
    stage.kill(&id).await?;
    stage.wait(&id).await?;
    ensure!(probe.is_held_for(Duration::from_millis(300)).await, "the other command is dead");
    ensure!(stage.output(&other).await?.exit.is_none(), "the other terminal has an exit status");
    Ok(())
}

async fn asked_first(stage: TestContext) -> Result<(), Fault> {
    let id =
        stage.script("trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.1; done").await?;
    stage.until(&id, "ready").await?;
    stage.kill(&id).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    // A shell may say "Terminated" of its child in between.
    ensure!(seen.starts_with("ready\n") && seen.contains("cleaned\n"), "the output is {seen:?}");
    Ok(())
}
