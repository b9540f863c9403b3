//! Tries what `provost run` does, here and now, and says what came of it.
//!
//! What a host offers is known by many protections; whether a command starts is known by starting one. It is the code of
//! `provost run` itself, so that the two cannot say different things.

use clap::{CommandFactory, FromArgMatches, Parser};
use serde::Serialize;

use crate::cli::{
    console::error::{CliError, PROVOST_FAILED},
    request::{argument_values::without_empty_variables, arguments::RunArguments},
    run::run::run_confined,
};

/// What came of the trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "result", content = "message")]
pub(super) enum Trial {
    /// A command ran.
    Ran,
    /// No command runs here.
    Failed(String),
    /// None runs in this directory, or by the policy here. What the host offers is not known by that.
    Refused(String),
}

/// `provost run` with its options as they are by themselves.
#[derive(Parser)]
struct TrialRun {
    #[command(flatten)]
    run: RunArguments,
}

/// Runs `true` as `provost run` does.
pub(super) async fn run() -> Result<Trial, CliError> {
    let words = ["provost", "--no-stdin", "--on-ask", "refuse", "--", "true"];
    // A variable of the environment can be at fault.
    let parsed = without_empty_variables(TrialRun::command())
        .try_get_matches_from(words)
        .and_then(|matches| TrialRun::from_arg_matches(&matches))
        .map_err(|error| CliError::caused_by("cannot try `provost run`", error))?;
    Ok(match run_confined(parsed.run).await {
        Ok(ended) if ended.exit_status == 0 => Trial::Ran,
        Ok(ended) => Trial::Failed(format!("`true` ended with {}", ended.exit_status)),
        Err(error) if error.exit_status != PROVOST_FAILED || error.is_of_field("roots") => {
            Trial::Refused(error.to_string())
        }
        Err(error) => Trial::Failed(error.without_advice().to_string()),
    })
}
