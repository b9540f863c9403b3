//! A gateway in the background, for commands that need one which outlives them.
//!
//! Where none serves, one is started for this user, which ends when nobody uses it. It is a process of its own: it takes nothing of
//! this one but its environment, and Ctrl-C in this terminal does not reach it.

use std::{
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::connection::GatewayConnection;
use crate::cli::console::error::CliError;

/// How long a gateway that was started may take until it serves.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at whether it serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a gateway that was started stays without a session: a person who has looked away comes back to it.
const IDLE_EXIT: &str = "10m";

/// The gateway that serves, or one that is started now.
pub(in crate::cli) async fn running_or_started(
    named: Option<&str>,
    given: Option<Arc<OwnedFd>>,
) -> Result<GatewayConnection, CliError> {
    if let Some(connection) = GatewayConnection::running(named, given.clone()).await? {
        return Ok(connection);
    }
    let mut gateway =
        start_gateway().map_err(|error| CliError::caused_by("cannot start a gateway", error))?;
    let give_up_at = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(connection) = GatewayConnection::running(None, given.clone()).await? {
            return Ok(connection);
        }
        let ended = gateway.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            // Another one may have been started at the same time, and serve.
            sleep(LOOK_INTERVAL).await;
            return GatewayConnection::running(None, given)
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
