//! `provost ps`, `kill`, `wait` and `release`: terminals of a running gateway.
//!
//! Needs a gateway: an embedded one would have no terminals. Ids are whole ids, never prefixes, so that a script
//! cannot hit another terminal than it meant.

use super::{
    arguments::{KillArguments, PsArguments, ReleaseArguments, WaitArguments},
    connection::GatewayConnection,
    error::CliError,
    exit_status, json, receipt,
    stdio::{self, WriteOutcome},
};
use crate::{printable, proto::v1};

/// `provost ps`.
pub(super) async fn list(arguments: PsArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let (mut terminals, mut request) = (Vec::new(), v1::ListTerminalsRequest::default());
    loop {
        let page = connection.terminals().list_terminals(request.clone()).await?.into_inner();
        terminals.extend(page.terminals);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let shown = if arguments.json {
        to_json_line(&terminals.iter().map(json::TerminalJson::from).collect::<Vec<_>>())?
    } else {
        table(&terminals)
    };
    print_to_stdout(&shown)
}

/// `provost kill`.
pub(super) async fn kill(arguments: KillArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::KillTerminalRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    let terminal =
        connection.terminals().kill_terminal(request).await?.into_inner().terminal.unwrap_or_default();
    if arguments.json {
        return print_to_stdout(&to_json_line(&json::TerminalJson::from(&terminal))?);
    }
    Ok(0)
}

/// `provost wait`.
pub(super) async fn wait(arguments: WaitArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::WaitForExitRequest { terminal_id: arguments.terminal, session_id: String::new() };
    let answer = connection.terminals().wait_for_exit(request).await?.into_inner();
    let Some(outcome) = answer.outcome else {
        return Err(CliError::message_only(
            "the terminal was released before its command had ended".to_owned(),
        ));
    };
    if arguments.json {
        // The status is the command's, whether or not somebody reads what is printed.
        let _ = print_to_stdout(&to_json_line(&json::OutcomeJson::from(&outcome))?)?;
    } else if let Some(line) = receipt::unusual_end(&outcome) {
        stdio::print_notice(&line);
    }
    Ok(exit_status::from_outcome(&outcome))
}

/// `provost release`.
pub(super) async fn release(arguments: ReleaseArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::ReleaseTerminalRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    connection.terminals().release_terminal(request).await?;
    Ok(0)
}

fn table(terminals: &[v1::Terminal]) -> String {
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

/// Rows as lines, each column but the last as wide as its widest cell.
pub(super) fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value as one line of JSON.
pub(super) fn to_json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let line =
        serde_json::to_string(value).map_err(|error| CliError::caused_by("cannot write JSON", error))?;
    let mut line = printable::json(&line).into_owned();
    line.push('\n');
    Ok(line)
}

/// Prints to stdout and answers with the exit status that goes with how that went.
pub(super) fn print_to_stdout(text: &str) -> Result<u8, CliError> {
    match stdio::print(text).map_err(|error| CliError::caused_by("cannot write to stdout", error))? {
        WriteOutcome::Complete => Ok(0),
        WriteOutcome::ReaderGone => Ok(exit_status::BROKEN_PIPE),
    }
}

fn grace(grace: Option<std::time::Duration>) -> Result<Option<prost_types::Duration>, CliError> {
    grace
        .map(prost_types::Duration::try_from)
        .transpose()
        .map_err(|error| CliError::caused_by("--grace is too long", error))
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

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "b"], ["long", "c"]].map(|row| row.map(str::to_owned));
        assert_eq!(align_columns(&rows), "a     b\nlong  c\n");
    }
}
