//! An ACP client that gives its agents confined terminals.
//!
//! The client that you write reads JSON-RPC requests from its agent. Five of them are about terminals, and
//! `Terminals::answer` answers these; there is nothing else to implement. This example plays such a client with a
//! scripted agent, so that it runs by itself:
//!
//! ```text
//! cargo build && cargo run --example embed                    # with a gateway of its own
//! cargo run --example embed -- unix:/run/provost/provost.sock # with one that serves
//! ```

use std::process::ExitCode;

use agent_client_protocol_schema::v1::SessionId;
use provost::{Config, acp::AcpTerminals};
use serde_json::{Value, json, value::to_raw_value};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = provost::runtime().map_err(Failure::from).and_then(|runtime| runtime.block_on(play()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("embed: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<(), Failure> {
    match std::env::args().nth(1) {
        Some(uri) => be_a_client(&uri).await,
        None => {
            // Only a program with an embedded gateway needs `provost-sandbox`, and says where it is if it is not next to it.
            let built = std::env::current_exe()?
                .ancestors()
                .nth(2)
                .map(|directory| directory.join("provost-sandbox"));
            let gateway = provost::embed(Config { sandbox_program: built, ..Config::embedded() }).await?;
            let done = be_a_client(gateway.uri()).await;
            gateway.close().await?;
            done
        }
    }
}

/// What an ACP client does with its agent's requests.
async fn be_a_client(gateway: &str) -> Result<(), Failure> {
    let terminals = AcpTerminals::connect(gateway).await?;

    // When session/new, load, resume or fork is answered: where the session's commands may work.
    let session = SessionId::new("session-1");
    terminals.open_session(&session, std::env::current_dir()?, Vec::new());

    // When an update announces a subagent's session: it works where its parent does.
    let subagent = SessionId::new("subagent-1");
    terminals.open_subagent(&session, &subagent, None);

    // Whenever the agent sends a request. These would come from its stdout.
    let created = answer(
        &terminals,
        "terminal/create",
        json!({ "sessionId": session, "command": "echo hello; exit 3" }),
    )
    .await?;
    let terminal = json!({ "sessionId": session, "terminalId": created["terminalId"] });
    let ended = answer(&terminals, "terminal/wait_for_exit", terminal.clone()).await?;
    let output = answer(&terminals, "terminal/output", terminal.clone()).await?;
    answer(&terminals, "terminal/release", terminal.clone()).await?;
    println!("output {} exit code {}", output["output"], ended["exitCode"]);

    let of_subagent = json!({ "sessionId": subagent, "command": "exit 4" });
    let created = answer(&terminals, "terminal/create", of_subagent).await?;
    let of_subagent = json!({ "sessionId": subagent, "terminalId": created["terminalId"] });
    let ended = answer(&terminals, "terminal/wait_for_exit", of_subagent).await?;
    println!("subagent's exit code {}", ended["exitCode"]);

    // The id is gone with the release, and an agent that asks on is told so.
    let gone = answer(&terminals, "terminal/output", terminal).await;
    println!("after the release: {}", gone.err().ok_or("the terminal is still there")?);

    // When the session is closed, or the agent ends: nothing of it is left.
    terminals.close().await;
    Ok(())
}

/// One request and its answer, as JSON-RPC has them.
async fn answer(terminals: &AcpTerminals, method: &str, params: Value) -> Result<Value, Failure> {
    let params = to_raw_value(&params)?;
    // None is for the methods that are not about terminals: files, permissions, updates.
    let answer = terminals.answer(method, Some(&params)).ok_or("not a terminal method")?;
    // The result is JSON text, ready to be written; an error is the protocol's own type.
    Ok(serde_json::from_str(&answer.await?)?)
}
