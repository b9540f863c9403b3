//! A client that stands between editor and agent: what is not its own passes through unharmed, both ways.

use serde_json::{Value, json};

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, Refusal, ensure},
    peer::{JsonRpcPeer, Mark},
    roles::EditorKind,
};

cases! {
    160 Must BothSides "v1 initialization: clientCapabilities.terminal":
        "the agent is told that there are terminals, whatever the editor has" => terminals_are_offered;
    161 Must BothSides "v1 initialization; draft v2 has no client terminals":
        "the agent is offered version 1, even by an editor that would speak a newer one" => version_one;
    162 Must BothSides "v1 initialization":
        "all else of initialize arrives as it was sent" => initialize_is_kept;
    163 Must BothSides "v1 terminals: the side that answers keeps them":
        "the editor never sees a terminal request" => editor_sees_no_terminals;
    164 Must BothSides "v1 extensibility":
        "requests that the backend does not know pass, both ways, with all their fields" => unknown_requests;
    165 Must BothSides "v1 extensibility":
        "notifications that the backend does not know pass, both ways" => unknown_notifications;
    166 Must BothSides "JSON-RPC 2.0: errors":
        "errors pass with code and message, both ways" => errors_pass;
    167 Must BothSides "JSON-RPC 2.0: each side numbers for itself":
        "the same id under way in both directions is not confused" => same_id_both_ways;
    168 Must BothSides "JSON-RPC 2.0: an id is answered as it was":
        "ids of every type pass" => ids_pass;
    169 Must BothSides "v1 file system":
        "the agent's file requests reach the editor, and come back" => files_pass;
    170 Must BothSides "v1 tool calls: session/request_permission":
        "the agent's own permission requests reach the editor, and come back" => permissions_pass;
    171 Should BothSides "RFC 8259: numbers have no limits":
        "large numbers, deep nests and odd texts pass without change" => values_are_kept;
    172 Must BothSides "v1 prompt turn":
        "messages to the editor keep their order" => order_is_kept;
    173 Should BothSides "practice: images are sent in messages":
        "a message of 5 MB passes" => large_messages_pass;
    175 Must BothSides "v1 cancellation: session/cancel":
        "session/cancel reaches the agent" => cancel_passes;
}

async fn initialize_seen(stage: &TestContext) -> Result<Value, Fault> {
    let seen = stage
        .agent()
        .wait_for_message("initialize at the agent", Mark::START, |message| message.method() == "initialize")
        .await?;
    Ok(seen.params().clone())
}

/// Does `steps` in a backend that has such an editor.
async fn with_editor(
    stage: &TestContext,
    editor: EditorKind,
    steps: impl AsyncFnOnce(&TestContext) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let other = stage.with_editor(editor).await?;
    let result = steps(&other).await;
    other.cleanup().await;
    result
}

async fn terminals_are_offered(stage: TestContext) -> Result<(), Fault> {
    with_editor(&stage, EditorKind::Plain, async |stage| {
        let seen = initialize_seen(stage).await?;
        let terminal = &seen["clientCapabilities"]["terminal"];
        ensure!(terminal == true, "clientCapabilities.terminal is {terminal}");
        Ok(())
    })
    .await
}

async fn version_one(stage: TestContext) -> Result<(), Fault> {
    with_editor(&stage, EditorKind::Newer, async |stage| {
        let version = initialize_seen(stage).await?["protocolVersion"].clone();
        ensure!(version == 1, "protocolVersion is {version}");
        Ok(())
    })
    .await
}

async fn initialize_is_kept(stage: TestContext) -> Result<(), Fault> {
    with_editor(&stage, EditorKind::Streaming, async |stage| {
        let (mut seen, mut sent) = (initialize_seen(stage).await?, EditorKind::Streaming.initialize());
        for side in [&mut seen, &mut sent] {
            side["clientCapabilities"]["terminal"] = json!(true);
        }
        ensure!(seen == sent, "sent {sent}, seen {seen}");
        Ok(())
    })
    .await
}

async fn editor_sees_no_terminals(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo x").await?;
    stage.wait(&id).await?;
    stage.output(&id).await?;
    stage.kill(&id).await?;
    stage.release(&id).await?;
    stage.refused("terminal/output", stage.naming(&id)).await?;
    // A round trip behind them.
    stage.ask("fs/read_text_file", json!({"sessionId": stage.session(), "path": "/x"})).await?;
    let seen = stage.editor()?.received_since(Mark::START);
    let foreign = seen.iter().find(|message| message.method().starts_with("terminal/"));
    ensure!(foreign.is_none(), "the editor saw {:?}", foreign.map(|message| &message.line));
    Ok(())
}

fn odd_params() -> Value {
    json!({"z": 1, "a": [null, true, {"_meta": {"x": "ünï 🦀 \u{0} \u{2028}"}}], "n": -0.5, "empty": {}})
}

async fn unknown_requests(stage: TestContext) -> Result<(), Fault> {
    for peer in [stage.agent(), stage.editor()?] {
        let answer = peer.call("_conformance/echo", odd_params()).await?;
        ensure!(answer == Ok(odd_params()), "the echo is {answer:?}");
    }
    Ok(())
}

async fn unknown_notifications(stage: TestContext) -> Result<(), Fault> {
    for (from, to) in [(stage.agent(), stage.editor()?), (stage.editor()?, stage.agent())] {
        let mark = to.mark();
        from.notify("_conformance/note", odd_params()).await;
        let seen = to
            .wait_for_message("the notification", mark, |message| message.method() == "_conformance/note")
            .await?;
        ensure!(*seen.params() == odd_params(), "it arrived as {}", seen.line);
        ensure!(seen.message.get("id").is_none(), "it arrived as a request: {}", seen.line);
    }
    Ok(())
}

async fn errors_pass(stage: TestContext) -> Result<(), Fault> {
    let expected = Refusal { code: -31999, message: "failed as asked".to_owned(), data: None };
    for peer in [stage.agent(), stage.editor()?] {
        let answer = peer.call("_conformance/fail", json!({})).await?;
        ensure!(answer == Err(expected.clone()), "the error arrived as {answer:?}");
        let answer = peer.call("_conformance/no_such_request", json!({})).await?;
        ensure!(
            answer.as_ref().is_err_and(|refusal| refusal.code == -32601),
            "it was answered with {answer:?}"
        );
    }
    Ok(())
}

async fn same_id_both_ways(stage: TestContext) -> Result<(), Fault> {
    let id = json!("the same id");
    let (agent, editor) = (stage.agent(), stage.editor()?);
    let marks = (agent.mark(), editor.mark());
    let from_agent = agent.send_request(&id, "_conformance/later", json!({"from": "agent"})).await?;
    let from_editor = editor.send_request(&id, "_conformance/later", json!({"from": "editor"})).await?;
    answer_later(agent, marks.0, json!({"by": "agent"})).await?;
    answer_later(editor, marks.1, json!({"by": "editor"})).await?;
    let to_agent = agent.answer_to("the agent's request", from_agent).await?;
    let to_editor = editor.answer_to("the editor's request", from_editor).await?;
    ensure!(to_agent == Ok(json!({"by": "editor"})), "the agent got {to_agent:?}");
    ensure!(to_editor == Ok(json!({"by": "agent"})), "the editor got {to_editor:?}");
    Ok(())
}

async fn answer_later(peer: &JsonRpcPeer, since: Mark, result: Value) -> Result<(), Fault> {
    let seen = peer
        .wait_for_message("a request to answer later", since, |message| {
            message.method() == "_conformance/later"
        })
        .await?;
    peer.answer(&seen.message["id"], result).await;
    Ok(())
}

async fn ids_pass(stage: TestContext) -> Result<(), Fault> {
    for peer in [stage.agent(), stage.editor()?] {
        for id in [json!(0), json!(-1), json!("0"), json!("4f1c6a1e-8f0a-4c62-9d5c-0a1b2c3d4e5f"), json!("")]
        {
            let answer = peer.call_with_id(id.clone(), "_conformance/echo", json!({"id": id})).await?;
            ensure!(answer == Ok(json!({"id": id})), "the request with id {id} was answered with {answer:?}");
        }
    }
    Ok(())
}

async fn files_pass(stage: TestContext) -> Result<(), Fault> {
    let params = json!({"sessionId": stage.session(), "path": "/some/file", "line": 3, "limit": 4});
    let answer = stage.ask("fs/read_text_file", params).await?;
    ensure!(answer["content"] == "content of \"/some/file\"", "the file is {answer}");
    let params = json!({"sessionId": stage.session(), "path": "/some/file", "content": "x"});
    stage.ask("fs/write_text_file", params.clone()).await?;
    let seen = stage.editor()?.received_since(Mark::START);
    let written =
        seen.iter().any(|message| message.method() == "fs/write_text_file" && *message.params() == params);
    ensure!(written, "the editor did not see the write");
    Ok(())
}

async fn permissions_pass(stage: TestContext) -> Result<(), Fault> {
    let params = json!({
        "sessionId": stage.session(),
        "toolCall": {"toolCallId": "call-1", "title": "Edit a file", "kind": "edit"},
        "options": [
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        ],
    });
    let answer = stage.ask("session/request_permission", params).await?;
    ensure!(answer["outcome"]["optionId"] == "yes", "the answer is {answer}");
    Ok(())
}

async fn values_are_kept(stage: TestContext) -> Result<(), Fault> {
    let params = r#"{"big":123456789012345678901234567890,"small":1e-7,"one":1.0,"zero":-0.0,"max":18446744073709551615,"deep":[[[[[[[[[[[[[[[[[[[[{"x":[]}]]]]]]]]]]]]]]]]]]]],"b":1,"a":2,"text":"\u00e9\ud83e\udd80\/"}"#;
    for (from, to) in [(stage.agent(), stage.editor()?), (stage.editor()?, stage.agent())] {
        let mark = to.mark();
        let line = format!(r#"{{"jsonrpc":"2.0","method":"_conformance/exact","params":{params}}}"#);
        from.send_line(line.as_bytes()).await;
        let seen = to
            .wait_for_message("the notification", mark, |message| message.method() == "_conformance/exact")
            .await?;
        ensure!(
            seen.line.contains("123456789012345678901234567890"),
            "the large number arrived as {}",
            seen.line
        );
        ensure!(seen.line.contains("18446744073709551615"), "the largest u64 arrived as {}", seen.line);
        let sent: Value = serde_json::from_str(params).unwrap_or_default();
        ensure!(*seen.params() == sent, "it arrived as {}", seen.line);
    }
    Ok(())
}

async fn order_is_kept(stage: TestContext) -> Result<(), Fault> {
    let mark = stage.editor()?.mark();
    for n in 0..200 {
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": n.to_string()}});
        stage.agent().notify("session/update", json!({"sessionId": stage.session(), "update": update})).await;
    }
    let text = |message: &crate::peer::ReceivedMessage| {
        message.params()["update"]["content"]["text"].as_str().map(str::to_owned)
    };
    let last = |message: &crate::peer::ReceivedMessage| text(message).as_deref() == Some("199");
    stage.editor()?.wait_for_message("the last of 200 updates", mark, last).await?;
    let seen: Vec<String> = stage.editor()?.received_since(mark).iter().filter_map(text).collect();
    let sent: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    ensure!(seen == sent, "200 updates arrived in another order, or not all of them");
    Ok(())
}

async fn large_messages_pass(stage: TestContext) -> Result<(), Fault> {
    let params = json!({"data": "x".repeat(5_000_000)});
    for peer in [stage.agent(), stage.editor()?] {
        let answer = peer.call("_conformance/echo", params.clone()).await?;
        ensure!(answer.as_ref() == Ok(&params), "5 MB did not come back");
    }
    Ok(())
}

async fn cancel_passes(stage: TestContext) -> Result<(), Fault> {
    let mark = stage.agent().mark();
    stage.editor()?.notify("session/cancel", json!({"sessionId": stage.session()})).await;
    stage
        .agent()
        .wait_for_message("session/cancel", mark, |message| message.method() == "session/cancel")
        .await?;
    let seen = stage.output_of("echo goes on").await?;
    ensure!(seen == "goes on\n", "a terminal after session/cancel wrote {seen:?}");
    Ok(())
}
