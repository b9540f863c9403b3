//! Creating: what is run, in the forms that agents send it, with the arguments, variables and directory that were asked
//! for.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    case::cases,
    context::{ExitStatus, TestContext, shortened},
    fault::{Fault, ensure},
};

cases! {
    1 Must Agent "v1 terminals, creating: the client answers with a terminalId":
        "create answers with an id" => answers_with_an_id;
    2 Must Agent "v1 terminals, creating: the id is returned immediately, without waiting for the command":
        "create answers before the command has ended" => answers_at_once;
    3 Must Agent "v1 terminals: the id names the terminal in all further requests":
        "twenty creates at once get twenty ids" => ids_are_unique;
    4 Must Agent "v1 schema: CreateTerminalRequest.args":
        "arguments arrive as they were given, and are not split, joined or expanded" => arguments_are_exact;
    5 Must Agent "v1 schema: CreateTerminalRequest.env":
        "variables arrive as they were given" => variables_are_exact;
    6 Should Agent "v1 schema: CreateTerminalRequest.env":
        "a variable that was given wins over one that the client sets by itself" => variables_win;
    7 Must Agent "v1 schema: CreateTerminalRequest.cwd; practice: the session's directory is the default":
        "without cwd a command runs in the session's directory" => default_cwd;
    8 Must Agent "v1 schema: CreateTerminalRequest.cwd":
        "with cwd a command runs there" => given_cwd;
    9 Should Agent "practice: most agents send the whole line in `command`":
        "a whole line in `command` without args is given to a shell" => a_whole_line;
    10 Should Agent "practice: some agents send `args: []` along with a whole line":
        "a whole line in `command` with empty args is given to a shell" => a_whole_line_and_no_args;
    11 Must Agent "practice: some agents send a shell and `-c`":
        "a shell with -c and a line that changes directories works" => a_shell_and_a_line;
    12 Must Agent "v1 schema: CreateTerminalRequest.command":
        "the name of a program without args runs that program" => a_bare_program;
    13 Must Agent "v1 terminals: exit status":
        "a program that is not there never looks like success" => a_missing_program;
    14 Should Agent "practice: agents show the model only error.message":
        "a program that is not there is named in the message or the output" => a_missing_program_is_named;
    15 Must Agent "v1 terminals: one client, many terminals":
        "ten commands run at the same time" => commands_run_side_by_side;
    16 Must Agent "practice: agents read what commands write":
        "a command's files are in the session's directory" => files_are_shared;
    17 Should Agent "practice: agents quote nothing in real argv":
        "a program with arguments that a shell would act on is run without a shell" => no_shell_with_args;
}

async fn answers_with_an_id(stage: TestContext) -> Result<(), Fault> {
    let id = stage.create(json!({"command": "true", "args": []})).await?;
    stage.wait(&id).await.map(drop)
}

async fn answers_at_once(stage: TestContext) -> Result<(), Fault> {
    let begun = Instant::now();
    let id = stage.script("sleep 100").await?;
    ensure!(begun.elapsed() < stage.slow_timeout(), "create of `sleep 100` took {:?}", begun.elapsed());
    ensure!(stage.output(&id).await?.exit.is_none(), "`sleep 100` has an exit status at once");
    Ok(())
}

async fn ids_are_unique(stage: TestContext) -> Result<(), Fault> {
    let creates: Vec<_> = (0..20)
        .map(|n| {
            let stage = stage.clone();
            tokio::spawn(async move { stage.script(&format!("echo number {n}.")).await })
        })
        .collect();
    let mut ids = Vec::new();
    for (n, create) in creates.into_iter().enumerate() {
        let id = create.await.map_err(|_| Fault::Ended("a create was given up"))??;
        ensure!(!ids.contains(&id), "{id} was given twice");
        stage.wait(&id).await?;
        let output = stage.output(&id).await?.text;
        ensure!(
            output.contains(&format!("number {n}.")),
            "terminal {n} has the output of another: {output:?}"
        );
        ids.push(id);
    }
    Ok(())
}

async fn arguments_are_exact(stage: TestContext) -> Result<(), Fault> {
    let words = [
        "two words",
        "",
        "*",
        "$HOME",
        "`id`",
        "it's",
        "\"q\"",
        "a\\b",
        "-n",
        "ünï 🦀",
        "tab\there",
        "; exit 3",
    ];
    let mut args = vec!["%s|".to_owned()];
    args.extend(words.map(str::to_owned));
    let id = stage.create(json!({"command": "/usr/bin/printf", "args": args})).await?;
    stage.wait(&id).await?;
    let expected: String = words.iter().map(|word| format!("{word}|")).collect();
    let seen = stage.output(&id).await?.text;
    ensure!(seen == expected, "expected {expected:?}, saw {seen:?}");
    Ok(())
}

async fn variables_are_exact(stage: TestContext) -> Result<(), Fault> {
    let values = ["plain", "", "two words", "a=b=c", "$HOME `id` 'x' \"y\"", "ünï 🦀", "line\nline"];
    let named = |(n, value)| json!({"name": format!("CONFORMANCE_{n}"), "value": value});
    let env: Vec<Value> = values.iter().enumerate().map(named).collect();
    let script: String =
        (0..values.len()).map(|n| format!("printf '%s|' \"${{CONFORMANCE_{n}-unset}}\"; ")).collect();
    let id = stage.create(json!({"command": "sh", "args": ["-c", script], "env": env})).await?;
    stage.wait(&id).await?;
    let expected: String = values.iter().map(|value| format!("{value}|")).collect();
    let seen = stage.output(&id).await?.text;
    ensure!(seen == expected, "expected {expected:?}, saw {seen:?}");
    Ok(())
}

async fn variables_win(stage: TestContext) -> Result<(), Fault> {
    let env = json!([{"name": "TERM", "value": "conformance"}, {"name": "LANG", "value": "C"}]);
    let script = "printf '%s %s' \"$TERM\" \"$LANG\"";
    let id = stage.create(json!({"command": "sh", "args": ["-c", script], "env": env})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "conformance C", "TERM and LANG are {seen:?}");
    Ok(())
}

async fn default_cwd(stage: TestContext) -> Result<(), Fault> {
    for given in [json!({}), json!({"cwd": null})] {
        let mut params = json!({"command": "pwd", "args": ["-P"]});
        if let (Value::Object(params), Value::Object(given)) = (&mut params, given) {
            params.extend(given);
        }
        let id = stage.create(params).await?;
        stage.wait(&id).await?;
        let seen = stage.output(&id).await?.text;
        let expected = stage.directory().display().to_string();
        ensure!(seen.trim_end() == expected, "expected {expected}, saw {seen:?}");
    }
    Ok(())
}

async fn given_cwd(stage: TestContext) -> Result<(), Fault> {
    let directory = stage.directory().join("a directory");
    std::fs::create_dir_all(&directory)?;
    let id = stage.create(json!({"command": "pwd", "args": ["-P"], "cwd": directory})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(
        seen.trim_end() == directory.display().to_string(),
        "expected {}, saw {seen:?}",
        directory.display()
    );
    Ok(())
}

const LINE: &str = "X='a  b'; echo \"$X\" | tr a-z A-Z && echo $((6 * 7)) > answer; cat answer; exit 4";

async fn a_whole_line(stage: TestContext) -> Result<(), Fault> {
    line_is_run(&stage, json!({"command": LINE})).await
}

async fn a_whole_line_and_no_args(stage: TestContext) -> Result<(), Fault> {
    line_is_run(&stage, json!({"command": LINE, "args": []})).await
}

async fn line_is_run(stage: &TestContext, params: Value) -> Result<(), Fault> {
    let id = stage.create(params).await?;
    let exit = stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "A  B\n42\n", "the line wrote {:?}", shortened(&seen));
    ensure!(exit == ExitStatus::with_code(4), "the line ended with {exit:?}");
    Ok(())
}

async fn a_shell_and_a_line(stage: TestContext) -> Result<(), Fault> {
    std::fs::create_dir_all(stage.directory().join("inner"))?;
    let line = format!("cd '{}' && pwd -P; exit 4", stage.directory().join("inner").display());
    let id = stage.create(json!({"command": "/bin/sh", "args": ["-c", line]})).await?;
    let exit = stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen.ends_with("/inner\n"), "the line wrote {:?}", shortened(&seen));
    ensure!(exit == ExitStatus::with_code(4), "the line ended with {exit:?}");
    Ok(())
}

async fn a_bare_program(stage: TestContext) -> Result<(), Fault> {
    for params in
        [json!({"command": "pwd"}), json!({"command": "/bin/pwd"}), json!({"command": "pwd", "args": []})]
    {
        let id = stage.create(params).await?;
        let exit = stage.wait(&id).await?;
        let seen = stage.output(&id).await?.text;
        ensure!(seen.trim_end().ends_with(&stage.directory().display().to_string()), "pwd wrote {seen:?}");
        ensure!(exit == ExitStatus::with_code(0), "pwd ended with {exit:?}");
    }
    Ok(())
}

const MISSING: &str = "acp-conformance-no-such-program";

async fn a_missing_program(stage: TestContext) -> Result<(), Fault> {
    for params in [json!({"command": MISSING, "args": ["x"]}), json!({"command": MISSING})] {
        if let Ok(result) = stage.call("terminal/create", stage.creating(params)).await? {
            let id = stage.created(&result)?;
            let exit = stage.wait(&id).await?;
            ensure!(exit != ExitStatus::with_code(0), "a program that is not there ended with {exit:?}");
            ensure!(exit.code.is_some() || exit.signal.is_some(), "the end has neither a code nor a signal");
        }
    }
    Ok(())
}

async fn a_missing_program_is_named(stage: TestContext) -> Result<(), Fault> {
    let params = stage.creating(json!({"command": MISSING, "args": ["x"]}));
    let said = match stage.call("terminal/create", params).await? {
        Err(refusal) => refusal.message,
        Ok(result) => {
            let id = stage.created(&result)?;
            stage.wait(&id).await?;
            stage.output(&id).await?.text
        }
    };
    ensure!(said.contains(MISSING), "what is said is {said:?}");
    Ok(())
}

async fn commands_run_side_by_side(stage: TestContext) -> Result<(), Fault> {
    // Each of them waits until all of them run.
    let mut ids = Vec::new();
    for n in 0..10 {
        let script = format!(
            "touch here-{n}; i=0; until [ $(ls here-* | wc -l) = 10 ]; do i=$((i+1)); [ $i -lt 300 ] || exit 9; sleep 0.05; done"
        );
        ids.push(stage.script(&script).await?);
    }
    for id in ids {
        let exit = stage.wait(&id).await?;
        ensure!(exit == ExitStatus::with_code(0), "a command that waited for the others ended with {exit:?}");
    }
    Ok(())
}

async fn files_are_shared(stage: TestContext) -> Result<(), Fault> {
    std::fs::write(stage.directory().join("given"), "from the agent")?;
    let seen = stage.output_of("cat given; printf 'from the command' > made").await?;
    ensure!(seen == "from the agent", "the command read {seen:?}");
    let made = std::fs::read_to_string(stage.directory().join("made"))?;
    ensure!(made == "from the command", "the agent read {made:?}");
    Ok(())
}

async fn no_shell_with_args(stage: TestContext) -> Result<(), Fault> {
    let id = stage.create(json!({"command": "echo", "args": ["a; echo b", "&&", "$(echo c)"]})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "a; echo b && $(echo c)\n", "echo wrote {seen:?}");
    Ok(())
}
