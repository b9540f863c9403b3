//! `provost prune`: the terminals whose commands have ended are removed, or with `--caches` the kept caches.

use std::time::{Duration, SystemTime};

use tonic::Code;

use super::kept_caches;
use crate::{
    cli::{
        console::{error::CliError, table},
        gateway_link::connection::GatewayConnection,
        request::terminal_arguments::PruneArguments,
        terminal::terminals,
    },
    proto::v1,
};

/// `provost prune`. Prints the id of each terminal that is removed.
pub(in crate::cli) async fn prune(arguments: PruneArguments) -> Result<u8, CliError> {
    if arguments.caches {
        return kept_caches::prune(arguments.kept_caches, arguments.older_than);
    }
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut client = connection.client().terminals;
    let now = SystemTime::now();
    let ended = terminals::all(client.clone()).await?.into_iter().filter(|terminal| {
        arguments.session.as_ref().is_none_or(|session| *session == terminal.session_id)
            && ended_since(terminal, now).is_some_and(|since| since >= arguments.older_than)
    });
    let mut removed = String::new();
    for terminal in ended {
        let request = v1::ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        match client.release_terminal(request).await {
            Ok(_) => {
                removed.push_str(&terminal.id);
                removed.push('\n');
            }
            // Its owner was faster.
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => {
                table::print_to_stdout(&removed)?;
                return Err(status.into());
            }
        }
    }
    table::print_to_stdout(&removed)
}

/// How long ago a terminal's command has ended. `None`: it has not.
fn ended_since(terminal: &v1::Terminal, now: SystemTime) -> Option<Duration> {
    let ended = terminal.outcome.as_ref()?.ended_at?;
    let ended = SystemTime::try_from(ended).ok()?;
    // A clock that was set back makes nothing older.
    Some(now.duration_since(ended).unwrap_or_default())
}
