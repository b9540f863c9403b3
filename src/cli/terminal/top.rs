//! `provost top`: the caller's sessions and terminals, again and again until it is interrupted.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use tokio::time::sleep;

use super::terminals;
use crate::{
    cli::{
        console::{
            error::CliError,
            exit_status,
            signals::TerminationSignals,
            stdio::{self, WriteOutcome},
        },
        gateway_link::{connection::GatewayConnection, sessions},
        request::{argument_values::parse_duration, arguments::GatewayArguments},
    },
    client::Client,
    printable,
};

/// Moves to the first line, and clears what is behind.
const FIRST_LINE: &[u8] = b"\x1b[H\x1b[J";

/// `provost top`.
#[derive(Debug, Args)]
#[command(
    about = "Show your sessions and terminals, again and again",
    long_about = "Shows your sessions and terminals, and shows them again after each interval until Ctrl-C. If stdout is no \
                  terminal it shows them once.",
    after_help = "Example:\n  provost top --interval 500ms"
)]
pub(in crate::cli) struct TopArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Show them again after this time, a whole number with ms, s, m or h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s")]
    interval: Duration,
}

/// Shows them until a signal comes.
pub(in crate::cli) async fn top(arguments: TopArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let is_live = io::stdout().is_terminal();
    // A loop without a pause would be nobody's wish.
    let interval = arguments.interval.max(Duration::from_millis(100));
    loop {
        let page = page(connection.client()).await?;
        let shown = if is_live { stdio::write_to_stdout(FIRST_LINE) } else { Ok(WriteOutcome::Complete) };
        let shown = shown.and_then(|before| match before {
            WriteOutcome::Complete => stdio::print(&page),
            WriteOutcome::ReaderGone => Ok(before),
        });
        if shown.map_err(|error| CliError::caused_by("cannot write to stdout", error))?
            == WriteOutcome::ReaderGone
        {
            return Ok(exit_status::BROKEN_PIPE);
        }
        if !is_live {
            return Ok(0);
        }
        tokio::select! {
            () = sleep(interval) => {}
            _ = signals.next() => return Ok(0),
        }
    }
}

async fn page(mut client: Client) -> Result<String, CliError> {
    let sessions = sessions::all(&mut client).await?;
    let running: u32 = sessions.iter().map(|session| session.live_terminals).sum();
    let ended: u32 = sessions.iter().map(|session| session.finished_terminals).sum();
    let mut text = format!("{} sessions, {running} commands running, {ended} ended\n\n", sessions.len());
    for session in &sessions {
        let root = session.roots.first().map(String::as_str).unwrap_or_default();
        let name = if session.name.is_empty() { "-" } else { &session.name };
        text += &format!(
            "{}  {}  {}  {}\n",
            session.id,
            printable::line(name),
            session.profile,
            printable::line(root)
        );
    }
    Ok(text + "\n" + &terminals::table(&terminals::all(client.terminals).await?))
}
