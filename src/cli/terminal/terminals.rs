//! `provost ps`, `top`, `stop`, `kill`, `wait`, `rm` and `close`: the terminals and sessions of a running gateway.
//!
//! They need a running gateway, because an embedded one has no terminals yet. An id must be given whole, never as a prefix, so that a
//! script cannot act on a terminal that it did not mean.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use tokio::time::sleep;

use crate::{
    cli::{
        console::{
            error::CliError,
            exit_status, json, receipt,
            signals::TerminationSignals,
            stdio::{self, WriteOutcome},
            table::{align_columns, print_to_stdout, to_json_line},
        },
        gateway_link::connection::{self, GatewayConnection, Terminals, id_of},
        request::{
            arguments::{GatewayArguments, OutputFormat, parse_duration},
            terminal_arguments::{
                CloseArguments, KillArguments, PsArguments, RmArguments, StopArguments, WaitArguments,
            },
        },
        run::report::print_watched_end,
    },
    client::Client,
    printable,
    proto::v1,
};

/// `provost ps`.
pub(in crate::cli) async fn list(arguments: PsArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let terminals = all(connection.client().terminals).await?;
    let text = if arguments.output.output == OutputFormat::Json {
        to_json_line(&terminals.iter().map(json::TerminalJson::from).collect::<Vec<_>>())?
    } else {
        table(&terminals)
    };
    print_to_stdout(&text)
}

/// All terminals of the caller.
pub(in crate::cli) async fn all(mut client: Terminals) -> Result<Vec<v1::Terminal>, CliError> {
    let (mut terminals, mut request) = (Vec::new(), v1::ListTerminalsRequest::default());
    loop {
        let page = client.list_terminals(request.clone()).await?.into_inner();
        terminals.extend(page.terminals);
        if page.next_page_token.is_empty() {
            return Ok(terminals);
        }
        request.page_token = page.next_page_token;
    }
}

/// `provost stop`.
pub(in crate::cli) async fn stop(arguments: StopArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::KillTerminalRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    let terminal =
        connection.client().terminals.kill_terminal(request).await?.into_inner().terminal.unwrap_or_default();
    if arguments.output.output == OutputFormat::Json {
        return print_to_stdout(&to_json_line(&json::TerminalJson::from(&terminal))?);
    }
    Ok(0)
}

/// `provost kill`.
pub(in crate::cli) async fn kill(arguments: KillArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::SignalTerminalRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        signal: arguments.signal,
    };
    connection.client().terminals.signal_terminal(request).await?;
    Ok(0)
}

/// `provost wait`.
pub(in crate::cli) async fn wait(arguments: WaitArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::WaitForExitRequest { terminal_id: arguments.terminal, session_id: String::new() };
    let answer = connection.client().terminals.wait_for_exit(request).await?.into_inner();
    let Some(outcome) = answer.outcome else {
        return Err(CliError::message_only(
            "the terminal was removed before its command had ended".to_owned(),
        ));
    };
    if arguments.output.output == OutputFormat::Json {
        // The status is the command's, whether or not the output is read.
        let _ = print_to_stdout(&to_json_line(&json::OutcomeJson::from(&outcome))?)?;
    } else {
        print_watched_end(&outcome);
    }
    Ok(exit_status::from_outcome(&outcome))
}

/// `provost rm`.
pub(in crate::cli) async fn rm(arguments: RmArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::ReleaseTerminalRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    connection.client().terminals.release_terminal(request).await?;
    Ok(0)
}

/// The terminals as a table.
pub(in crate::cli) fn table(terminals: &[v1::Terminal]) -> String {
    let mut rows = vec![["TERMINAL", "STATE", "TIME", "END", "COMMAND"].map(str::to_owned)];
    rows.extend(terminals.iter().map(|terminal| {
        let outcome = terminal.outcome.as_ref();
        [
            terminal.id.clone(),
            json::state(terminal.state()).to_owned(),
            outcome
                .and_then(|outcome| outcome.usage)
                .map_or_else(|| "-".to_owned(), |usage| receipt::span(usage.wall)),
            outcome.map_or_else(|| "-".to_owned(), receipt::describe_end),
            command_line(terminal),
        ]
    }));
    align_columns(&rows)
}

/// The command as one line; what a terminal could take as a control is shown escaped.
fn command_line(terminal: &v1::Terminal) -> String {
    let words = std::iter::once(&terminal.command).chain(&terminal.args);
    words.map(|word| printable::line(word)).collect::<Vec<_>>().join(" ")
}

fn grace(grace: Option<std::time::Duration>) -> Result<Option<prost_types::Duration>, CliError> {
    grace
        .map(prost_types::Duration::try_from)
        .transpose()
        .map_err(|error| CliError::caused_by("--grace is too long", error))
}

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
    let sessions = connection::all_sessions(&mut client).await?;
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
    Ok(text + "\n" + &table(&all(client.terminals).await?))
}

/// `provost close`.
pub(in crate::cli) async fn close(arguments: CloseArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut client = connection.client();
    let session_id = id_of(&mut client, arguments.session).await?;
    client.sessions.close_session(v1::CloseSessionRequest { session_id }).await?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_cannot_drive_the_terminal_that_shows_it() {
        let terminal = v1::Terminal {
            command: "printf".to_owned(),
            args: vec!["\u{1b}]0;title\u{7}\n".to_owned()],
            ..Default::default()
        };
        let line = command_line(&terminal);
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
