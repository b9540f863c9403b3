//! Sessions that are not simply new: loaded, resumed and forked, with the directories and the terminals that each has.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, ensure},
    fifo_probe::FifoProbe,
};

cases! {
    174 Must BothSides "v1 session setup: load and resume carry cwd":
        "the directory of session/load and session/resume becomes the default cwd" => loaded_cwd;
    176 Should BothSides "draft session/fork: a fork carries cwd":
        "the directory of session/fork becomes the fork's default cwd, and not its parent's" => forked_cwd;
    177 Should BothSides "v1 terminals: a terminal is its session's":
        "a fork and its parent cannot name each other's terminals, and the end of one ends none of the other's"
        => forked_terminals;
    178 Must BothSides "JSON-RPC 2.0: what is refused has not happened":
        "a load that the agent refuses leaves a session that was open as it was" => refused_load;
}

async fn loaded_cwd(stage: TestContext) -> Result<(), Fault> {
    for method in ["session/load", "session/resume"] {
        let directory = directory(&stage, &method.replace('/', "-"))?;
        let session = format!("an older one, {method}");
        editor_asks(&stage, method, json!({"sessionId": session, "cwd": directory, "mcpServers": []}))
            .await?;
        works_in(&stage, method, &session, &directory).await?;
    }
    Ok(())
}

async fn forked_cwd(stage: TestContext) -> Result<(), Fault> {
    let fork_directory = directory(&stage, "fork")?;
    let fork = fork(&stage, &fork_directory).await?;
    works_in(&stage, "the fork", &fork, &fork_directory).await?;
    works_in(&stage, "its parent", stage.session(), stage.directory()).await
}

async fn forked_terminals(stage: TestContext) -> Result<(), Fault> {
    let of_parent = stage.script("exec sleep 600").await?;
    let directory = directory(&stage, "fork")?;
    let (first, of_first, mut first_lives) = fork_with_command(&stage, &directory).await?;
    let (second, of_second, mut second_lives) = fork_with_command(&stage, &directory).await?;
    for (session, terminal) in
        [(stage.session(), &of_first), (&*first, &of_parent), (&*first, &of_second), (&*second, &of_first)]
    {
        stage.refused("terminal/output", json!({"sessionId": session, "terminalId": terminal})).await?;
    }
    editor_asks(&stage, "session/close", json!({"sessionId": first})).await?;
    first_lives.wait_until_released().await?;
    let seen = stage.ask("terminal/output", json!({"sessionId": second, "terminalId": of_second})).await?;
    ensure!(seen["exitStatus"].is_null(), "the end of one fork ended the other's command: {seen}");
    editor_asks(&stage, "session/close", json!({"sessionId": second})).await?;
    second_lives.wait_until_released().await?;
    let seen = stage.output(&of_parent).await?;
    ensure!(seen.exit.is_none(), "the end of its forks ended a command of the parent's");
    Ok(())
}

async fn fork_with_command(
    stage: &TestContext,
    directory: &Path,
) -> Result<(String, String, FifoProbe), Fault> {
    let session = fork(stage, directory).await?;
    let mut probe = FifoProbe::create_in(directory, stage.slow_timeout())?;
    let script = probe.holding_script("exec sleep 600");
    let params = json!({"sessionId": session, "command": "sh", "args": ["-c", script]});
    let created = stage.ask("terminal/create", params).await?;
    probe.wait_until_held().await?;
    Ok((session, created["terminalId"].as_str().unwrap_or_default().to_owned(), probe))
}

async fn refused_load(stage: TestContext) -> Result<(), Fault> {
    let elsewhere = directory(&stage, "elsewhere")?;
    let running = stage.script("exec sleep 600").await?;
    for cwd in [stage.directory(), &elsewhere] {
        let params = json!({"sessionId": stage.session(), "cwd": cwd, "mcpServers": [],
            "_meta": {"conformance": "refuse"}});
        let answer = stage.editor()?.call("session/load", params).await?;
        ensure!(answer.is_err(), "the agent's refusal did not come back");
        ensure!(stage.output(&running).await?.exit.is_none(), "a refused load ended a command");
        works_in(&stage, "after a refused load", stage.session(), stage.directory()).await?;
    }
    Ok(())
}

fn directory(stage: &TestContext, name: &str) -> Result<PathBuf, Fault> {
    let directory = stage.directory().join(name);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

async fn editor_asks(stage: &TestContext, method: &str, params: Value) -> Result<Value, Fault> {
    let answer = stage.editor()?.call(method, params).await?;
    answer.map_err(|refusal| Fault::Refused { method: method.to_owned(), refusal })
}

async fn fork(stage: &TestContext, cwd: &Path) -> Result<String, Fault> {
    let params = json!({"sessionId": stage.session(), "cwd": cwd, "mcpServers": []});
    let answer = editor_asks(stage, "session/fork", params).await?;
    let id = answer["sessionId"].as_str();
    id.map(str::to_owned).ok_or_else(|| Fault::Unmet(format!("session/fork was answered with {answer}")))
}

async fn works_in(stage: &TestContext, what: &str, session: &str, directory: &Path) -> Result<(), Fault> {
    let created = stage.ask("terminal/create", json!({"sessionId": session, "command": "pwd"})).await?;
    let naming = json!({"sessionId": session, "terminalId": created["terminalId"]});
    stage.ask("terminal/wait_for_exit", naming.clone()).await?;
    let seen = stage.ask("terminal/output", naming.clone()).await?;
    stage.ask("terminal/release", naming).await?;
    ensure!(seen["output"] == format!("{}\n", directory.display()), "{what}: pwd wrote {}", seen["output"]);
    Ok(())
}
