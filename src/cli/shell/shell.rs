//! `provost shell`: a kept shell in a sandbox, for a person at a terminal or for lines that are run one after the other.
//!
//! The session and the shell end with this process.

use std::path::PathBuf;

use clap::Args;
use tonic::Streaming;

use crate::{
    cli::{
        console::{
            error::{self, CliError},
            exit_status,
            person_terminal::{LeaveWhenDropped, OutputStream},
            receipt,
            signals::TerminationSignals,
            stdio::{self, Input, WriteOutcome},
        },
        gateway_link::{
            approval_prompt::{self, AnswerWait},
            attached,
            connection::{GatewayConnection, Terminals},
            reconnect::Restarts,
        },
        request::{
            arguments::{EnvArgument, GatewayArguments, WorkspaceArguments},
            run_request::{text, workspace_roots},
        },
        run::{run_attached, run_control::unless_interrupted},
    },
    client::{self, FrontEnd},
    proto::v1::{self, run_line_response::Event},
};

/// `provost shell`.
#[derive(Debug, Args)]
#[command(
    about = "Keep a shell in a sandbox and work in it, or run lines in it",
    long_about = "Starts a shell in a sandbox. With --line it runs lines in it, one after the other: each is judged by the \
                  policy first, directory and variables stay, and each line's output is printed. Without --line it connects \
                  this terminal to the shell. The shell reads no start file. Its profile must have the exec gate for --line. \
                  Connects to a gateway if one answers; otherwise starts one inside itself.",
    after_help = "Exit status:\n  with --line, the last line's, or 125 if it is not known; otherwise, and if a line ends the shell, the shell's\n\n\
                  Examples:\n  provost shell\n  provost shell --line 'cd src' --line 'ls | wc -l'"
)]
pub(in crate::cli) struct ShellArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Confine the shell by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Start an embedded gateway with the policy files in this directory, even if another gateway runs
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    policies: Option<PathBuf>,
    #[command(flatten)]
    workspace: WorkspaceArguments,
    /// Set a variable in the shell's environment, or pass on the one of this name if it is set here; may be given several
    /// times
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = EnvArgument::parser())]
    env: Vec<EnvArgument>,
    /// Run this line in the shell; may be given several times; the lines after one that ends the shell are not run
    #[arg(long, value_name = "LINE")]
    line: Vec<String>,
    /// The shell: bash, zsh, fish, sh, dash, ksh or mksh, by name or path; default: the profile's
    #[arg(value_name = "SHELL")]
    shell: Option<String>,
}

/// Keeps the shell, and returns the exit status.
pub(in crate::cli) async fn shell(arguments: ShellArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let window = match (attached::own_window(), arguments.line.is_empty()) {
        (Some(window), _) => window,
        (None, false) => attached::usual_window(),
        (None, true) => {
            return Err(CliError::message_only(
                "stdin is no terminal: name the lines that are to run with --line".to_owned(),
            ));
        }
    };
    let roots = workspace_roots(arguments.workspace.roots())?;
    let cwd = arguments.workspace.working_directory(&roots[0])?;
    let workspace = client::session_in_bytes(v1::CreateSessionRequest {
        roots: roots.iter().map(text).collect(),
        extent: arguments.workspace.extent().into(),
        lifetime: v1::Lifetime::OwnerProcess.into(),
        profile: arguments.profile.clone().unwrap_or_default(),
        ssh_agent: client::ssh_agent_socket(),
        ..Default::default()
    });
    let mut env = Vec::new();
    for variable in arguments.env {
        env.extend(variable.resolve().map(|(name, value)| v1::EnvVar { name, value, ..Default::default() }));
    }
    let create = v1::CreateTerminalRequest {
        command: arguments.shell.map(v1::create_terminal_request::Command::Program),
        kept_shell: Some(v1::KeptShell {}),
        profile: arguments.profile.unwrap_or_default(),
        cwd: text(cwd),
        on_ask: v1::OnAsk::Refuse.into(),
        env,
        ..client::new_terminal()
    };
    let create = client::terminal_in_bytes(run_attached::in_pty(create, window));
    let named = arguments.gateway.gateway.as_deref();
    let connection = GatewayConnection::running_or_own(named, arguments.policies.as_deref(), None).await?;
    let result = in_session(&connection, workspace, create, &arguments.line, &mut signals).await;
    let waiting = if connection.is_embedded() { AnswerWait::Nowhere } else { AnswerWait::Never };
    connection.close().await;
    result.map_err(|failure| approval_prompt::advise(failure, waiting))
}

async fn in_session(
    connection: &GatewayConnection,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
    lines: &[String],
    signals: &mut TerminationSignals,
) -> Result<u8, CliError> {
    let mut sessions = connection.client().sessions;
    let session =
        match unless_interrupted(signals, sessions.create_session(FrontEnd::Cli.sign(workspace))).await {
            Ok(session) => session?.into_inner().session.unwrap_or_default(),
            Err(signal) => return Ok(exit_status::from_signal(signal)),
        };
    if let Some(line) = session.repository.as_ref().and_then(receipt::repository_notice) {
        stdio::print_notice(&line);
    }
    if let Some(line) = receipt::git_notice(&session) {
        stdio::print_notice(&line);
    }
    let create = v1::CreateTerminalRequest { session_id: session.id.clone(), ..create };
    let terminals = connection.client().terminals;
    let result = if lines.is_empty() {
        let restarts = if connection.is_embedded() { Restarts::Never } else { Restarts::Followed };
        let ended = run_attached::drive(terminals, create, (Input::Forwarded, restarts), signals).await;
        ended.map(|ended| ended.exit_status)
    } else {
        run_lines(terminals, create, lines, signals).await
    };
    let closed = sessions.close_session(v1::CloseSessionRequest { session_id: session.id }).await;
    let status = result?;
    if let Err(failure) = closed {
        stdio::print_notice(&format!("closing the session: {}", CliError::from(failure)));
    }
    Ok(status)
}

/// Runs the lines, until one ends the shell or this process is to end.
async fn run_lines(
    mut terminals: Terminals,
    create: v1::CreateTerminalRequest,
    lines: &[String],
    signals: &mut TerminationSignals,
) -> Result<u8, CliError> {
    let created = match unless_interrupted(signals, terminals.create_terminal(create)).await {
        Ok(created) => created?.into_inner().terminal.unwrap_or_default(),
        Err(signal) => return Ok(exit_status::from_signal(signal)),
    };
    if let Some(line) = created.receipt.as_ref().and_then(|of| receipt::shortfall_notice(&of.shortfalls)) {
        stdio::print_notice(&line);
    }
    let mut status = 0;
    for (number, line) in (1..).zip(lines) {
        let request = v1::RunLineRequest {
            terminal_id: created.id.clone(),
            line: line.clone(),
            on_ask: v1::OnAsk::Refuse.into(),
            ..Default::default()
        };
        let events = terminals.run_line(request).await?.into_inner();
        let end = match unless_interrupted(signals, print_line(events)).await {
            Ok(end) => end?,
            Err(signal) => return Ok(exit_status::from_signal(signal)),
        };
        let Some(end) = end else { return Ok(exit_status::BROKEN_PIPE) };
        status =
            end.exit_status.and_then(|status| u8::try_from(status).ok()).unwrap_or(error::PROVOST_FAILED);
        for doubt in end.doubts() {
            stdio::print_notice(doubt_notice(doubt));
        }
        match end.ending() {
            v1::LineEnding::Confirmed => {}
            v1::LineEnding::Quiet => {
                stdio::print_notice("the shell waits for input, and the line's end is not known");
                return Ok(error::PROVOST_FAILED);
            }
            v1::LineEnding::ShellEnded => {
                let outcome = end.outcome.unwrap_or_default();
                if let Some(notice) = ended_notice(&outcome, lines.len() - number) {
                    stdio::print_notice(&notice);
                }
                if let Some(line) = client::ended_line(
                    &outcome,
                    "a shell's jobs end with it, and those of one that stays do not",
                ) {
                    stdio::print_notice(&line);
                }
                return Ok(exit_status::from_outcome(&outcome));
            }
            v1::LineEnding::Unspecified => break,
        }
    }
    Ok(status)
}

/// Prints a line's output as it comes. `None`: nobody reads it.
async fn print_line(mut events: Streaming<v1::RunLineResponse>) -> Result<Option<v1::LineEnd>, CliError> {
    let stdout = OutputStream::stdout();
    let _left = LeaveWhenDropped;
    while let Some(response) = events.message().await? {
        match response.event {
            Some(Event::Chunk(chunk)) => {
                let written = stdio::write_to_stdout(&stdout.shown(&chunk.data));
                match written.map_err(|error| CliError::caused_by("cannot write the output", error))? {
                    WriteOutcome::Complete => {}
                    WriteOutcome::ReaderGone => return Ok(None),
                }
            }
            Some(Event::Gap(gap)) => {
                let bytes = gap.to_offset - gap.from_offset;
                stdio::print_notice(&format!(
                    "{bytes} bytes of output were overwritten before they were read"
                ));
            }
            Some(Event::Waits(_)) => stdio::print_notice("the line waits for input, which it does not get"),
            Some(Event::End(end)) => return Ok(Some(end)),
            Some(Event::Started(_)) | None => {}
        }
    }
    Err(CliError::message_only("the gateway ended the call before the line had ended".to_owned()))
}

/// How the shell has ended, and how many lines were not run for that. `None`: the last line has left it.
fn ended_notice(outcome: &v1::Outcome, lines_left: usize) -> Option<String> {
    let how = match &outcome.end {
        Some(v1::outcome::End::ExitCode(_)) if lines_left == 0 => return None,
        Some(v1::outcome::End::ExitCode(code)) => format!("with exit status {code}"),
        Some(v1::outcome::End::Signal(name)) => format!("by {name}"),
        None => "with its sandbox".to_owned(),
    };
    let left = match lines_left {
        0 => String::new(),
        1 => "; 1 line was not run".to_owned(),
        more => format!("; {more} lines were not run"),
    };
    Some(format!("the shell has ended {how}{left}"))
}

fn doubt_notice(doubt: v1::LineDoubt) -> &'static str {
    match doubt {
        v1::LineDoubt::MarksMissing => "the shell did not mark where the line begins or ends",
        v1::LineDoubt::MarksFalse => "a program has written marks as the shell does",
        v1::LineDoubt::ShellReplaced => "the shell has been replaced by another program",
        v1::LineDoubt::FullScreen => "a program took the whole screen",
        v1::LineDoubt::OutputLost => "output was overwritten before it was read",
        v1::LineDoubt::Unspecified => "the gateway has a doubt that this build does not know",
    }
}
