//! Refusals: unknown, malformed and foreign ids, and what an error says.

use serde_json::{Value, json};

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    120 Must Agent "v1 terminals: a terminal is known by its id":
        "an id that was never given is refused by output, wait, kill and release" => unknown_ids;
    121 Should Agent "v1 schema: ErrorCode -32002, resource not found":
        "an id that was never given is refused with -32002" => refused_as_not_found;
    122 Must Agent "v1 schema: terminalId is a required string; JSON-RPC 2.0: -32602":
        "a terminalId that is missing or no text is refused with -32602" => malformed_ids;
    123 Must Agent "v1 schema: every request names its session":
        "another session's terminal is refused, and goes on" => foreign_ids;
    124 Should Agent "practice: an id tells nothing about other sessions":
        "another session's terminal is refused like an unknown one" => foreign_like_unknown;
    125 Must Agent "JSON-RPC 2.0: -32601":
        "a terminal method that does not exist is refused with -32601" => unknown_method;
    126 Should Agent "practice: agents show the model only error.message":
        "every refusal says something" => messages_say_something;
    127 Must Agent "v1 schema: sessionId is required; JSON-RPC 2.0: -32602":
        "output, wait, kill and release without a session are refused with -32602" => no_session;
}

const METHODS: [&str; 4] = ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"];
const NEVER_GIVEN: [&str; 6] =
    ["no-such-terminal", "", "0", "term_01ARZ3NDEKTSV4RRFFQ69G5FAV", "../../etc", "🦀"];

async fn unknown_ids(stage: TestContext) -> Result<(), Fault> {
    for method in METHODS {
        for id in NEVER_GIVEN {
            stage.refused(method, stage.naming(id)).await?;
        }
    }
    Ok(())
}

async fn refused_as_not_found(stage: TestContext) -> Result<(), Fault> {
    for method in METHODS {
        for id in NEVER_GIVEN {
            let refusal = stage.refused(method, stage.naming(id)).await?;
            ensure!(refusal.code == -32002, "{method} of {id:?} was refused with {refusal}");
        }
    }
    Ok(())
}

async fn malformed_ids(stage: TestContext) -> Result<(), Fault> {
    for method in METHODS {
        for id in [json!(null), json!(1), json!(["x"]), json!({})] {
            let params = json!({"sessionId": stage.session(), "terminalId": id});
            invalid(&stage, method, params).await?;
        }
        invalid(&stage, method, json!({"sessionId": stage.session()})).await?;
    }
    Ok(())
}

async fn no_session(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exit 0").await?;
    for method in METHODS {
        invalid(&stage, method, json!({"terminalId": id})).await?;
        invalid(&stage, method, json!({"terminalId": id, "sessionId": 7})).await?;
    }
    stage.wait(&id).await.map(drop)
}

async fn invalid(stage: &TestContext, method: &str, params: Value) -> Result<(), Fault> {
    let refusal = stage.refused(method, params.clone()).await?;
    ensure!(refusal.code == -32602, "{method} {params} was refused with {refusal}");
    Ok(())
}

async fn foreign_ids(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("until [ -e go ]; do sleep 0.05; done; exit 3").await?;
    let other = stage.other_session().await?;
    for method in METHODS {
        stage.refused(method, json!({"sessionId": other, "terminalId": id})).await?;
    }
    std::fs::write(stage.directory().join("go"), "")?;
    let exit = stage.wait(&id).await?;
    ensure!(exit == ExitStatus::with_code(3), "its own session sees it end with {exit:?}");
    Ok(())
}

async fn foreign_like_unknown(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("exit 0").await?;
    let other = stage.other_session().await?;
    for method in METHODS {
        let foreign = stage.refused(method, json!({"sessionId": other, "terminalId": id})).await?;
        let unknown = json!({"sessionId": other, "terminalId": format!("{id}x")});
        let unknown = stage.refused(method, unknown).await?;
        ensure!(foreign.code == unknown.code, "{method}: foreign {foreign}, unknown {unknown}");
        let told = foreign.message.replace(&id, "ID");
        ensure!(
            told == unknown.message.replace(&format!("{id}x"), "ID"),
            "{method}: {foreign} against {unknown}"
        );
    }
    Ok(())
}

async fn unknown_method(stage: TestContext) -> Result<(), Fault> {
    for method in ["terminal/no_such_method", "terminal/", "terminal/Create", "terminal/create/x"] {
        let refusal = stage.refused(method, stage.creating(json!({"command": "pwd"}))).await?;
        ensure!(refusal.code == -32601, "{method} was refused with {refusal}");
    }
    Ok(())
}

async fn messages_say_something(stage: TestContext) -> Result<(), Fault> {
    let creating = |params| ("terminal/create", stage.creating(params));
    for (method, params) in [
        creating(json!({})),
        creating(json!({"command": "pwd", "cwd": "relative"})),
        creating(json!({"command": "pwd", "cwd": "/no/such/directory"})),
        ("terminal/output", stage.naming("no-such-terminal")),
    ] {
        let refusal = stage.refused(method, params).await?;
        ensure!(refusal.message.trim().len() >= 5, "{method} was refused with {refusal}");
    }
    Ok(())
}
