//! Ends: codes and signals as they were, for every waiter, whenever it asks.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    70 Must Agent "v1 schema: WaitForTerminalExitResponse has exitCode and signal at its top":
        "the answer to a wait is flat, with the exit code" => flat;
    71 Must Agent "v1 schema: exitCode":
        "exit codes are the command's own" => codes;
    72 Must Agent "v1 schema: signal":
        "a command that a signal ended never looks like success" => signals_are_no_success;
    73 Should Agent "practice: with exitCode null several agents read success":
        "a signal's end has both exitCode 128+n and the signal" => code_and_signal;
    74 Should Agent "practice: agents show the signal's name":
        "signals are named SIGTERM, SIGKILL and so on" => signal_names;
    75 Must Agent "v1 terminals, waiting":
        "a wait that comes after the end is answered at once, as those before" => late_waits;
    76 Must Agent "v1 terminals, waiting":
        "twenty waits are all answered, alike" => many_waits;
    77 Must Agent "v1 terminals: exit status":
        "the exit status of output is that of the wait" => same_status;
    78 Must Agent "JSON-RPC 2.0: requests are answered in any order":
        "a pending wait holds up nothing else" => waits_do_not_block;
    79 Should Agent "practice: a server in the background keeps the pipe open":
        "a child in the background does not hold up the end for ever" => background_child;
    80 Must Agent "v1 terminals, waiting: returns once the command exits":
        "a wait is not answered before the end" => not_before_the_end;
    81 Should Agent "practice: the timeout pattern":
        "create, wait against a timer, kill, output, release works" => timeout_pattern;
}

async fn flat(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exit 0").await?;
    let answer = stage.ask("terminal/wait_for_exit", stage.naming(&id)).await?;
    ensure!(answer["exitCode"] == 0, "the answer is {answer}");
    ensure!(answer["signal"].is_null(), "the answer is {answer}");
    Ok(())
}

async fn codes(stage: TestContext) -> Result<(), Fault> {
    for code in [0, 1, 2, 42, 126, 127, 130, 255] {
        let id = stage.script(&format!("exit {code}")).await?;
        let exit = stage.wait(&id).await?;
        ensure!(exit == ExitStatus::with_code(code), "`exit {code}` ended with {exit:?}");
    }
    Ok(())
}

const SIGNALS: [(&str, u64); 6] =
    [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("SEGV", 11), ("TERM", 15)];

async fn ended_by(stage: &TestContext, signal: &str) -> Result<ExitStatus, Fault> {
    let id = stage.script(&format!("kill -{signal} $$; sleep 10")).await?;
    stage.wait(&id).await
}

async fn signals_are_no_success(stage: TestContext) -> Result<(), Fault> {
    for (signal, _) in SIGNALS {
        let exit = ended_by(&stage, signal).await?;
        ensure!(exit.code != Some(0), "the end by SIG{signal} has exitCode 0");
        ensure!(exit.signal.is_some() || exit.code.is_some(), "the end by SIG{signal} says nothing");
    }
    Ok(())
}

async fn code_and_signal(stage: TestContext) -> Result<(), Fault> {
    for (signal, number) in SIGNALS {
        let exit = ended_by(&stage, signal).await?;
        ensure!(exit.code == Some(128 + number), "the end by SIG{signal} has exitCode {:?}", exit.code);
        ensure!(exit.signal.is_some(), "the end by SIG{signal} names no signal");
    }
    Ok(())
}

async fn signal_names(stage: TestContext) -> Result<(), Fault> {
    for (signal, _) in SIGNALS {
        let exit = ended_by(&stage, signal).await?;
        let expected = format!("SIG{signal}");
        ensure!(
            exit.signal.as_deref() == Some(&expected),
            "the end by {expected} is named {:?}",
            exit.signal
        );
    }
    Ok(())
}

async fn late_waits(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exit 5").await?;
    let first = stage.wait(&id).await?;
    for _ in 0..3 {
        let begun = Instant::now();
        let late = stage.wait(&id).await?;
        ensure!(late == first, "first {first:?}, later {late:?}");
        ensure!(begun.elapsed() < stage.slow_timeout(), "a late wait took {:?}", begun.elapsed());
    }
    Ok(())
}

async fn many_waits(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("sleep 0.5; exit 6").await?;
    let mut waits = Vec::new();
    for _ in 0..20 {
        let request = stage.agent().fresh_id();
        waits.push(stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?);
    }
    for wait in waits {
        let answer = stage.agent().answer_to("one of twenty waits", wait).await?;
        let code = answer.as_ref().map(|answer| answer["exitCode"].clone());
        ensure!(code == Ok(json!(6)), "one of twenty waits was answered with {answer:?}");
    }
    Ok(())
}

async fn same_status(stage: TestContext) -> Result<(), Fault> {
    for script in ["exit 0", "exit 9", "kill -TERM $$; sleep 10"] {
        let id = stage.script(script).await?;
        let (waited, seen) = (stage.wait(&id).await?, stage.output(&id).await?.exit);
        ensure!(seen.as_ref() == Some(&waited), "the wait says {waited:?}, output says {seen:?}");
    }
    Ok(())
}

async fn waits_do_not_block(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo begun; exec sleep 60").await?;
    let request = stage.agent().fresh_id();
    let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
    stage.until(&id, "begun").await?;
    let seen = stage.output_of("echo meanwhile").await?;
    ensure!(seen == "meanwhile\n", "another command wrote {seen:?}");
    stage.kill(&id).await?;
    let answer = stage.agent().answer_to("the wait", wait).await?;
    ensure!(answer.is_ok(), "the wait was refused: {answer:?}");
    Ok(())
}

async fn background_child(stage: TestContext) -> Result<(), Fault> {
    let begun = Instant::now();
    let id = stage.script("echo begun; sleep 100 & exit 7").await?;
    let exit = stage.wait(&id).await?;
    ensure!(exit == ExitStatus::with_code(7), "the command ended with {exit:?}");
    ensure!(begun.elapsed() < stage.slow_timeout(), "the end was told after {:?}", begun.elapsed());
    let seen = stage.output(&id).await?.text;
    // Behind it a client may say what became of the child.
    ensure!(seen.starts_with("begun\n"), "the output is {seen:?}");
    Ok(())
}

async fn not_before_the_end(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("until [ -e go ]; do sleep 0.05; done; exit 8").await?;
    let request = stage.agent().fresh_id();
    let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
    // Two round trips, which the wait's answer would have overtaken.
    stage.output(&id).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(stage.output(&id).await?.exit.is_none(), "a command that runs has an exit status");
    std::fs::write(stage.directory().join("go"), "")?;
    let answer = stage.agent().answer_to("the wait", wait).await?;
    let code = answer.as_ref().map(|answer| answer["exitCode"].clone());
    ensure!(code == Ok(json!(8)), "the wait was answered with {answer:?}");
    Ok(())
}

async fn timeout_pattern(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo begun; sleep 100; echo never").await?;
    stage.until(&id, "begun").await?;
    let request = stage.agent().fresh_id();
    let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    stage.kill(&id).await?;
    let answer = stage.agent().answer_to("the wait", wait).await?;
    ensure!(answer.is_ok(), "the wait was refused: {answer:?}");
    let seen = stage.output(&id).await?;
    ensure!(seen.text == "begun\n", "the output is {:?}", seen.text);
    ensure!(seen.exit.as_ref().is_some_and(|exit| exit.code != Some(0)), "exitStatus is {:?}", seen.exit);
    stage.release(&id).await.map(drop)
}
