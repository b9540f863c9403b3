//! Terminals in tool calls: an editor that has no terminals must be shown something that it understands.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    case::cases,
    context::TestContext,
    fault::{Fault, ensure},
    peer::{Mark, ReceivedMessage},
    roles::EditorKind,
};

cases! {
    180 Must BothSides "practice: an editor may drop an update that names a terminal it does not know":
        "an editor without terminals never sees a terminal's id in a tool call's content" => no_unknown_terminals;
    181 Must BothSides "practice: the user sees what is run":
        "an editor without terminals is shown the output as text" => shown_as_text;
    182 Should BothSides "practice: the user sees what is run while it runs":
        "the text is kept up to date while the command runs" => kept_up_to_date;
    183 Must BothSides "v1 terminals, in tool calls: output stays displayed after release":
        "the text is there after release, whole" => there_after_release;
    184 Must BothSides "v1 tool calls: content":
        "other content alongside a terminal is kept, in its order" => other_content_is_kept;
    185 Must BothSides "practice: _meta.terminal_output":
        "an editor that takes output in _meta gets terminal_info, the whole terminal_output and terminal_exit" => streamed;
    186 Should BothSides "practice: _meta.terminal_exit":
        "a signal's end is in terminal_exit too" => streamed_signal;
    187 Must BothSides "v1 tool calls: tool_call_update":
        "a terminal that comes with a later update is shown too" => in_a_later_update;
    188 Should BothSides "practice: agents embed ids they were given and forget them":
        "a tool call that names a terminal nobody knows still reaches the editor" => unknown_terminal_is_passed;
}

/// A tool call with such content.
async fn show(stage: &TestContext, kind: &str, call: &str, content: Value) {
    let mut update = json!({"sessionUpdate": kind, "toolCallId": call, "content": content});
    if kind == "tool_call" {
        update["title"] = json!("run something");
        update["kind"] = json!("execute");
        update["status"] = json!("in_progress");
    }
    stage.agent().notify("session/update", json!({"sessionId": stage.session(), "update": update})).await;
}

fn embedded(id: &str) -> Value {
    json!({"type": "terminal", "terminalId": id})
}

/// Whether this is an update of that tool call.
fn is_of(call: &str) -> impl Fn(&ReceivedMessage) -> bool {
    move |message| message.method() == "session/update" && message.params()["update"]["toolCallId"] == call
}

/// All text of a tool call's content.
fn text_of(message: &ReceivedMessage) -> String {
    let blocks = message.params()["update"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter_map(|block| block["content"]["text"].as_str()).collect()
}

/// The text that the editor shows in the end: that of the last update with content.
fn shown_in_the_end(stage: &TestContext, call: &str) -> Result<String, Fault> {
    let of_call = is_of(call);
    let updates = stage.editor()?.received_since(Mark::START);
    let mut with_content =
        updates.iter().filter(|message| of_call(message) && message.params()["update"]["content"].is_array());
    Ok(with_content.next_back().map(text_of).unwrap_or_default())
}

async fn no_unknown_terminals(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo something").await?;
    show(&stage, "tool_call", "call-a", json!([embedded(&id)])).await;
    stage.wait(&id).await?;
    show(&stage, "tool_call_update", "call-a", json!([embedded(&id)])).await;
    stage.editor()?.wait_for_message("the tool call", Mark::START, is_of("call-a")).await?;
    stage.release(&id).await?;
    stage.ask("fs/read_text_file", json!({"sessionId": stage.session(), "path": "/x"})).await?;
    let updates = stage.editor()?.received_since(Mark::START);
    let blocks =
        updates.iter().filter_map(|message| message.params()["update"]["content"].as_array()).flatten();
    for block in blocks {
        ensure!(block["type"] != "terminal", "the editor was shown {block}");
    }
    Ok(())
}

async fn shown_as_text(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo something to see").await?;
    show(&stage, "tool_call", "call-b", json!([embedded(&id)])).await;
    stage.wait(&id).await?;
    let is_of_call = is_of("call-b");
    let shows =
        |message: &ReceivedMessage| is_of_call(message) && text_of(message).contains("something to see");
    stage.editor()?.wait_for_message("the output as text", Mark::START, shows).await.map(drop)
}

async fn kept_up_to_date(stage: TestContext) -> Result<(), Fault> {
    let id =
        stage.script("echo first; until [ -e go ]; do sleep 0.05; done; echo second; exec sleep 100").await?;
    show(&stage, "tool_call", "call-c", json!([embedded(&id)])).await;
    let is_of_call = is_of("call-c");
    let shows = |text: &'static str| {
        let is_of_call = &is_of_call;
        move |message: &ReceivedMessage| is_of_call(message) && text_of(message).contains(text)
    };
    stage.editor()?.wait_for_message("the first line as text", Mark::START, shows("first")).await?;
    std::fs::write(stage.directory().join("go"), "")?;
    stage.editor()?.wait_for_message("the second line as text", Mark::START, shows("second")).await?;
    ensure!(stage.output(&id).await?.exit.is_none(), "the command has ended");
    Ok(())
}

async fn there_after_release(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("seq 1 2000; echo the end").await?;
    show(&stage, "tool_call", "call-d", json!([embedded(&id)])).await;
    stage.wait(&id).await?;
    stage.release(&id).await?;
    let is_of_call = is_of("call-d");
    let shows = |message: &ReceivedMessage| is_of_call(message) && text_of(message).contains("the end");
    stage.editor()?.wait_for_message("the output after release", Mark::START, shows).await?;
    // What an agent says of the call after the release.
    let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "call-d", "status": "completed"});
    stage.agent().notify("session/update", json!({"sessionId": stage.session(), "update": update})).await;
    show(&stage, "tool_call_update", "call-d", json!([embedded(&id)])).await;
    stage.ask("fs/read_text_file", json!({"sessionId": stage.session(), "path": "/x"})).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let shown = shown_in_the_end(&stage, "call-d")?;
    ensure!(shown.contains("1999\n2000\nthe end"), "in the end {} bytes are shown", shown.len());
    Ok(())
}

async fn other_content_is_kept(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo in the middle").await?;
    stage.wait(&id).await?;
    let before = json!({"type": "content", "content": {"type": "text", "text": "BEFORE "}});
    let after = json!({"type": "diff", "path": "/some/file", "oldText": "a", "newText": "b"});
    show(&stage, "tool_call", "call-e", json!([before, embedded(&id), after])).await;
    let is_of_call = is_of("call-e");
    let complete =
        |message: &ReceivedMessage| is_of_call(message) && text_of(message).contains("in the middle");
    let seen =
        stage.editor()?.wait_for_message("the output between other content", Mark::START, complete).await?;
    let content = &seen.params()["update"]["content"];
    ensure!(content[0] == before && content[2] == after, "the content arrived as {content}");
    Ok(())
}

/// The `_meta` of all updates of a call that has such a key.
fn metas(stage: &TestContext, call: &str, key: &str) -> Result<Vec<Value>, Fault> {
    let of_call = is_of(call);
    let updates = stage.editor()?.received_since(Mark::START);
    let metas = updates
        .iter()
        .filter(|message| of_call(message))
        .map(|message| &message.params()["update"]["_meta"][key]);
    Ok(metas.filter(|meta| !meta.is_null()).cloned().collect())
}

async fn streamed(stage: TestContext) -> Result<(), Fault> {
    with_streaming(
        &stage,
        "i=0; while [ $i -lt 30 ]; do echo \"line $i ü\"; sleep 0.02; i=$((i+1)); done; exit 3",
        async |stage, id| {
            let directory = stage.directory().display().to_string();
            let info = metas(stage, "call-f", "terminal_info")?;
            let named =
                info.first().is_some_and(|info| info["terminal_id"].is_string() && info["cwd"] == directory);
            ensure!(named, "terminal_info is {info:?} (the terminal is {id})");
            let data: String = metas(stage, "call-f", "terminal_output")?
                .iter()
                .filter_map(|output| output["data"].as_str().map(str::to_owned))
                .collect();
            let whole: String = (0..30).map(|n| format!("line {n} ü\n")).collect();
            ensure!(data == whole, "terminal_output is {data:?}");
            let exit = metas(stage, "call-f", "terminal_exit")?;
            ensure!(exit.len() == 1 && exit[0]["exit_code"] == 3, "terminal_exit is {exit:?}");
            Ok(())
        },
    )
    .await
}

async fn streamed_signal(stage: TestContext) -> Result<(), Fault> {
    with_streaming(&stage, "kill -KILL $$", async |stage, _| {
        let exit = metas(stage, "call-f", "terminal_exit")?;
        ensure!(exit.iter().any(|exit| exit["signal"] == "SIGKILL"), "terminal_exit is {exit:?}");
        Ok(())
    })
    .await
}

/// Shows a script's terminal to an editor that takes output in `_meta`, and looks when it has been told the exit.
async fn with_streaming(
    stage: &TestContext,
    script: &str,
    look: impl AsyncFnOnce(&TestContext, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let other = stage.with_editor(EditorKind::Streaming).await?;
    let result = async {
        let id = other.script(script).await?;
        show(&other, "tool_call", "call-f", json!([embedded(&id)])).await;
        let is_of_call = is_of("call-f");
        let tells_exit = |message: &ReceivedMessage| {
            is_of_call(message) && message.params()["update"]["_meta"]["terminal_exit"].is_object()
        };
        other.editor()?.wait_for_message("terminal_exit", Mark::START, tells_exit).await?;
        look(&other, &id).await
    }
    .await;
    other.cleanup().await;
    result
}

async fn in_a_later_update(stage: TestContext) -> Result<(), Fault> {
    show(&stage, "tool_call", "call-g", json!([])).await;
    let id = stage.script("echo came later").await?;
    show(&stage, "tool_call_update", "call-g", json!([embedded(&id)])).await;
    let is_of_call = is_of("call-g");
    let shows = |message: &ReceivedMessage| is_of_call(message) && text_of(message).contains("came later");
    stage.editor()?.wait_for_message("the output as text", Mark::START, shows).await.map(drop)
}

async fn unknown_terminal_is_passed(stage: TestContext) -> Result<(), Fault> {
    show(&stage, "tool_call", "call-h", json!([embedded("no-such-terminal")])).await;
    let seen = stage.editor()?.wait_for_message("the tool call", Mark::START, is_of("call-h")).await?;
    ensure!(seen.params()["update"]["title"] == "run something", "it arrived as {}", seen.line);
    Ok(())
}
