//! What `provost run` says in addition to the command's own output: a receipt and notices on stderr, and a report
//! in a file.
//!
//! All of it comes after the command's last byte.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use tokio::signal::unix::SignalKind;

use super::denial_remedy;
use crate::{
    cli::console::{error::CliError, exit_status, json, output_file, receipt, stdio},
    client, printable,
    proto::v1,
    stdio::Waiting,
};

/// How a command ended, as far as this process saw it.
pub(in crate::cli) struct RunEnd {
    /// The status to exit with.
    pub(in crate::cli) exit_status: u8,
    /// The terminal at its end; none if an interrupt came before.
    pub(in crate::cli) terminal: Option<v1::Terminal>,
}

impl RunEnd {
    /// Ended by an interrupt, before the command's own end was seen.
    pub(in crate::cli) fn interrupted_by(signal: SignalKind) -> Self {
        Self { exit_status: exit_status::from_signal(signal), terminal: None }
    }
}

/// What is printed and written at the end.
pub(in crate::cli) struct RunReport {
    receipt: bool,
    file: Option<(PathBuf, File)>,
    /// What to use for a process that is to go on.
    instead: &'static str,
}

/// What `provost run` and `provost exec` advise.
const INSTEAD_OF_RUN: &str =
    "`provost run -d`, with `--session NAME` in a session that stays, starts a command that goes on";
/// What is advised to who did not start the command.
const INSTEAD_OF_WATCHED: &str = "start what is to go on as a command of its own";
/// What a shell that runs one line in a call advises.
const INSTEAD_OF_LINE: &str =
    "a line's processes end with it: run the one that is to go on in the foreground of a line of its own";

/// The object in the file of `--report`.
#[derive(Serialize)]
struct ReportJson<'a> {
    exit_status: u8,
    outcome: Option<json::OutcomeJson>,
    receipt: Option<json::ReceiptJson>,
    error: Option<&'a CliError>,
}

impl RunReport {
    /// Opens the file before the command starts: a report that cannot be written is a mistake to learn of first.
    pub(in crate::cli) fn open(receipt: bool, file: Option<&Path>) -> Result<Self, CliError> {
        let file = file.map(|path| match output_file::create(path) {
            Ok(file) => Ok((path.to_owned(), file)),
            Err(error) => Err(cannot_write(path, error)),
        });
        Ok(Self { receipt, file: file.transpose()?, instead: INSTEAD_OF_RUN })
    }

    /// Nothing but notices, about a command of a session that stays.
    pub(super) fn of_command() -> Self {
        Self { receipt: false, file: None, instead: INSTEAD_OF_RUN }
    }

    /// Nothing but notices, about a line of a shell.
    pub(in crate::cli) fn of_line() -> Self {
        Self { receipt: false, file: None, instead: INSTEAD_OF_LINE }
    }

    /// Reports on a command that was started.
    pub(in crate::cli) fn print_end(&self, ended: &RunEnd) {
        let terminal = ended.terminal.as_ref();
        let outcome = terminal.and_then(|terminal| terminal.outcome.as_ref());
        if self.receipt
            && let Some(terminal) = terminal
        {
            stdio::print_to_stderr(&receipt::receipt_text(terminal));
        }
        if let Some(outcome) = outcome {
            print_notices(outcome, self.instead);
        }
        self.write(&ReportJson {
            exit_status: ended.exit_status,
            outcome: outcome.map(json::OutcomeJson::from),
            receipt: terminal.and_then(|terminal| terminal.receipt.as_ref()).map(json::ReceiptJson::from),
            error: None,
        });
    }

    /// Reports on a command that was not started, or whose end this process did not see.
    pub(super) fn print_failure(&self, error: &CliError) {
        error.print();
        self.write(&ReportJson {
            exit_status: error.exit_status,
            outcome: None,
            receipt: None,
            error: Some(error),
        });
    }

    fn write(&self, report: &ReportJson<'_>) {
        let Some((path, file)) = &self.file else { return };
        let written = serde_json::to_string(report)
            .map_err(io::Error::from)
            .and_then(|line| writeln!(Waiting(file), "{}", printable::json(&line)));
        // The command has ended, and the exit status is its own.
        if let Err(error) = written {
            cannot_write(path, error).print();
        }
    }
}

/// What is to be known of the end of a command that another process has started.
pub(in crate::cli) fn print_watched_end(outcome: &v1::Outcome) {
    print_notices(outcome, INSTEAD_OF_WATCHED);
}

fn print_notices(outcome: &v1::Outcome, instead: &str) {
    let shortfall = client::workspace_shortfall_line(outcome);
    let remedies = denial_remedy::remedy_lines(outcome);
    let lines = client::end_lines(outcome, instead).into_iter().chain(shortfall).chain(remedies);
    lines.for_each(|line| stdio::print_notice(&line));
}

fn cannot_write(path: &Path, error: io::Error) -> CliError {
    CliError::caused_by(format!("cannot write the report {}", printable::path(path)), error)
}
