//! What `provost run` prints besides the command's own output: a receipt, a JSON object, a line about an odd end.
//!
//! All of it goes to stderr, after the command's last byte.

use std::io;

use serde::Serialize;

use super::{arguments::RunArguments, error::CliError, json, receipt, run::RunEnd, stdio};

/// What is printed besides the command's own output.
pub(super) struct RunReport {
    json: bool,
    receipt: bool,
}

/// The one object of `--json`.
#[derive(Serialize)]
struct ReportJson<'a> {
    exit_status: u8,
    outcome: Option<json::OutcomeJson>,
    receipt: Option<json::ReceiptJson>,
    error: Option<&'a CliError>,
}

impl RunReport {
    /// What was asked for.
    pub(super) fn from_arguments(arguments: &RunArguments) -> Self {
        Self { json: arguments.json, receipt: arguments.receipt }
    }

    /// Of a command that was started.
    pub(super) fn print_end(&self, ended: &RunEnd) {
        let terminal = ended.terminal.as_ref();
        let outcome = terminal.and_then(|terminal| terminal.outcome.as_ref());
        let in_force = terminal.and_then(|terminal| terminal.receipt.as_ref());
        if self.receipt
            && let Some(terminal) = terminal
        {
            stdio::print_to_stderr(&receipt::receipt_text(terminal));
        }
        if self.json {
            print_object(&ReportJson {
                exit_status: ended.exit_status,
                outcome: outcome.map(json::OutcomeJson::from),
                receipt: in_force.map(json::ReceiptJson::from),
                error: None,
            });
        } else if let Some(outcome) = outcome {
            let lines = receipt::workspace(outcome).into_iter().chain(receipt::unusual_end(outcome));
            lines.for_each(|line| stdio::print_notice(&line));
        }
    }

    /// Of one that was not, or whose end this process did not see.
    pub(super) fn print_failure(&self, failure: &CliError) {
        if !self.json {
            return failure.print();
        }
        print_object(&ReportJson {
            exit_status: failure.exit_status,
            outcome: None,
            receipt: None,
            error: Some(failure),
        });
    }
}

fn print_object(object: &ReportJson<'_>) {
    match serde_json::to_string(object) {
        Ok(line) => stdio::print_to_stderr(&crate::printable::json(&line)),
        Err(error) => stdio::print_notice(&io::Error::from(error).to_string()),
    }
}
