//! `provost ps`, `kill`, `wait` and `release`: terminals of a running gateway.
//!
//! Needs a gateway: an embedded one would have no terminals. Ids are whole ids, never prefixes, so that a script
//! cannot hit another terminal than it meant.

use super::{
    arguments::{KillArguments, PsArguments, ReleaseArguments, WaitArguments},
    connection::Connection,
    exit,
    failure::Failure,
    json, receipt,
    streams::{self, Written},
};
use crate::{printable, proto::v1};

/// `provost ps`.
pub(super) async fn list(arguments: PsArguments) -> Result<u8, Failure> {
    let connection = Connection::find(arguments.gateway.gateway.as_deref()).await?;
    let (mut terminals, mut request) = (Vec::new(), v1::ListTerminalsRequest::default());
    loop {
        let page = connection.terminals().list(request.clone()).await?.into_inner();
        terminals.extend(page.terminals);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let shown = if arguments.json {
        as_json(&terminals.iter().map(json::Terminal::from).collect::<Vec<_>>())?
    } else {
        table(&terminals)
    };
    printed(&shown)
}

/// `provost kill`.
pub(super) async fn kill(arguments: KillArguments) -> Result<u8, Failure> {
    let connection = Connection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::KillRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    let terminal = connection.terminals().kill(request).await?.into_inner();
    if arguments.json {
        return printed(&as_json(&json::Terminal::from(&terminal))?);
    }
    Ok(0)
}

/// `provost wait`.
pub(super) async fn wait(arguments: WaitArguments) -> Result<u8, Failure> {
    let connection = Connection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::TerminalRequest { terminal_id: arguments.terminal, session_id: String::new() };
    let answer = connection.terminals().wait_for_exit(request).await?.into_inner();
    let Some(outcome) = answer.outcome else {
        return Err(Failure::plain("the terminal was released before its command had ended".to_owned()));
    };
    if arguments.json {
        // The status is the command's, whether or not somebody reads what is printed.
        let _ = printed(&as_json(&json::Outcome::from(&outcome))?)?;
    } else if let Some(line) = receipt::unusual_end(&outcome) {
        streams::note(&line);
    }
    Ok(exit::of_outcome(&outcome))
}

/// `provost release`.
pub(super) async fn release(arguments: ReleaseArguments) -> Result<u8, Failure> {
    let connection = Connection::find(arguments.gateway.gateway.as_deref()).await?;
    let request = v1::ReleaseRequest {
        terminal_id: arguments.terminal,
        session_id: String::new(),
        grace: grace(arguments.grace)?,
    };
    connection.terminals().release(request).await?;
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
            outcome.map_or_else(|| "-".to_owned(), receipt::end),
            command_line(terminal),
        ]
    }));
    aligned(&rows)
}

/// The command as one line; what a terminal could take as a control is shown escaped.
fn command_line(terminal: &v1::Terminal) -> String {
    let words = std::iter::once(&terminal.command).chain(&terminal.args);
    words.map(|word| printable::line(word)).collect::<Vec<_>>().join(" ")
}

/// Rows as lines, each column but the last as wide as its widest cell.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
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
pub(super) fn as_json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::own("cannot write JSON", error))?;
    let mut line = printable::json(&line).into_owned();
    line.push('\n');
    Ok(line)
}

/// Prints to stdout and answers with the exit status that goes with how that went.
pub(super) fn printed(text: &str) -> Result<u8, Failure> {
    match streams::print(text).map_err(|error| Failure::own("cannot write to stdout", error))? {
        Written::Whole => Ok(0),
        Written::NobodyReads => Ok(exit::NOBODY_READS),
    }
}

fn grace(grace: Option<std::time::Duration>) -> Result<Option<prost_types::Duration>, Failure> {
    grace
        .map(prost_types::Duration::try_from)
        .transpose()
        .map_err(|error| Failure::own("--grace is too long", error))
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
        assert_eq!(aligned(&rows), "a     b\nlong  c\n");
    }
}
