//! The parameters of create, one by one and together: what may be absent, null or empty, and what is malformed.

use serde_json::{Map, Value, json};

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    20 Must Agent "v1 schema: CreateTerminalRequest.args may be absent, null or empty":
        "args absent, null and [] all mean no arguments" => no_args;
    21 Must Agent "v1 schema: CreateTerminalRequest.env may be absent, null or empty":
        "env absent, null and [] all mean no variables" => no_env;
    22 Must Agent "v1 schema: cwd and outputByteLimit may be absent or null":
        "cwd and outputByteLimit absent and null are the same" => no_cwd_no_limit;
    23 Must Agent "v1 schema: CreateTerminalRequest":
        "every combination of args, env, cwd and outputByteLimit works" => every_combination;
    24 Must Agent "v1 schema: cwd must be an absolute path; JSON-RPC 2.0: -32602":
        "a relative cwd is refused with -32602" => relative_cwd;
    25 Must Agent "v1 schema: CreateTerminalRequest.cwd":
        "a cwd that is not there, or no directory, is refused" => missing_cwd;
    26 Must Agent "v1 schema: outputByteLimit is an unsigned integer; JSON-RPC 2.0: -32602":
        "a limit that is negative, fractional or text is refused with -32602" => malformed_limit;
    27 Must Agent "v1 schema: command is required; JSON-RPC 2.0: -32602":
        "a create without a command is refused with -32602" => no_command;
    28 Must Agent "v1 schema: args is an array of strings; JSON-RPC 2.0: -32602":
        "malformed args are refused with -32602" => malformed_args;
    29 Must Agent "v1 schema: env is an array of {name, value}; JSON-RPC 2.0: -32602":
        "malformed env is refused with -32602" => malformed_env;
    30 Must Agent "v1 schema: sessionId is required; JSON-RPC 2.0: -32602":
        "a create without a session is refused with -32602" => no_session;
    31 Must Agent "v1 extensibility: _meta is allowed everywhere":
        "_meta and unknown fields are accepted" => extra_fields;
    32 Should Agent "environ(7): a name has no \"=\"":
        "a variable whose name is empty or holds = or NUL is refused with -32602" => impossible_names;
    33 Should Agent "execve(2): strings end at NUL":
        "NUL in the command, an argument or a value is refused with -32602" => nul_bytes;
    34 Should Agent "v1 schema: CreateTerminalRequest.command":
        "an empty command is refused with -32602" => empty_command;
    35 Should Agent "v1 session setup: a session is known by its id":
        "a create for a session that is not there is refused" => unknown_session;
    36 Must Agent "v1 schema: CreateTerminalRequest.args":
        "an argument of 100 KB arrives whole" => a_long_argument;
}

async fn no_args(stage: TestContext) -> Result<(), Fault> {
    for given in [
        json!({"command": "pwd"}),
        json!({"command": "pwd", "args": null}),
        json!({"command": "pwd", "args": []}),
    ] {
        succeeds(&stage, given).await?;
    }
    Ok(())
}

async fn no_env(stage: TestContext) -> Result<(), Fault> {
    for env in [None, Some(json!(null)), Some(json!([]))] {
        let mut params =
            Map::from_iter([("command".to_owned(), json!("true")), ("args".to_owned(), json!([]))]);
        params.extend(env.map(|env| ("env".to_owned(), env)));
        succeeds(&stage, Value::Object(params)).await?;
    }
    Ok(())
}

async fn no_cwd_no_limit(stage: TestContext) -> Result<(), Fault> {
    succeeds(&stage, json!({"command": "pwd", "cwd": null, "outputByteLimit": null})).await?;
    succeeds(
        &stage,
        json!({"command": "pwd", "args": null, "env": null, "cwd": null, "outputByteLimit": null}),
    )
    .await
}

async fn every_combination(stage: TestContext) -> Result<(), Fault> {
    let inner = stage.directory().join("inner");
    std::fs::create_dir_all(&inner)?;
    for combination in 0..16 {
        let has = |bit: u8| combination & (1 << bit) != 0;
        let mut params = Map::new();
        let script = "printf '%s %s ' \"${CONFORMANCE-unset}\" \"${0##*/}\"; basename \"$PWD\"";
        if has(0) {
            params.insert("command".to_owned(), json!("sh"));
            params.insert("args".to_owned(), json!(["-c", script, "word"]));
        } else {
            params.insert("command".to_owned(), json!("pwd"));
        }
        if has(1) {
            params.insert("env".to_owned(), json!([{"name": "CONFORMANCE", "value": "set"}]));
        }
        if has(2) {
            params.insert("cwd".to_owned(), json!(inner));
        }
        if has(3) {
            params.insert("outputByteLimit".to_owned(), json!(6));
        }
        let directory = if has(2) { &inner } else { stage.directory() };
        let whole = if has(0) {
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            format!("{} word {name}\n", if has(1) { "set" } else { "unset" })
        } else {
            format!("{}\n", directory.display())
        };
        let expected = if has(3) { &whole[whole.len() - 6..] } else { &whole };
        let id = stage.create(Value::Object(params.clone())).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?;
        ensure!(
            seen.text == expected,
            "{}: expected {expected:?}, saw {:?}",
            Value::Object(params),
            seen.text
        );
        ensure!(seen.truncated == has(3), "truncated is {} for {:?}", seen.truncated, seen.text);
    }
    Ok(())
}

async fn succeeds(stage: &TestContext, params: Value) -> Result<(), Fault> {
    let id = stage.create(params.clone()).await?;
    let exit = stage.wait(&id).await?;
    ensure!(exit == ExitStatus::with_code(0), "{params} ended with {exit:?}");
    Ok(())
}

async fn relative_cwd(stage: TestContext) -> Result<(), Fault> {
    std::fs::create_dir_all(stage.directory().join("inner"))?;
    for cwd in ["inner", "./inner", "../", "", "~"] {
        invalid(&stage, json!({"command": "pwd", "cwd": cwd})).await?;
    }
    Ok(())
}

async fn missing_cwd(stage: TestContext) -> Result<(), Fault> {
    std::fs::write(stage.directory().join("file"), "")?;
    for name in ["not-there", "file", "file/below"] {
        let params = json!({"command": "pwd", "cwd": stage.directory().join(name)});
        stage.refused("terminal/create", stage.creating(params)).await?;
    }
    Ok(())
}

async fn malformed_limit(stage: TestContext) -> Result<(), Fault> {
    for limit in [json!(-1), json!(1.5), json!("100"), json!(true), json!([])] {
        invalid(&stage, json!({"command": "pwd", "outputByteLimit": limit})).await?;
    }
    Ok(())
}

async fn no_command(stage: TestContext) -> Result<(), Fault> {
    for params in [json!({}), json!({"command": null}), json!({"command": 7}), json!({"command": ["pwd"]})] {
        invalid(&stage, params).await?;
    }
    Ok(())
}

async fn malformed_args(stage: TestContext) -> Result<(), Fault> {
    for args in [json!("-c"), json!({"0": "-c"}), json!([1]), json!(["a", null]), json!([["a"]])] {
        invalid(&stage, json!({"command": "echo", "args": args})).await?;
    }
    Ok(())
}

async fn malformed_env(stage: TestContext) -> Result<(), Fault> {
    for env in [
        json!({"A": "b"}),
        json!(["A=b"]),
        json!([{"name": "A"}]),
        json!([{"value": "b"}]),
        json!([{"name": "A", "value": 1}]),
    ] {
        invalid(&stage, json!({"command": "env", "env": env})).await?;
    }
    Ok(())
}

async fn no_session(stage: TestContext) -> Result<(), Fault> {
    for params in [json!({"command": "pwd"}), json!({"command": "pwd", "sessionId": 1})] {
        let refusal = stage.refused("terminal/create", params).await?;
        ensure!(refusal.code == -32602, "refused with {refusal}");
    }
    let refusal = stage.refused("terminal/create", json!([])).await?;
    ensure!(refusal.code == -32602, "parameters that are no object are refused with {refusal}");
    Ok(())
}

async fn extra_fields(stage: TestContext) -> Result<(), Fault> {
    for meta in [json!({"a": {"b": [1, null]}}), json!(null)] {
        let params = json!({
            "command": "true", "args": [], "_meta": meta, "unknown": {"x": 1},
            "env": [{"name": "A", "value": "b", "_meta": {"c": 1}, "unknown": 1}],
        });
        let id = stage.create(params).await?;
        for method in ["terminal/wait_for_exit", "terminal/output", "terminal/kill"] {
            let mut params = stage.naming(&id);
            params["_meta"] = json!({"a": 1});
            params["unknown"] = json!([]);
            stage.ask(method, params).await?;
        }
    }
    Ok(())
}

async fn impossible_names(stage: TestContext) -> Result<(), Fault> {
    for name in ["", "A=B", "=", "A\0B"] {
        invalid(&stage, json!({"command": "true", "env": [{"name": name, "value": "x"}]})).await?;
    }
    Ok(())
}

async fn nul_bytes(stage: TestContext) -> Result<(), Fault> {
    invalid(&stage, json!({"command": "ec\0ho", "args": ["x"]})).await?;
    invalid(&stage, json!({"command": "echo", "args": ["a\0b"]})).await?;
    invalid(&stage, json!({"command": "env", "env": [{"name": "A", "value": "a\0b"}]})).await?;
    invalid(&stage, json!({"command": "pwd", "cwd": format!("{}\0", stage.directory().display())})).await
}

async fn empty_command(stage: TestContext) -> Result<(), Fault> {
    invalid(&stage, json!({"command": ""})).await?;
    invalid(&stage, json!({"command": "", "args": ["x"]})).await
}

async fn unknown_session(stage: TestContext) -> Result<(), Fault> {
    for session in ["no-such-session", ""] {
        stage.refused("terminal/create", json!({"sessionId": session, "command": "pwd"})).await?;
    }
    Ok(())
}

async fn a_long_argument(stage: TestContext) -> Result<(), Fault> {
    let word = "a long word, ".repeat(7700);
    let id = stage.create(json!({"command": "/usr/bin/printf", "args": ["%s", word]})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == word, "{} bytes were sent, {} arrived", word.len(), seen.len());
    Ok(())
}

async fn invalid(stage: &TestContext, params: Value) -> Result<(), Fault> {
    let refusal = stage.refused("terminal/create", stage.creating(params.clone())).await?;
    ensure!(refusal.code == -32602, "{params} was refused with {refusal}");
    Ok(())
}
