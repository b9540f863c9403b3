//! What a command finds itself in: nothing to read, nobody to ask, and nothing of the client's to hold on to.

use serde_json::json;

use crate::{
    case::cases,
    context::{ExitStatus, TestContext},
    fault::{Fault, ensure},
};

cases! {
    150 Should Agent "practice: nobody can type into an agent's terminal":
        "a command that reads its stdin finds the end of it" => stdin_is_empty;
    151 Should Agent "practice: nobody presses a key":
        "pagers are off, and git asks nobody for a password" => nobody_is_asked;
    152 Should Agent "practice: a command inherits nothing of the client":
        "a command has no open files but stdin, stdout and stderr" => no_open_files;
    153 Should Agent "signal(7): ignored and blocked signals are inherited":
        "no signal is ignored or blocked" => no_signals_ignored;
    154 Must Agent "practice: the client's own connection is not the command's":
        "a command cannot write into the protocol" => protocol_is_out_of_reach;
    155 Should Agent "pipe(7)":
        "a command whose reader goes away ends as usual" => broken_pipes;
    156 Must Agent "practice: agents run builds":
        "a command can start programs, write files and use a temporary directory" => ordinary_work;
}

async fn stdin_is_empty(stage: TestContext) -> Result<(), Fault> {
    let id = stage.script("cat; read line; echo \"read: $?\"").await?;
    let exit = stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(exit == ExitStatus::with_code(0) && seen == "read: 1\n", "{exit:?}, {seen:?}");
    Ok(())
}

async fn nobody_is_asked(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("echo \"$PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT\"").await?;
    ensure!(seen == "cat cat 0\n", "PAGER, GIT_PAGER and GIT_TERMINAL_PROMPT are {seen:?}");
    Ok(())
}

async fn no_open_files(stage: TestContext) -> Result<(), Fault> {
    // `ls` has one of its own: the directory that it reads.
    let id = stage.create(json!({"command": "ls", "args": ["/proc/self/fd"]})).await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(seen == "0\n1\n2\n3\n", "open are {seen:?}");
    Ok(())
}

async fn no_signals_ignored(stage: TestContext) -> Result<(), Fault> {
    let id = stage
        .create(json!({"command": "grep", "args": ["-E", "^Sig(Ign|Blk):", "/proc/self/status"]}))
        .await?;
    stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    let masks: Vec<u64> = seen
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
        // 32 and 33 are the C library's own; what started the client may have left them ignored (nptl(7)).
        .map(|mask| mask & !(0b11 << 31))
        .collect();
    ensure!(masks == [0, 0], "{seen:?}");
    Ok(())
}

async fn protocol_is_out_of_reach(stage: TestContext) -> Result<(), Fault> {
    let unexpected = stage.agent().unexpected().len();
    let message = r#"{"jsonrpc":"2.0","id":1,"result":{"forged":true}}"#;
    let script =
        format!("for fd in 0 1 2 3 4 5 6 7 8 9; do echo '{message}' 2>/dev/null >&$fd; done; exit 0");
    let id = stage.script(&script).await?;
    stage.wait(&id).await?;
    stage.output(&id).await?;
    ensure!(stage.agent().unexpected().len() == unexpected, "a command's output came as a message");
    Ok(())
}

async fn broken_pipes(stage: TestContext) -> Result<(), Fault> {
    let seen = stage.output_of("(yes; echo $? >&2) 2>ended | head -n 1; cat ended").await?;
    ensure!(seen == "y\n141\n", "{seen:?}");
    Ok(())
}

async fn ordinary_work(stage: TestContext) -> Result<(), Fault> {
    let script = "set -e; d=$(mktemp -d); seq 1 1000 > $d/a; sort -rn $d/a | head -n 1; rm -r $d; mkdir -p x/y; : > x/y/z; ls x/y";
    let id = stage.script(script).await?;
    let exit = stage.wait(&id).await?;
    let seen = stage.output(&id).await?.text;
    ensure!(exit == ExitStatus::with_code(0) && seen == "1000\nz\n", "{exit:?}, {seen:?}");
    Ok(())
}
