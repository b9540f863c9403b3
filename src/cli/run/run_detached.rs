//! `provost run -d`: starts a command at a gateway that serves, prints the terminal's id, and leaves it running.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{report::RunEnd, run_control::unless_interrupted};
use crate::{
    cli::{
        console::{error::CliError, receipt, signals::TerminationSignals, stdio},
        gateway_link::{background::running_or_started, connection::GatewayConnection},
    },
    client::FrontEnd,
    proto::v1,
};

/// Starts the command, and returns when it runs.
pub(in crate::cli) async fn start(
    gateway: Option<&str>,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let starting = async {
        let connection = running_or_started(gateway, None).await?;
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
    if let Some(line) = receipt::git_notice(&session) {
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
