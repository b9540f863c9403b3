//! `provost run -d`: starts a command at a gateway that serves, prints the terminal's id, and leaves it running.
//!
//! Where no gateway serves, one is started for this user, which ends when nobody uses it. It is a process of its own: it takes
//! nothing of this one but its environment, and Ctrl-C in this terminal does not reach it.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::{Instant, sleep};

use super::{report::RunEnd, run_control::unless_interrupted};
use crate::{
    cli::{
        console::{error::CliError, receipt, signals::TerminationSignals, stdio},
        gateway_link::connection::GatewayConnection,
    },
    client::FrontEnd,
    proto::v1,
};

/// How long a gateway that was started may take until it serves.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at whether it serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a gateway that was started stays without a session: a person who has looked away comes back to it.
const IDLE_EXIT: &str = "10m";

/// Starts the command, and returns when it runs.
pub(in crate::cli) async fn start(
    gateway: Option<&str>,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let starting = async {
        let connection = running_or_started(gateway).await?;
        start_at(&connection, workspace, create).await
    };
    match unless_interrupted(signals, starting).await {
        Ok(started) => {
            let terminal = started?;
            let shortfalls =
                terminal.receipt.as_ref().map(|receipt| &receipt.shortfalls[..]).unwrap_or_default();
            if let Some(line) = receipt::shortfall_notice(shortfalls) {
                stdio::print_notice(&line);
            }
            let printed = stdio::print(&format!("{}\n", terminal.id));
            // A reader that has gone finds it with `provost ps`.
            let _ = printed.map_err(|error| CliError::caused_by("cannot print the terminal's id", error))?;
            Ok(RunEnd { exit_status: 0, terminal: None })
        }
        // A session without a command that runs is closed after a time.
        Err(signal) => Ok(RunEnd::interrupted_by(signal)),
    }
}

/// The request, for a command whose output nobody reads as it comes. One that takes input has one output, so that a person can
/// attach to it.
pub(super) fn without_reader(request: v1::CreateTerminalRequest) -> v1::CreateTerminalRequest {
    let output_mode = match request.stdin_mode() {
        v1::StdinMode::Open => v1::OutputMode::Merged.into(),
        v1::StdinMode::Closed | v1::StdinMode::Unspecified => request.output_mode,
    };
    v1::CreateTerminalRequest { overflow: v1::Overflow::DropOldest.into(), output_mode, ..request }
}

async fn start_at(
    connection: &GatewayConnection,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
) -> Result<v1::Terminal, CliError> {
    let mut client = connection.client();
    let is_own = workspace.name.is_empty();
    let session = v1::CreateSessionRequest {
        // A session with a name is closed when nothing has run in it for a time. Until then the output can be read.
        name: if is_own { own_name() } else { workspace.name.clone() },
        lifetime: v1::Lifetime::Explicit.into(),
        profile: create.profile.clone(),
        network: create.network,
        labels: create.labels.clone(),
        ..workspace
    };
    let session = client
        .sessions
        .create_session(FrontEnd::Cli.sign(session))
        .await?
        .into_inner()
        .session
        .unwrap_or_default();
    if let Some(line) = session.repository.as_ref().and_then(receipt::repository_notice) {
        stdio::print_notice(&line);
    }
    let create = v1::CreateTerminalRequest { session_id: session.id.clone(), ..create };
    match client.terminals.create_terminal(create).await {
        Ok(created) => Ok(created.into_inner().terminal.unwrap_or_default()),
        Err(refused) => {
            if is_own {
                let request = v1::CloseSessionRequest { session_id: session.id };
                // The refusal says more than that this failed, too.
                let _ = client.sessions.close_session(request).await;
            }
            Err(refused.into())
        }
    }
}

/// A name that no other session has.
fn own_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("detached-{}-{}", since.as_nanos(), std::process::id())
}

/// The gateway that serves, or one that is started now.
async fn running_or_started(named: Option<&str>) -> Result<GatewayConnection, CliError> {
    if let Some(connection) = GatewayConnection::running(named).await? {
        return Ok(connection);
    }
    let mut gateway =
        start_gateway().map_err(|error| CliError::caused_by("cannot start a gateway", error))?;
    let give_up_at = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(connection) = GatewayConnection::running(None).await? {
            return Ok(connection);
        }
        let ended = gateway.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            // Another one may have been started at the same time, and serve.
            sleep(LOOK_INTERVAL).await;
            return GatewayConnection::running(None)
                .await?
                .ok_or_else(|| did_not_start(&format!("it ended with {status}")));
        }
        if Instant::now() >= give_up_at {
            return Err(did_not_start(&format!("it does not answer after {} s", START_TIMEOUT.as_secs())));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

fn did_not_start(why: &str) -> CliError {
    CliError::message_only(format!("a gateway was started, and {why}"))
        .with_advice("start one with `provost serve`, which says what is wrong")
}

fn start_gateway() -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["serve", "--idle-exit", IDLE_EXIT])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals that the terminal sends to this process's group are not for it.
        .process_group(0)
        .spawn()
}
