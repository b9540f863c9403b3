//! The command `acp-conformance`: runs the conformance suite for ACP terminals against a backend command, or, started by an editor as its
//! agent, inside that editor.

use std::{error::Error, ffi::OsString, io, os::fd::AsFd, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use nix::sys::signal::SigSet;
use provost_base::{printable, stdio};
use provost_conformance::{ANSWER_TIMEOUT, Selection, relay, run_against, run_in_editor};

/// The status when a rule that binds was seen broken.
const DOES_NOT_CONFORM: u8 = 1;
/// The status when nothing could be tested.
const NOT_TESTED: u8 = 125;
/// How long threads that cannot be cancelled (a read of stdin) are waited for at the end.
const THREAD_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Debug, Parser)]
#[command(
    name = "acp-conformance",
    version,
    about = "Test the terminals of an ACP client against the protocol",
    long_about = "Runs numbered cases against the terminals of an ACP client. Given a backend command, the suite plays \
                  both the agent and the editor: it starts the backend as an editor would, with the agent's command \
                  appended. Without a backend it is an agent: let an editor start it, and send a prompt, which runs \
                  all cases or those that it names.",
    after_help = "Exit status:\n  \
                  0 if no MUST failed, 1 if one did, 125 if the backend could not be tested\n\n\
                  Examples:\n  \
                  acp-conformance -- provost acp --\n  \
                  acp-conformance --only TC-047,TC-060 -o json -- ./my-proxy --"
)]
struct Arguments {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Text,
    Json,
}

/// What went wrong, and because of what.
type Failure = (&'static str, Box<dyn Error>);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help, or what is wrong: where nobody reads it nothing is to be done.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(NOT_TESTED) } else { ExitCode::SUCCESS };
        }
    };
    // Who starts this may have blocked the signals that end it. With a valid set this cannot fail.
    let _ = SigSet::all().thread_unblock();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(|error| -> Failure { ("cannot start the runtime", error.into()) }).and_then(
        |runtime| {
            let done = runtime.block_on(run(arguments));
            runtime.shutdown_timeout(THREAD_SHUTDOWN_TIMEOUT);
            done
        },
    );
    match done {
        Ok(status) => ExitCode::from(status),
        Err((what, error)) => {
            let mut line = format!("acp-conformance: {what}: {error}");
            let mut cause = error.source();
            while let Some(source) = cause {
                line.push_str(&format!(": {source}"));
                cause = source.source();
            }
            eprintln!("{}", printable::line(&line));
            ExitCode::from(NOT_TESTED)
        }
    }
}

async fn run(arguments: Arguments) -> Result<u8, Failure> {
    if let Some(socket) = &arguments.relay {
        return relay(socket).await.map(|()| 0).map_err(|error| ("cannot reach the suite", error.into()));
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
        return run_in_editor().await.map(|()| 0).map_err(|error| ("cannot run", error.into()));
    }
    let timeout = arguments.timeout.unwrap_or(ANSWER_TIMEOUT);
    let report = run_against(arguments.backend, &selection, timeout, |verdict| {
        if arguments.output == OutputFormat::Text {
            // What cannot be written fails with the report.
            let _ = print(&format!("{verdict}\n"));
        }
    })
    .await
    .map_err(|error| -> Failure { ("cannot test the backend", error.into()) })?;
    match arguments.output {
        OutputFormat::Json => print(&format!("{}\n", report.to_json()))?,
        OutputFormat::Text => print(&format!("\n{report}\n"))?,
    }
    Ok(if report.conforms() { 0 } else { DOES_NOT_CONFORM })
}

fn print(text: &str) -> Result<(), Failure> {
    match stdio::write(io::stdout().lock().as_fd(), printable::lines(text).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(("cannot write to stdout", error.into()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A whole number with ms, s, m or h.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text[..text.len() - unit.len()].parse::<u64>().ok();
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let whole = number.zip(milliseconds).and_then(|(number, each)| number.checked_mul(each));
    whole.map(Duration::from_millis).ok_or_else(|| "is no whole number with ms, s, m or h".to_owned())
}
