//! What `provost run` prints besides the command's own output: a receipt, a JSON object, a line about an odd end.
//!
//! All of it goes to stderr, after the command's last byte.

use std::io;

use serde::Serialize;

use super::{arguments::RunArguments, failure::Failure, json, receipt, run::Ended, streams};

/// What is printed besides the command's own output.
pub(super) struct Report {
    json: bool,
    receipt: bool,
}

/// The one object of `--json`.
#[derive(Serialize)]
struct Final<'a> {
    exit_status: u8,
    outcome: Option<json::Outcome>,
    receipt: Option<json::Receipt>,
    error: Option<&'a Failure>,
}

impl Report {
    /// What was asked for.
    pub(super) fn asked_for(arguments: &RunArguments) -> Self {
        Self { json: arguments.json, receipt: arguments.receipt }
    }

    /// Of a command that was started.
    pub(super) fn print_end(&self, ended: &Ended) {
        let terminal = ended.terminal.as_ref();
        let outcome = terminal.and_then(|terminal| terminal.outcome.as_ref());
        let in_force = terminal.and_then(|terminal| terminal.receipt.as_ref());
        if self.receipt
            && let Some(terminal) = terminal
        {
            streams::print_to_stderr(&receipt::for_people(terminal));
        }
        if self.json {
            print_object(&Final {
                exit_status: ended.exit_status,
                outcome: outcome.map(json::Outcome::from),
                receipt: in_force.map(json::Receipt::from),
                error: None,
            });
        } else if let Some(outcome) = outcome {
            let lines = receipt::workspace(outcome).into_iter().chain(receipt::unusual_end(outcome));
            lines.for_each(|line| streams::note(&line));
        }
    }

    /// Of one that was not, or whose end this process did not see.
    pub(super) fn print_failure(&self, failure: &Failure) {
        if !self.json {
            return failure.print();
        }
        print_object(&Final {
            exit_status: failure.exit_status,
            outcome: None,
            receipt: None,
            error: Some(failure),
        });
    }
}

fn print_object(object: &Final<'_>) {
    match serde_json::to_string(object) {
        Ok(line) => streams::print_to_stderr(&crate::printable::json(&line)),
        Err(error) => streams::note(&io::Error::from(error).to_string()),
    }
}
