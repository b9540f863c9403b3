//! Output: polled while the command runs and after, whole when it was waited for, and limited from the beginning.

use std::time::Duration;

use serde_json::json;

use crate::{
    case::cases,
    context::{ExitStatus, TestContext, shortened},
    fault::{Fault, ensure},
};

cases! {
    40 Must Agent "v1 terminals, output: without waiting for the command to complete":
        "output is seen while the command runs, without an exit status" => while_running;
    41 Must Agent "v1 terminals, output: exitStatus is present once the command has exited":
        "after the end the output comes with the exit status" => after_the_end;
    42 Must Agent "v1 terminals, output":
        "stdout and stderr are both captured" => both_streams;
    43 Should Agent "practice: a terminal shows what was written in the order of writing":
        "stdout and stderr are in the order of writing" => in_order;
    44 Must Agent "practice: agents poll and show what was added":
        "what was seen once is the beginning of what is seen later" => stable_prefix;
    45 Must Agent "practice: agents read the output when the wait is over":
        "after the wait the output is complete" => complete_after_wait;
    46 Must Agent "v1 schema: TerminalOutputResponse.truncated":
        "output below its limit, and exactly at it, is not truncated" => at_the_limit;
    47 Must Agent "v1 schema: outputByteLimit: truncated from the beginning, to stay within the limit":
        "past the limit the end is kept, never more than the limit" => past_the_limit;
    48 Must Agent "v1 schema: TerminalOutputResponse.truncated":
        "truncated stays true" => truncated_stays;
    49 Must Agent "v1 schema: outputByteLimit":
        "a limit of 0 keeps nothing, and says so" => limit_zero;
    50 Must Agent "v1 schema: outputByteLimit":
        "a limit of 1 keeps one byte" => limit_one;
    51 Must Agent "v1 schema: outputByteLimit is a u64":
        "the largest limits are taken" => huge_limits;
    52 Must Agent "v1 schema: TerminalOutputResponse.output is a string":
        "a command that writes nothing has the empty text" => nothing;
    53 Must Agent "v1 terminals, output":
        "a last line without its end is there" => no_final_newline;
    54 Should Agent "practice: agents compare and count what commands print":
        "line ends are as they were written" => line_ends;
    55 Must Agent "v1 terminals, output":
        "a megabyte without a line's end is there within a limit that holds it" => one_long_line;
    56 Must Agent "v1 terminals, output":
        "the output can be asked for again and again, with the same answer" => asked_again;
    57 Should Agent "practice: agents poll every 250 ms":
        "fifty polls of a megabyte take less than a second each" => polling_is_cheap;
    58 Must Agent "practice: `echo x; exit` is the commonest command of all":
        "of fifty short commands no output is lost" => short_commands;
    59 Should Agent "v1 schema: outputByteLimit is optional":
        "without a limit 100 KB are kept whole" => default_limit;
}

async fn while_running(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo begun; exec sleep 60").await?;
    let seen = stage.until(&id, "begun").await?;
    ensure!(seen.exit.is_none(), "a command that runs has the exit status {:?}", seen.exit);
    ensure!(!seen.truncated, "six bytes are said to be truncated");
    Ok(())
}

async fn after_the_end(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo done; exit 3").await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    ensure!(seen.exit == Some(ExitStatus::with_code(3)), "exitStatus is {:?}", seen.exit);
    ensure!(seen.text == "done\n", "the output is {:?}", seen.text);
    Ok(())
}

async fn both_streams(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("echo to-stdout; echo to-stderr >&2").await?;
    ensure!(seen.contains("to-stdout\n") && seen.contains("to-stderr\n"), "the output is {seen:?}");
    Ok(())
}

async fn in_order(stage: TestContext) -> Result<(), Fault> {
    let script = "i=0; while [ $i -lt 200 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done";
    let expected: String = (0..200).map(|n| format!("out{n}\nerr{n}\n")).collect();
    let seen = stage.output_of(script).await?;
    ensure!(seen == expected, "the lines are in another order");
    Ok(())
}

async fn stable_prefix(stage: TestContext) -> Result<(), Fault> {
    let id =
        stage.script("i=0; while [ $i -lt 40 ]; do echo \"line $i ü\"; sleep 0.02; i=$((i+1)); done").await?;
    let mut before = String::new();
    loop {
        let now = stage.output(&id).await?;
        ensure!(
            now.text.starts_with(&before),
            "{:?} was seen, then {:?}",
            shortened(&before),
            shortened(&now.text)
        );
        before = now.text;
        if now.exit.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    ensure!(before.lines().count() == 40, "the output has {} lines of 40", before.lines().count());
    Ok(())
}

async fn complete_after_wait(stage: TestContext) -> Result<(), Fault> {
    let id =
        stage.create(json!({"command": "seq", "args": ["1", "100000"], "outputByteLimit": 1 << 20})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    ensure!(seen.text == expected, "{} bytes of {} are there", seen.text.len(), expected.len());
    ensure!(seen.exit.is_some(), "after the wait there is no exit status");
    Ok(())
}

async fn at_the_limit(stage: TestContext) -> Result<(), Fault> {
    for limit in [10, 11, 1000] {
        let params = json!({"command": "/usr/bin/printf", "args": ["0123456789"], "outputByteLimit": limit});
        let id = stage.create(params).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(seen.text == "0123456789", "limit {limit}: the output is {:?}", seen.text);
        ensure!(!seen.truncated, "limit {limit}: ten bytes are said to be truncated");
    }
    Ok(())
}

async fn past_the_limit(stage: TestContext) -> Result<(), Fault> {
    let whole: String = (1..=5000).map(|n| format!("{n}\n")).collect();
    for limit in [9, 100, 4096, 20_000] {
        let params = json!({"command": "seq", "args": ["1", "5000"], "outputByteLimit": limit});
        let id = stage.create(params).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(seen.text.len() <= limit, "limit {limit}: {} bytes are kept", seen.text.len());
        ensure!(whole.ends_with(&seen.text), "limit {limit}: what is kept is not the end");
        ensure!(seen.text.len() == limit, "limit {limit}: only {} bytes of ASCII are kept", seen.text.len());
        ensure!(seen.truncated, "limit {limit}: truncated is not true");
    }
    Ok(())
}

async fn truncated_stays(stage: TestContext) -> Result<(), Fault> {
    let script = "seq 1 1000; echo half; sleep 0.3; echo x; sleep 0.1; echo end";
    let id = stage.create(json!({"command": "sh", "args": ["-c", script], "outputByteLimit": 50})).await?;
    stage.until(&id, "half").await?;
    for text in ["half", "end"] {
        ensure!(stage.until(&id, text).await?.truncated, "truncated is not true at {text:?}");
    }
    stage.wait(&id).await?;
    stage.kill(&id).await?;
    ensure!(stage.output(&id).await?.truncated, "truncated is not true after the end");
    Ok(())
}

async fn limit_zero(stage: TestContext) -> Result<(), Fault> {
    let id = stage.create(json!({"command": "echo", "args": ["x"], "outputByteLimit": 0})).await?;
    let exit = stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    ensure!(exit == ExitStatus::with_code(0), "the command ended with {exit:?}");
    ensure!(seen.text.is_empty(), "{:?} is kept", seen.text);
    ensure!(seen.truncated, "truncated is not true");
    Ok(())
}

async fn limit_one(stage: TestContext) -> Result<(), Fault> {
    let id =
        stage.create(json!({"command": "/usr/bin/printf", "args": ["xyz"], "outputByteLimit": 1})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    ensure!(seen.text == "z" && seen.truncated, "{seen:?} is kept");
    Ok(())
}

async fn huge_limits(stage: TestContext) -> Result<(), Fault> {
    for limit in [(1 << 53) - 1, i64::MAX as u64, u64::MAX] {
        let id = stage.create(json!({"command": "echo", "args": ["x"], "outputByteLimit": limit})).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(seen.text == "x\n" && !seen.truncated, "limit {limit}: {seen:?}");
    }
    Ok(())
}

async fn nothing(stage: TestContext) -> Result<(), Fault> {
    let id = stage.create(json!({"command": "true", "args": []})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    ensure!(seen.text.is_empty() && !seen.truncated, "{seen:?}");
    Ok(())
}

async fn no_final_newline(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("printf 'one\\ntwo'").await?;
    ensure!(seen == "one\ntwo", "the output is {seen:?}");
    Ok(())
}

async fn line_ends(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("printf 'a\\nb\\r\\nc\\rd\\n'").await?;
    ensure!(seen == "a\nb\r\nc\rd\n", "the output is {seen:?}");
    Ok(())
}

async fn one_long_line(stage: TestContext) -> Result<(), Fault> {
    let script = "head -c 1000000 /dev/zero | tr '\\0' x";
    let params = json!({"command": "sh", "args": ["-c", script], "outputByteLimit": 1_000_000});
    let id = stage.create(params).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?;
    ensure!(seen.text.len() == 1_000_000, "{} bytes are there", seen.text.len());
    ensure!(seen.text.bytes().all(|byte| byte == b'x') && !seen.truncated, "the bytes are others");
    Ok(())
}

async fn asked_again(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo again; exit 2").await?;
    stage.wait(&id).await?;
    let first = stage.output(&id).await?;
    for _ in 0..5 {
        let next = stage.output(&id).await?;
        ensure!(next == first, "first {first:?}, then {next:?}");
    }
    Ok(())
}

async fn polling_is_cheap(stage: TestContext) -> Result<(), Fault> {
    let script = "seq 1 200000 | head -c 1000000; echo full; exec sleep 60";
    let params = json!({"command": "sh", "args": ["-c", script], "outputByteLimit": 1 << 20});
    let id = stage.create(params).await?;
    stage.until(&id, "full").await?;
    let begun = tokio::time::Instant::now();
    for _ in 0..50 {
        stage.output(&id).await?;
    }
    ensure!(begun.elapsed() < stage.slow_timeout() * 4, "fifty polls took {:?}", begun.elapsed());
    Ok(())
}

async fn short_commands(stage: TestContext) -> Result<(), Fault> {
    for n in 0..50 {
        let id = stage.script(&format!("echo number {n}; exit {n}")).await?;
        let exit = stage.wait(&id).await?;
        let seen = stage.output(&id).await?.text;
        ensure!(exit == ExitStatus::with_code(n), "number {n} ended with {exit:?}");
        ensure!(seen == format!("number {n}\n"), "number {n} wrote {seen:?}");
        stage.release(&id).await?;
    }
    Ok(())
}

async fn default_limit(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("head -c 100000 /dev/zero | tr '\\0' x").await?;
    ensure!(seen.len() == 100_000, "{} bytes of 100000 are there", seen.len());
    Ok(())
}
