//! Ends of sessions, agents and editors: no command outlives the one it was run for.

use std::time::Duration;

use serde_json::json;

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, ensure},
    fifo_probe::FifoProbe,
    roles::EditorKind,
};

cases! {
    190 Must BothSides "v1 session setup: session/close frees what the session holds":
        "session/close ends the session's commands, and no others" => session_close;
    191 Must BothSides "v1 sessions: session/delete":
        "session/delete ends the session's commands" => session_delete;
    192 Must BothSides "practice: an agent may crash":
        "the agent's end ends its commands" => agent_ends;
    193 Must BothSides "practice: an editor may be closed at any time":
        "the editor's end ends the commands, and the backend itself" => editor_ends;
    194 Must BothSides "practice: an editor notices its agent's end by the end of its output":
        "the agent's end is the end for the editor" => agent_end_reaches_editor;
    195 Must BothSides "practice: an agent ends when its stdin does":
        "the editor's end is the end for the agent" => editor_end_reaches_agent;
    196 Should BothSides "practice: an agent may crash":
        "an agent that ends while creating leaves nothing" => agent_ends_while_creating;
}

/// Something that does not go of its own accord.
const STUBBORN: &str = "(setsid sh -c 'trap \"\" HUP TERM INT; sleep 100 & sleep 100' &); trap '' HUP TERM INT; while echo . >&9; do sleep 0.2; done";

async fn running(stage: &TestContext) -> Result<FifoProbe, Fault> {
    let mut probe = stage.fifo_probe()?;
    stage.script(&probe.holding_script(STUBBORN)).await?;
    probe.wait_until_held().await?;
    Ok(probe)
}

async fn session_close(stage: TestContext) -> Result<(), Fault> {
    ends_with(&stage, "session/close").await
}

async fn session_delete(stage: TestContext) -> Result<(), Fault> {
    ends_with(&stage, "session/delete").await
}

async fn ends_with(stage: &TestContext, method: &str) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    let result = async {
        let mut probe = running(&other).await?;
        let kept = other.other_session().await?;
        let script = "until [ -e go ]; do sleep 0.05; done; exit 5";
        let create =
            json!({"sessionId": kept, "command": "sh", "args": ["-c", script], "cwd": other.directory()});
        // The other session's own directory is the default; this one may lie outside of it.
        let created = other.call("terminal/create", create).await?.ok();
        let answer = other.editor()?.call(method, json!({"sessionId": other.session()})).await?;
        ensure!(answer.is_ok(), "{method} was answered with {answer:?}");
        probe.wait_until_released().await?;
        if let Some(created) = created {
            let naming = json!({"sessionId": kept, "terminalId": created["terminalId"]});
            let seen = other.ask("terminal/output", naming).await?;
            ensure!(seen["exitStatus"].is_null(), "another session's command has ended: {seen}");
        }
        Ok(())
    }
    .await;
    other.cleanup().await;
    result
}

async fn agent_ends(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    let result = async {
        let mut probe = running(&other).await?;
        other.agent().hang_up().await;
        probe.wait_until_released().await
    }
    .await;
    other.cleanup().await;
    result
}

async fn editor_ends(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    let result = async {
        let mut probe = running(&other).await?;
        other.editor()?.hang_up().await;
        probe.wait_until_released().await?;
        ensure!(other.editor()?.wait_for_end(other.slow_timeout()).await, "the backend still runs");
        Ok(())
    }
    .await;
    other.cleanup().await;
    result
}

async fn agent_end_reaches_editor(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    other.agent().hang_up().await;
    let has_ended = other.editor()?.wait_for_end(other.slow_timeout()).await;
    other.cleanup().await;
    ensure!(
        has_ended,
        "the editor's connection is still open {:?} after the agent's end",
        stage.slow_timeout()
    );
    Ok(())
}

async fn editor_end_reaches_agent(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    other.editor()?.hang_up().await;
    let has_ended = other.agent().wait_for_end(other.slow_timeout()).await;
    other.cleanup().await;
    ensure!(
        has_ended,
        "the agent's connection is still open {:?} after the editor's end",
        stage.slow_timeout()
    );
    Ok(())
}

async fn agent_ends_while_creating(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Plain).await?;
    let mut probe = other.fifo_probe()?;
    for _ in 0..20 {
        let script = probe.holding_script("while echo . >&9; do sleep 0.2; done");
        let params = other.creating(json!({"command": "sh", "args": ["-c", script]}));
        other.agent().send_request(&other.agent().fresh_id(), "terminal/create", params).await.map(drop)?;
    }
    other.agent().hang_up().await;
    other.editor()?.wait_for_end(other.slow_timeout()).await;
    // What was still being started has taken hold by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let result = probe.wait_until_released().await;
    other.cleanup().await;
    result
}
