//! `provost acp-conformance`: runs the conformance suite for ACP terminals against a backend command, or, started by
//! an editor as its agent, inside that editor.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    cli::{
        console::{error::CliError, stdio},
        request::{argument_values::parse_duration, arguments::OutputFormat},
    },
    conformance::{self, Selection},
};

/// The status when a rule that binds was seen broken.
const DOES_NOT_CONFORM: u8 = 1;

/// `provost acp-conformance`.
#[derive(Debug, Args)]
#[command(
    about = "Test the terminals of an ACP client against the protocol",
    long_about = "Runs numbered cases against the terminals of an ACP client. Given a backend command, the suite plays \
                  both the agent and the editor: it starts the backend as an editor would, with the agent's command \
                  appended. Without a backend it is an agent: let an editor start it, and send a prompt, which runs \
                  all cases or those that it names.",
    after_help = "Exit status:\n  \
                  0 if no MUST failed, 1 if one did, 125 if the backend could not be tested\n\n\
                  Examples:\n  \
                  provost acp-conformance -- provost acp --\n  \
                  provost acp-conformance --only TC-047,TC-060 -o json -- ./my-proxy --"
)]
pub(in crate::cli) struct AcpConformanceArguments {
    /// Print in this format; json is one object at the end and nothing before it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// List the cases and run none
    #[arg(long, conflicts_with = "output")]
    list: bool,
    /// Run only these cases: names such as TC-001, separated by commas; default: all
    #[arg(long, value_name = "CASES", value_parser = Selection::parse)]
    only: Option<Selection>,
    /// How long the backend may take for each answer, a whole number with ms, s, m or h; default: 20s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Act as the agent that a backend starts: carry lines to the socket of the suite
    #[arg(long, value_name = "SOCKET", hide = true, exclusive = true)]
    relay: Option<PathBuf>,
    /// The backend's command, to which the agent's command is appended
    #[arg(last = true, value_name = "BACKEND")]
    backend: Vec<OsString>,
}

/// Runs the suite.
pub(in crate::cli) async fn run(arguments: AcpConformanceArguments) -> Result<u8, CliError> {
    if let Some(socket) = &arguments.relay {
        let relayed = conformance::relay(socket).await;
        return relayed.map(|()| 0).map_err(|error| CliError::caused_by("cannot reach the suite", error));
    }
    let selection = arguments.only.unwrap_or_default();
    if arguments.list {
        for case in selection.cases() {
            let (id, level) = (case.id(), case.level.word());
            print(&format!("{id} {level:6} {}\n       {}\n", case.rule, case.source))?;
        }
        return Ok(0);
    }
    if arguments.backend.is_empty() {
        let served = conformance::run_in_editor().await;
        return served.map(|()| 0).map_err(|error| CliError::caused_by("cannot run", error));
    }
    let timeout = arguments.timeout.unwrap_or(conformance::ANSWER_TIMEOUT);
    let report = conformance::run_against(arguments.backend, &selection, timeout, |verdict| {
        if arguments.output == OutputFormat::Text {
            // What cannot be written fails with the report.
            let _ = print(&format!("{verdict}\n"));
        }
    })
    .await
    .map_err(|error| CliError::caused_by("cannot test the backend", error))?;
    if arguments.output == OutputFormat::Json {
        print(&format!("{}\n", report.to_json()))?;
    } else {
        print(&format!("\n{report}\n"))?;
    }
    Ok(if report.conforms() { 0 } else { DOES_NOT_CONFORM })
}

fn print(text: &str) -> Result<(), CliError> {
    match stdio::print(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::caused_by("cannot write to stdout", error)),
    }
}
