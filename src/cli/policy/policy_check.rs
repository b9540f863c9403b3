//! `provost policy check`: says whether policy files are valid, and of what is perhaps not meant.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{error_text, print};
use crate::{
    cli::{
        console::{
            error::CliError,
            stdio,
            table::{print_to_stdout, to_json_line},
        },
        request::arguments::{OutputArguments, OutputFormat},
    },
    gateway::{
        self, GoverningConflict,
        policy_directory::{self, PolicyDirectoryError},
    },
    policy::{
        PolicySet,
        diagnostics::{PolicyWarning, WarningId},
    },
    printable,
};

/// `provost policy check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 when the policy is valid, 1 when it is not\n\n\
                        Examples:\n  provost policy check /etc/provost/policies\n  \
                        provost policy check -o json policies | jq '.warnings[].id'")]
pub(in crate::cli) struct CheckArguments {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
}

/// Why a policy is not valid.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    /// Its files are wrong.
    #[error("{0}")]
    Files(PolicyDirectoryError),
    /// A profile shows what it may not.
    #[error("{0}: keep secrets where no profile shows anything")]
    Reached(GoverningConflict),
}

impl CheckError {
    fn text(&self) -> String {
        match self {
            Self::Files(error) => error_text(error),
            Self::Reached(_) => printable::line(&self.to_string()).into_owned(),
        }
    }
}

fn read(directory: &Path) -> Result<PolicySet, CheckError> {
    let policy = policy_directory::read(directory).map_err(CheckError::Files)?;
    gateway::check_secrets(&policy).map_err(CheckError::Reached)?;
    Ok(policy)
}

/// Checks; answers with the exit status.
pub(in crate::cli) fn check(arguments: &CheckArguments) -> Result<u8, CliError> {
    let read = read(&arguments.directory);
    let status = u8::from(read.is_err());
    match (arguments.output.output, read) {
        (OutputFormat::Json, read) => {
            let written = print_to_stdout(&to_json_line(&CheckJson::of(&read))?)?;
            Ok(if written == 0 { status } else { written })
        }
        (OutputFormat::Text, Ok(policy)) => {
            print_text(&policy)?;
            Ok(status)
        }
        (OutputFormat::Text, Err(error)) => {
            stdio::print_to_stderr(&format!("{}\n", error.text()));
            Ok(status)
        }
    }
}

fn print_text(policy: &PolicySet) -> Result<(), CliError> {
    let (profiles, rules) = (policy.profiles().count(), policy.rules().len());
    let about_connections = match policy.connect_rules().len() {
        0 => String::new(),
        count => format!(", {count} rules about connections"),
    };
    print(&format!("valid: {profiles} profiles, {rules} rules{about_connections}; {}", policy.digest()))?;
    for warning in policy.warnings() {
        let PolicyWarning { id, subject, location, problem } = warning;
        let place = location.as_ref().map_or_else(String::new, |at| format!("{}:{}: ", at.file, at.line));
        let text = format!("{place}{} {subject:?} {problem} [{}]", kind(*id), id.name());
        stdio::print_notice(&printable::line(&text));
    }
    if rules == 0 {
        stdio::print_notice("there is no rule, and what no rule allows is denied: nothing would run");
    }
    Ok(())
}

/// What a warning is about.
fn kind(id: WarningId) -> &'static str {
    match id {
        WarningId::NoGate => "profile",
        WarningId::ShownSecret => "secret",
        _ => "rule",
    }
}

/// What was found, as `-o json` prints it.
#[derive(Debug, Serialize)]
struct CheckJson {
    valid: bool,
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Found {
    Valid { profiles: usize, rules: usize, connect_rules: usize, digest: String, warnings: Vec<WarningJson> },
    Invalid { error: MistakeJson },
}

#[derive(Debug, Serialize)]
struct WarningJson {
    id: &'static str,
    kind: &'static str,
    subject: String,
    file: Option<String>,
    line: Option<usize>,
    problem: String,
}

/// Without a place where no file is at fault.
#[derive(Debug, Serialize)]
struct MistakeJson {
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    problem: String,
}

impl CheckJson {
    fn of(read: &Result<PolicySet, CheckError>) -> Self {
        let found = match read {
            Ok(policy) => Found::Valid {
                profiles: policy.profiles().count(),
                rules: policy.rules().len(),
                connect_rules: policy.connect_rules().len(),
                digest: policy.digest().to_string(),
                warnings: policy.warnings().iter().map(WarningJson::from).collect(),
            },
            Err(CheckError::Files(PolicyDirectoryError::File(mistake))) => Found::Invalid {
                error: MistakeJson {
                    file: Some(mistake.file.clone()),
                    line: Some(mistake.line),
                    column: Some(mistake.column),
                    problem: mistake.problem.clone(),
                },
            },
            Err(error) => Found::Invalid {
                error: MistakeJson { file: None, line: None, column: None, problem: error.text() },
            },
        };
        Self { valid: read.is_ok(), found }
    }
}

impl From<&PolicyWarning> for WarningJson {
    fn from(warning: &PolicyWarning) -> Self {
        Self {
            id: warning.id.name(),
            kind: kind(warning.id),
            subject: warning.subject.clone(),
            file: warning.location.as_ref().map(|at| at.file.clone()),
            line: warning.location.as_ref().map(|at| at.line),
            problem: warning.problem.clone(),
        }
    }
}
