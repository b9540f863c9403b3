//! The wire: ids of every type, answers in any order, cancelled requests, and lines that are no messages.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    130 Must Agent "JSON-RPC 2.0: an id is a string, a number or null, and is answered as it was":
        "ids that are numbers, zero, texts and UUIDs are answered as they were sent" => ids_of_every_type;
    131 Must Agent "JSON-RPC 2.0: requests are answered in any order":
        "fifty requests under way at once get their own answers" => interleaved;
    132 Must Agent "v1 cancellation: $/cancel_request":
        "a cancelled wait is answered, with its result or -32800" => cancelled_wait;
    133 Must Agent "v1 cancellation: $/cancel_request":
        "a cancelled create is answered, and leaves nothing behind when it was refused" => cancelled_create;
    134 Must Agent "v1 cancellation":
        "to cancel what is not under way does no harm" => cancelled_nothing;
    135 Must Agent "v1 cancellation":
        "after a cancelled wait the terminal works as before" => usable_after_cancel;
    136 Should Agent "JSON-RPC 2.0: -32700":
        "a line that is no JSON does not end the connection" => no_json;
    137 Must Agent "JSON-RPC 2.0: a notification is not answered":
        "a notification that nobody knows is not answered" => unknown_notification;
    138 Must Agent "practice: agents have long command lines":
        "a message of 2 MB is answered" => a_large_message;
    139 Must Agent "JSON-RPC 2.0, one message a line":
        "nothing but JSON-RPC messages came in all cases so far, and no answer to nothing" => no_unexpected;
    140 Should Agent "JSON-RPC 2.0":
        "fields in another order, with spaces between them, are the same message" => odd_layout;
}

async fn ids_of_every_type(stage: TestContext) -> Result<(), Fault> {
    let ids = [
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_991_u64),
        json!("text"),
        json!("0"),
        json!("4f1c6a1e-8f0a-4c62-9d5c-0a1b2c3d4e5f"),
        json!("with \"quotes\" and ünï 🦀"),
    ];
    for id in ids {
        let params = stage.creating(json!({"command": "true", "args": []}));
        let answer = stage.agent().call_with_id(id.clone(), "terminal/create", params).await?;
        let answer = answer.map_err(|refusal| Fault::Refused { method: format!("create {id}"), refusal })?;
        let terminal = stage.created(&answer)?;
        let waited =
            stage.agent().call_with_id(id.clone(), "terminal/wait_for_exit", stage.naming(&terminal)).await?;
        ensure!(waited.is_ok(), "the wait with id {id} was answered with {waited:?}");
    }
    Ok(())
}

async fn interleaved(stage: TestContext) -> Result<(), Fault> {
    let mut terminals = Vec::new();
    for n in 0..5 {
        let script = format!("echo this is {n}; until [ -e go ]; do sleep 0.05; done; exit {n}");
        let id = stage.script(&script).await?;
        stage.until(&id, &format!("this is {n}")).await?;
        terminals.push(id);
    }
    let mut asked = Vec::new();
    for round in 0..10 {
        for (n, id) in terminals.iter().enumerate() {
            let method = if round % 2 == 0 { "terminal/output" } else { "terminal/wait_for_exit" };
            let request = json!(format!("{round}-{n}"));
            asked.push((n, method, stage.agent().send_request(&request, method, stage.naming(id)).await?));
        }
    }
    std::fs::write(stage.directory().join("go"), "")?;
    // The last first: nothing may depend on the order of the answers.
    for (n, method, request) in asked.into_iter().rev() {
        let answer = stage.agent().answer_to(method, request).await?;
        let answer = answer.map_err(|refusal| Fault::Refused { method: method.to_owned(), refusal })?;
        let own = match method {
            "terminal/output" => answer["output"] == format!("this is {n}\n"),
            _ => answer["exitCode"] == n,
        };
        ensure!(own, "{method} of terminal {n} was answered with {answer}");
    }
    Ok(())
}

/// An answer to a cancelled request: its result, or "request cancelled".
fn is_fair(answer: &Result<Value, crate::fault::Refusal>) -> bool {
    answer.as_ref().map_or_else(|refusal| refusal.code == -32800, |_| true)
}

async fn cancelled_wait(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exec sleep 100").await?;
    for request in [json!(70_001), json!("a wait to cancel")] {
        let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
        stage.output(&id).await?;
        stage.agent().notify("$/cancel_request", json!({"requestId": request})).await;
        let answer = stage.agent().answer_to("the cancelled wait", wait).await?;
        ensure!(is_fair(&answer), "the cancelled wait was answered with {answer:?}");
    }
    Ok(())
}

async fn cancelled_create(stage: TestContext) -> Result<(), Fault> {
    let mut probe = stage.fifo_probe()?;
    for n in 0..5 {
        let request = json!(format!("a create to cancel {n}"));
        let script = probe.holding_script("while echo . >&9; do sleep 0.2; done");
        let params = stage.creating(json!({"command": "sh", "args": ["-c", script]}));
        let create = stage.agent().send_request(&request, "terminal/create", params).await?;
        stage.agent().notify("$/cancel_request", json!({"requestId": request})).await;
        let answer = stage.agent().answer_to("the cancelled create", create).await?;
        ensure!(is_fair(&answer), "the cancelled create was answered with {answer:?}");
        match answer {
            Ok(result) => {
                let id = stage.created(&result)?;
                stage.release(&id).await?;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
    // What was still being started has taken hold by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    probe.wait_until_released().await
}

async fn cancelled_nothing(stage: TestContext) -> Result<(), Fault> {
    for request in [json!("never sent"), json!(987_654), json!(null), json!({})] {
        stage.agent().notify("$/cancel_request", json!({"requestId": request})).await;
    }
    stage.agent().notify("$/cancel_request", json!({})).await;
    let seen = stage.output_of("echo goes on").await?;
    ensure!(seen == "goes on\n", "the output is {seen:?}");
    Ok(())
}

async fn usable_after_cancel(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("echo begun; until [ -e go ]; do sleep 0.05; done; exit 4").await?;
    let request = json!("a wait to cancel, once more");
    let wait = stage.agent().send_request(&request, "terminal/wait_for_exit", stage.naming(&id)).await?;
    stage.until(&id, "begun").await?;
    stage.agent().notify("$/cancel_request", json!({"requestId": request})).await;
    stage.agent().answer_to("the cancelled wait", wait).await.map(drop)?;
    std::fs::write(stage.directory().join("go"), "")?;
    let exit = stage.wait(&id).await?;
    ensure!(exit == ExitStatus::with_code(4), "the command ended with {exit:?}");
    Ok(())
}

async fn no_json(stage: TestContext) -> Result<(), Fault> {
    let other = stage.with_editor(crate::roles::EditorKind::Plain).await?;
    let result = async {
        for line in
            [&b"this is no JSON"[..], b"{\"jsonrpc\": \"2.0\", \"id\":", b"", b"[]", b"\xff\xfe{}", b"17"]
        {
            other.agent().send_line(line).await;
        }
        let seen = other.output_of("echo goes on").await?;
        ensure!(seen == "goes on\n", "the output is {seen:?}");
        Ok(())
    }
    .await;
    other.cleanup().await;
    result
}

async fn unknown_notification(stage: TestContext) -> Result<(), Fault> {
    let unexpected = stage.agent().unexpected().len();
    stage.agent().notify("_conformance/nobody_knows_this", json!({"a": 1})).await;
    stage.agent().notify("terminal/no_such_notification", stage.naming("x")).await;
    stage.output_of("echo a round trip").await?;
    ensure!(stage.agent().unexpected().len() == unexpected, "a notification was answered");
    Ok(())
}

async fn a_large_message(stage: TestContext) -> Result<(), Fault> {
    let meta = "x".repeat(2_000_000);
    let id = stage.create(json!({"command": "echo", "args": ["small"], "_meta": {"large": meta}})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "small\n", "the output is {seen:?}");
    Ok(())
}

async fn no_unexpected(stage: TestContext) -> Result<(), Fault> {
    stage.output_of("echo something more").await?;
    let mut unexpected = stage.agent().unexpected();
    if let Ok(editor) = stage.editor() {
        unexpected.extend(editor.unexpected());
    }
    ensure!(unexpected.is_empty(), "{}", unexpected.join("\n       "));
    Ok(())
}

async fn odd_layout(stage: TestContext) -> Result<(), Fault> {
    let request = json!("odd");
    let params = stage.creating(json!({"command": "echo", "args": ["odd"]}));
    let line = format!(
        "  {{ \"params\" :{params} , \"method\"\t: \"terminal\\/create\", \"unknown\": null, \"id\": \"\\u006fdd\" ,\"jsonrpc\":\"2.0\" }} \r"
    );
    let asked = stage.agent().expect_answer(&request)?;
    stage.agent().send_line(line.as_bytes()).await;
    let answer = stage.agent().answer_to("the oddly laid out create", asked).await?;
    let answer =
        answer.map_err(|refusal| Fault::Refused { method: "terminal/create".to_owned(), refusal })?;
    let id = stage.created(&answer)?;
    stage.wait(&id).await.map(drop)
}
