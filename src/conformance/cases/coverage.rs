//! Agents whose commands the client does not get: of a version without client terminals, or that run commands themselves.

use serde_json::json;

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, ensure},
    peer::Mark,
    roles::EditorKind,
};

cases! {
    197 Should BothSides "draft v2 has no client terminals; there clients are told to offer tools by MCP":
        "an agent that speaks only a later version is refused, or its sessions get an MCP server of the backend's"
        => later_agent;
    198 Must BothSides "v1 session setup: mcpServers":
        "the editor's MCP servers arrive as they were sent, also when an agent has run a command itself; what is added has \
         another name" => servers_are_kept;
}

async fn later_agent(stage: TestContext) -> Result<(), Fault> {
    let later = match stage.with_editor(EditorKind::Later).await {
        Err(Fault::Refused { .. }) => return Ok(()),
        later => later?,
    };
    let result = has_a_server(&later).await;
    later.cleanup().await;
    result
}

async fn has_a_server(stage: &TestContext) -> Result<(), Fault> {
    let opened = stage
        .agent()
        .wait_for_message("session/new at the agent", Mark::START, |message| {
            message.method() == "session/new"
        })
        .await?;
    let servers = &opened.params()["mcpServers"];
    let is_typed = servers[0]["type"] == "stdio" && servers[0]["command"].is_string();
    ensure!(
        is_typed,
        "the agent shows terminals of its own, and has no MCP server to use instead: {servers}"
    );
    Ok(())
}

async fn servers_are_kept(stage: TestContext) -> Result<(), Fault> {
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": "its own", "title": "ls", "kind": "execute",
        "status": "completed"});
    stage.agent().notify("session/update", json!({"sessionId": stage.session(), "update": update})).await;
    stage.ask("fs/read_text_file", json!({"sessionId": stage.session(), "path": "/x"})).await?;
    let own = json!([
        {"name": "provost", "command": "/no/such/server", "args": ["a"], "env": [{"name": "A", "value": "b"}]},
        {"type": "http", "name": "over http", "url": "http://127.0.0.1:9/mcp", "headers": [], "_meta": {"x": 1}},
    ]);
    let mark = stage.agent().mark();
    let params = json!({"cwd": stage.directory(), "mcpServers": own});
    let opened = stage.editor()?.call("session/new", params).await?;
    ensure!(opened.is_ok(), "session/new was answered with {opened:?}");
    let seen = stage
        .agent()
        .wait_for_message("session/new at the agent", mark, |message| message.method() == "session/new")
        .await?;
    let servers = seen.params()["mcpServers"].as_array().cloned().unwrap_or_default();
    let sent = own.as_array().cloned().unwrap_or_default();
    ensure!(servers.starts_with(&sent), "sent {own}, seen {servers:?}");
    let is_taken = |name| sent.iter().any(|server| server["name"] == name);
    let again = servers.iter().skip(sent.len()).find(|server| is_taken(server["name"].clone()));
    ensure!(again.is_none(), "a server was added under a name that was taken: {again:?}");
    Ok(())
}
