//! Failures for people: one sentence, the field or stage, what to do, and the exit status that goes with it.
//!
//! Tells failures apart by gRPC code and by the reason in the error's details, never by message text.

use std::{collections::BTreeMap, fmt::Display, process::ExitCode};

use serde::Serialize;
use tonic::{Code, Status};

use crate::client;

/// Exit status of a command that its time limit ended.
pub(super) const TIME_LIMIT: u8 = 124;
/// Exit status of Provost's own failure.
pub(in crate::cli) const PROVOST_FAILED: u8 = 125;
/// Exit status when the command was denied or could not be executed.
pub(super) const NOT_RUN: u8 = 126;
/// Exit status when there is no such command.
pub(super) const NOT_FOUND: u8 = 127;

/// Why the command line ends without having done what it was asked.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct CliError {
    /// The status to exit with.
    #[serde(skip)]
    pub(in crate::cli) exit_status: u8,
    /// The reason, as the API names it ("COMMAND_NOT_FOUND"), or "CLI" for what happened on this side.
    pub(in crate::cli) reason: String,
    /// What happened, for a person.
    pub(in crate::cli) message: String,
    /// The request's field that is at fault, where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field: Option<String>,
    /// Stage, errno, path, rule, limit: whatever the gateway said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::cli) details: BTreeMap<String, String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) advice: Option<String>,
}

impl CliError {
    /// What went wrong on this side.
    pub(in crate::cli) fn caused_by(what: impl Display, cause: impl Into<anyhow::Error>) -> Self {
        // `{:#}` gives the causes too, in one line.
        Self::message_only(format!("{what}: {:#}", cause.into()))
    }

    /// As [`Self::caused_by`], with nothing beneath it.
    pub(in crate::cli) fn message_only(message: String) -> Self {
        Self {
            exit_status: PROVOST_FAILED,
            reason: "CLI".to_owned(),
            message,
            field: None,
            details: BTreeMap::new(),
            advice: None,
        }
    }

    /// Whether a field of the request is at fault, or one of its elements.
    pub(in crate::cli) fn is_of_field(&self, name: &str) -> bool {
        let field = self.field.as_deref().or(self.details.get("field").map(String::as_str));
        field.is_some_and(|field| field.split('[').next() == Some(name))
    }

    /// The same for where the advice has been followed.
    pub(in crate::cli) fn without_advice(mut self) -> Self {
        self.advice = None;
        self
    }

    /// The same with advice.
    pub(in crate::cli) fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Prints the failure to stderr.
    pub(in crate::cli) fn print_and_exit(&self) -> ExitCode {
        self.print();
        ExitCode::from(self.exit_status)
    }

    /// Prints the failure to stderr, on one line.
    pub(in crate::cli) fn print(&self) {
        super::stdio::print_notice(&self.to_string());
    }
}

impl Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(field) = &self.field {
            write!(f, " (field {field})")?;
        }
        let details: Vec<String> = self
            .details
            .iter()
            .filter(|(_, value)| !self.message.contains(value.as_str()))
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !details.is_empty() {
            write!(f, " [{}]", details.join(", "))?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl From<Status> for CliError {
    fn from(status: Status) -> Self {
        let (reason, field) = (client::reason_of(&status), client::bad_field_of(&status));
        Self {
            exit_status: exit_status_of(status.code(), &reason),
            advice: advice_for(status.code(), &reason),
            message: sentence(&status),
            field: field.filter(|field| !status.message().contains(field.as_str())),
            details: client::details_of(&status),
            reason: if reason.is_empty() { format!("{:?}", status.code()) } else { reason },
        }
    }
}

/// The message; for a status without one, what its code means.
fn sentence(status: &Status) -> String {
    if status.message().is_empty() {
        return status.code().description().to_owned();
    }
    status.message().to_owned()
}

/// The exit status, as shells and env(1) have it.
fn exit_status_of(code: Code, reason: &str) -> u8 {
    match (code, reason) {
        (_, "COMMAND_NOT_FOUND") => NOT_FOUND,
        (
            _,
            "NOT_EXECUTABLE"
            | "PERMISSION_DENIED"
            | "BAD_INTERPRETER"
            | "ARGUMENT_LIST_TOO_LONG"
            | "PROGRAM_CHANGED",
        ) => NOT_RUN,
        (Code::PermissionDenied, _) => NOT_RUN,
        _ => PROVOST_FAILED,
    }
}

/// What a person can do, for the failures where that is not plain from the sentence.
fn advice_for(code: Code, reason: &str) -> Option<String> {
    let text = match (code, reason) {
        (_, "COMMAND_NOT_FOUND") => {
            "a bare name is looked for in the profile's path, and only directories that the profile shows are there"
        }
        (_, "PROGRAM_CHANGED") => {
            "it changed meanwhile, or the sandbox has a file of its own at this path, as it has /etc/passwd"
        }
        (_, "CONFINEMENT_UNAVAILABLE") => {
            "run `provost doctor` to see what this host lacks and how to get it"
        }
        (_, "ROOT_GONE") => "`provost close SESSION` ends the session; the next command opens it again",
        (_, "SANDBOX_LOST") => "nothing of the command is left; how it would have ended is not known",
        // They say what it is.
        (
            _,
            "STATE_UNWRITABLE"
            | "JOURNAL_UNWRITABLE"
            | "NO_THREAD"
            | "FILE_SYSTEM_OVERDUE"
            | "SCREEN_UNAVAILABLE",
        ) => return None,
        (Code::Unavailable, _) => "the gateway is stopping or not there; try again when it serves",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn status(code: Code, reason: &str) -> Status {
        let details = ErrorDetails::with_error_info(
            reason,
            "provost",
            HashMap::from([("stage".to_owned(), "STAGE_EXEC".to_owned())]),
        );
        Status::with_error_details(code, "cannot start", details)
    }

    #[test]
    fn exit_statuses_are_those_of_shells() {
        for (code, reason, expected) in [
            (Code::FailedPrecondition, "COMMAND_NOT_FOUND", 127),
            (Code::FailedPrecondition, "NOT_EXECUTABLE", 126),
            (Code::FailedPrecondition, "PERMISSION_DENIED", 126),
            (Code::FailedPrecondition, "BAD_INTERPRETER", 126),
            (Code::FailedPrecondition, "PROGRAM_CHANGED", 126),
            (Code::PermissionDenied, "ENVIRONMENT_DENIED", 126),
            (Code::FailedPrecondition, "CONFINEMENT_UNAVAILABLE", 125),
            (Code::ResourceExhausted, "LIMIT_REACHED", 125),
            (Code::Unavailable, "", 125),
        ] {
            assert_eq!(CliError::from(status(code, reason)).exit_status, expected, "{code:?} {reason}");
        }
    }

    #[test]
    fn a_failure_is_one_line_with_its_details_and_advice() {
        let text = CliError::from(status(Code::FailedPrecondition, "CONFINEMENT_UNAVAILABLE")).to_string();
        assert!(text.starts_with("cannot start [stage STAGE_EXEC]; "), "{text}");
        assert!(!text.contains('\n'));
    }

    #[test]
    fn a_field_at_fault_is_named_once() {
        let named = Status::with_error_details(
            Code::InvalidArgument,
            "is not absolute",
            ErrorDetails::with_bad_request_violation("cwd", "is not absolute"),
        );
        assert_eq!(CliError::from(named).to_string(), "is not absolute (field cwd)");
    }
}
