//! What `provost run` says in addition to the command's own output: a receipt and notices on stderr, and a report
//! in a file.
//!
//! All of it comes after the command's last byte.

use std::{io, path::Path};

use serde::Serialize;
use tokio::signal::unix::SignalKind;

use super::denial_remedy;
use crate::{
    cli::console::{error::CliError, exit_status, json, output_file::FinalFile, receipt, stdio},
    client, printable,
    proto::v1,
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
    file: Option<FinalFile>,
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
        let file = file.map(|path| FinalFile::prepare(path).map_err(|error| cannot_write(path, error)));
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

    /// Reports on a command that was started. Returns the status to exit with: the command's own, but for a success of which the report is
    /// not where it was asked for. Who reads the file would read what a command has put there.
    pub(in crate::cli) fn print_end(&self, ended: &RunEnd) -> u8 {
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
        let written = self.write(&ReportJson {
            exit_status: ended.exit_status,
            outcome: outcome.map(json::OutcomeJson::from),
            receipt: terminal.and_then(|terminal| terminal.receipt.as_ref()).map(json::ReceiptJson::from),
            error: None,
        });
        match (written, ended.exit_status) {
            (Err(error), 0) => error.exit_status,
            (_, status) => status,
        }
    }

    /// Reports on a command that was not started, or whose end this process did not see.
    pub(super) fn print_failure(&self, error: &CliError) {
        error.print();
        // It has said why, and the exit status is a failure already.
        let _ = self.write(&ReportJson {
            exit_status: error.exit_status,
            outcome: None,
            receipt: None,
            error: Some(error),
        });
    }

    /// A failure is printed.
    fn write(&self, report: &ReportJson<'_>) -> Result<(), CliError> {
        let Some(file) = &self.file else { return Ok(()) };
        serde_json::to_string(report)
            .map_err(io::Error::from)
            .and_then(|line| file.write(&format!("{}\n", printable::json(&line))))
            .map_err(|error| cannot_write(file.path(), error))
            .inspect_err(CliError::print)
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
