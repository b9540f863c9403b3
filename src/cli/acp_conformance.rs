//! `provost acp-conformance`: runs the conformance suite for ACP terminals against a backend command, or, started by
//! an editor as its agent, inside that editor.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;

use super::error::CliError;
use crate::conformance::{self, Selection};

/// The status when a rule that binds was seen broken.
const DOES_NOT_CONFORM: u8 = 1;

/// `provost acp-conformance`.
#[derive(Debug, Args)]
#[command(
    long_about = "Runs numbered cases against the terminals of an ACP client. With a backend command, which is \
                  started as an editor would start it and gets the agent's command appended, the suite plays agent \
                  and editor. Without one it is an agent: let an editor start it, and its cases run at a prompt, \
                  all of them or those that the prompt names.",
    after_help = "Exit status:\n  \
                  0 when no MUST has failed, 1 when one has, 125 when the backend could not be tested\n\n\
                  Examples:\n  \
                  provost acp-conformance -- provost acp --\n  \
                  provost acp-conformance --only TC-047,TC-060 --json -- ./my-proxy --"
)]
pub(super) struct AcpConformanceArguments {
    /// Print one JSON object at the end, and nothing before it
    #[arg(long, conflicts_with = "list")]
    json: bool,
    /// Print the cases and run none
    #[arg(long)]
    list: bool,
    /// Run these cases only: names such as TC-001, with commas between them
    #[arg(long, value_name = "CASES", value_parser = Selection::parse)]
    only: Option<Selection>,
    /// How long each answer may take: a whole number and ms, s, m or h; without it 20s
    #[arg(long, value_name = "TIME", value_parser = super::arguments::parse_duration)]
    timeout: Option<Duration>,
    /// Be the agent that a backend starts: carry lines to the suite's socket
    #[arg(long, value_name = "SOCKET", hide = true, exclusive = true)]
    relay: Option<PathBuf>,
    /// The backend and its arguments, up to where the agent's command begins
    #[arg(last = true, value_name = "BACKEND")]
    backend: Vec<OsString>,
}

/// Runs the suite.
pub(super) async fn run(arguments: AcpConformanceArguments) -> Result<u8, CliError> {
    if let Some(socket) = &arguments.relay {
        let relayed = conformance::relay(socket).await;
        return relayed.map(|()| 0).map_err(|error| CliError::caused_by("cannot reach the suite", error));
    }
    let selection = arguments.only.unwrap_or_default();
    if arguments.list {
        for case in selection.cases() {
            println!("{} {:6} {}\n       {}", case.id(), case.level.word(), case.rule, case.source);
        }
        return Ok(0);
    }
    if arguments.backend.is_empty() {
        let served = conformance::run_in_editor().await;
        return served.map(|()| 0).map_err(|error| CliError::caused_by("cannot run", error));
    }
    let timeout = arguments.timeout.unwrap_or(conformance::ANSWER_TIMEOUT);
    let report = conformance::run_against(arguments.backend, &selection, timeout, |verdict| {
        if !arguments.json {
            println!("{verdict}");
        }
    })
    .await
    .map_err(|error| CliError::caused_by("cannot test the backend", error))?;
    if arguments.json {
        println!("{}", report.to_json());
    } else {
        println!("\n{report}");
    }
    Ok(if report.conforms() { 0 } else { DOES_NOT_CONFORM })
}
