//! `provost run`: one command through a gateway, its output as it comes, its exit status at the end.
//!
//! Refuses to lose anything: output that this process cannot write stops the command, and whatever way it ends
//! the session is closed, so that nothing is left.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use serde::Serialize;
use tokio::{signal::unix::SignalKind, task::AbortHandle, time::Instant};
use tonic::Streaming;

use super::{
    arguments::{NetworkChoice, RunArguments},
    connection::{Connection, Terminals},
    failure::{self, Failure},
    interrupts::Interrupts,
    json, receipt,
    streams::{self, Written},
};
use crate::proto::v1::{self, run_event::Event};

/// How long, after the second interrupt, output may still come before this process leaves without it.
const LEAVE_AFTER: Duration = Duration::from_secs(2);
/// SIGPIPE of signal(7): the signal that a program in this place would have died of.
const SIGPIPE: u8 = 13;

/// Runs the command, and answers with its exit status.
pub(super) async fn run(arguments: RunArguments) -> Result<u8, Failure> {
    let report = Report { json: arguments.json, receipt: arguments.receipt };
    match confined(arguments).await {
        Ok(ended) => {
            report.print_end(&ended);
            Ok(ended.exit_status)
        }
        Err(failure) if report.json => {
            report.print_failure(&failure);
            Ok(failure.exit_status)
        }
        Err(failure) => Err(failure),
    }
}

/// A command that was started, and how it ended as far as this process saw it.
struct Ended {
    exit_status: u8,
    terminal: Option<v1::Terminal>,
}

async fn confined(arguments: RunArguments) -> Result<Ended, Failure> {
    // First of all: from here on an interrupt leaves nothing behind.
    let mut interrupts = Interrupts::take().map_err(|error| Failure::own("cannot take signals", error))?;
    let workspace = workspace(arguments.cwd.as_deref())?;
    let stdin = arguments.stdin;
    let connection =
        Connection::find_or_embed(arguments.gateway.gateway.as_deref(), arguments.policies.as_deref());
    let connection = connection.await?;
    let request = request(arguments)?;
    let result = in_session(&connection, workspace, request, stdin, &mut interrupts).await;
    connection.close().await;
    result
}

/// Opens a session for the workspace, runs the command in it, and closes it.
async fn in_session(
    connection: &Connection,
    workspace: String,
    mut create: v1::CreateTerminalRequest,
    stdin: bool,
    interrupts: &mut Interrupts,
) -> Result<Ended, Failure> {
    let mut sessions = connection.sessions();
    let session = sessions
        .create(v1::CreateSessionRequest {
            roots: vec![workspace],
            profile: create.profile.clone(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            ..Default::default()
        })
        .await?
        .into_inner();
    create.session_id.clone_from(&session.id);
    let result = drive(connection.terminals(), create, stdin, interrupts).await;
    let closed = sessions.close(v1::CloseSessionRequest { session_id: session.id }).await;
    let ended = result?;
    // The command is done and its status known: that its session could not be closed is worth a line, no more.
    if let Err(status) = closed {
        streams::note(&format!("closing the session: {}", Failure::from(status)));
    }
    Ok(ended)
}

/// Starts the command and stays with it until it has ended.
async fn drive(
    mut terminals: Terminals,
    create: v1::CreateTerminalRequest,
    stdin: bool,
    interrupts: &mut Interrupts,
) -> Result<Ended, Failure> {
    let mut starter = terminals.clone();
    let starting = async {
        let mut events = starter.run(v1::RunRequest { create: Some(create) }).await?.into_inner();
        let first = events.message().await?;
        Ok::<_, tonic::Status>((first, events))
    };
    let (first, events) = tokio::select! {
        started = starting => started?,
        // Dropping the call is enough: a caller of Run that goes away stops the command.
        signal = interrupts.next() => return Ok(Ended { exit_status: signalled(signal), terminal: None }),
    };
    let Some(Event::Started(started)) = first.and_then(|first| first.event) else {
        return Err(Failure::plain("the gateway ended the call before the command had started".to_owned()));
    };
    for shortfall in started.receipt.iter().flat_map(|receipt| &receipt.shortfalls) {
        streams::note(&format!("notice: {shortfall}"));
    }
    let input = stdin.then(|| forward_stdin(terminals.clone(), started.id.clone()));
    let result = stay(&mut terminals, &started.id, events, interrupts).await;
    if let Some(input) = input {
        input.abort();
    }
    result
}

/// Passes output on until the command has ended, and stops it when asked to.
async fn stay(
    terminals: &mut Terminals,
    terminal_id: &str,
    events: Streaming<v1::RunEvent>,
    interrupts: &mut Interrupts,
) -> Result<Ended, Failure> {
    let passing = pass_output(terminals.clone(), terminal_id.to_owned(), events);
    tokio::pin!(passing);
    let mut asked = 0_u32;
    let mut leave_at = None;
    loop {
        tokio::select! {
            ended = &mut passing => return ended,
            signal = interrupts.next() => {
                asked += 1;
                match asked {
                    1 => stop(terminals.clone(), terminal_id.to_owned(), None),
                    2 => {
                        stop(terminals.clone(), terminal_id.to_owned(), Some(Duration::ZERO));
                        leave_at = Some((Instant::now() + LEAVE_AFTER, signal));
                    }
                    _ => return Ok(Ended { exit_status: signalled(signal), terminal: None }),
                }
            }
            signal = leaving(leave_at) => {
                return Ok(Ended { exit_status: signalled(signal), terminal: None });
            }
        }
    }
}

/// Never, until there is a time to leave at.
async fn leaving(at: Option<(Instant, SignalKind)>) -> SignalKind {
    match at {
        Some((at, signal)) => {
            tokio::time::sleep_until(at).await;
            signal
        }
        None => std::future::pending().await,
    }
}

/// Asks the gateway to stop the command; the end comes by the stream of events.
fn stop(mut terminals: Terminals, terminal_id: String, grace: Option<Duration>) {
    tokio::spawn(async move {
        let grace = grace.and_then(|grace| grace.try_into().ok());
        let request = v1::KillRequest { terminal_id, session_id: String::new(), grace };
        if let Err(status) = terminals.kill(request).await
            // It ended by itself meanwhile.
            && status.code() != tonic::Code::NotFound
        {
            Failure::from(status).print();
        }
    });
}

/// Writes each chunk to its own stream as it comes. The command waits while this process's reader does.
async fn pass_output(
    terminals: Terminals,
    terminal_id: String,
    mut events: Streaming<v1::RunEvent>,
) -> Result<Ended, Failure> {
    let mut stdout = tokio::io::stdout();
    let mut stderr = tokio::io::stderr();
    let mut nobody_reads = false;
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::Chunk(chunk)) if !nobody_reads => {
                let written = if chunk.stream() == v1::Stream::Stderr {
                    streams::write_all(&mut stderr, &chunk.data).await
                } else {
                    streams::write_all(&mut stdout, &chunk.data).await
                };
                match written {
                    Ok(Written::Whole) => {}
                    Ok(Written::NobodyReads) => {
                        nobody_reads = true;
                        stop(terminals.clone(), terminal_id.clone(), None);
                    }
                    Err(error) => {
                        stop(terminals.clone(), terminal_id.clone(), None);
                        return Err(Failure::own("cannot write the command's output", error));
                    }
                }
            }
            Some(Event::Finished(terminal)) => {
                let outcome = terminal.outcome.as_ref();
                let exit_status =
                    if nobody_reads { 128 + SIGPIPE } else { outcome.map_or(failure::OWN, exit_status) };
                return Ok(Ended { exit_status, terminal: Some(terminal) });
            }
            Some(Event::Chunk(_) | Event::Started(_)) | None => {}
        }
    }
    Err(Failure::plain("the gateway ended the call before the command had".to_owned())
        .advise("what became of it is in the gateway's log"))
}

/// Feeds the command's stdin from this process's, and closes it at the end.
fn forward_stdin(mut terminals: Terminals, terminal_id: String) -> AbortHandle {
    let forwarding = tokio::spawn(async move {
        let mut stdin = tokio::io::stdin();
        loop {
            let data = match streams::next_input(&mut stdin).await {
                Ok(data) => data,
                Err(error) => return streams::note(&format!("cannot read stdin: {error}")),
            };
            let (eof, length) = (data.is_none(), data.as_ref().map_or(0, Vec::len) as u64);
            let request = v1::WriteRequest {
                terminal_id: terminal_id.clone(),
                session_id: String::new(),
                data: data.unwrap_or_default().into(),
                eof,
            };
            match terminals.write(request).await {
                // The command has closed its stdin, or has ended: what it did not want is not an error.
                Ok(answer) if eof || answer.get_ref().written < length => return,
                Ok(_) => {}
                Err(status) if is_end_of_reader(status.code()) => return,
                Err(status) => return Failure::from(status).print(),
            }
        }
    });
    forwarding.abort_handle()
}

fn is_end_of_reader(code: tonic::Code) -> bool {
    matches!(code, tonic::Code::NotFound | tonic::Code::FailedPrecondition | tonic::Code::Cancelled)
}

/// The status that stands for an outcome, as the man page of timeout(1) and shells have it.
pub(super) fn exit_status(outcome: &v1::Outcome) -> u8 {
    use v1::outcome::End;
    match (outcome.cause(), &outcome.end) {
        (v1::Cause::TimeLimit | v1::Cause::IdleLimit, _) => failure::TIME_LIMIT,
        (v1::Cause::SandboxLost, _) | (_, None) => failure::OWN,
        (_, Some(End::ExitCode(code))) => u8::try_from(*code).unwrap_or(failure::OWN),
        (_, Some(End::Signal(name))) => signal_number(name).map_or(failure::OWN, |number| 128 + number),
    }
}

/// The number of "SIGKILL" or "SIGRTMIN+3".
fn signal_number(name: &str) -> Option<u8> {
    /// SIGRTMIN as the kernel and both C libraries' users count: signal(7).
    const SIGRTMIN: u8 = 34;
    let number = match name.strip_prefix("SIGRTMIN") {
        Some("") => SIGRTMIN,
        Some(more) => SIGRTMIN.checked_add(more.strip_prefix('+')?.parse().ok()?)?,
        None => name.parse::<nix::sys::signal::Signal>().ok()? as u8,
    };
    (number <= 64).then_some(number)
}

fn signalled(signal: SignalKind) -> u8 {
    u8::try_from(signal.as_raw_value()).map_or(failure::OWN, |number| 128 + number)
}

fn workspace(given: Option<&std::path::Path>) -> Result<String, Failure> {
    let (folder, named) = match given {
        Some(folder) => (folder.canonicalize(), folder.display().to_string()),
        None => (std::env::current_dir(), "the current folder".to_owned()),
    };
    let folder =
        folder.map_err(|error| Failure::own(format!("cannot use {named} as the workspace"), error))?;
    text(folder.into_os_string(), "the workspace's path")
}

fn request(arguments: RunArguments) -> Result<v1::CreateTerminalRequest, Failure> {
    let mut words = arguments.command.into_iter();
    let command = text(words.next().unwrap_or_default(), "the command")?;
    let args = words.map(|word| text(word, "an argument")).collect::<Result<_, _>>()?;
    let time_limit = arguments.timeout.map(prost_types::Duration::try_from).transpose();
    Ok(v1::CreateTerminalRequest {
        command,
        args,
        env: arguments.env.into_iter().map(|(name, value)| v1::EnvVar { name, value }).collect(),
        profile: arguments.profile.unwrap_or_default(),
        network: match arguments.network {
            None => v1::Network::Unspecified,
            Some(NetworkChoice::None) => v1::Network::None,
            Some(NetworkChoice::Host) => v1::Network::Host,
        }
        .into(),
        output_mode: v1::OutputMode::Split.into(),
        stdin_mode: if arguments.stdin { v1::StdinMode::Open } else { v1::StdinMode::Closed }.into(),
        overflow: v1::Overflow::Block.into(),
        time_limit: time_limit.map_err(|error| Failure::own("--timeout is too long", error))?,
        ..Default::default()
    })
}

/// The API carries text: an argument that is no UTF-8 is refused here, with its name.
fn text(word: OsString, what: &str) -> Result<String, Failure> {
    word.into_string()
        .map_err(|word| Failure::plain(format!("{what} is no UTF-8: {}", PathBuf::from(word).display())))
}

/// What is printed besides the command's own output.
struct Report {
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
    fn print_end(&self, ended: &Ended) {
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
        } else if let Some(outcome) = outcome
            && let Some(line) = receipt::unusual_end(outcome)
        {
            streams::note(&line);
        }
    }

    fn print_failure(&self, failure: &Failure) {
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
        Ok(line) => streams::print_to_stderr(&line),
        Err(error) => streams::note(&io::Error::from(error).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use v1::outcome::End;

    use super::*;

    fn outcome(cause: v1::Cause, end: Option<End>) -> v1::Outcome {
        v1::Outcome { cause: cause.into(), end, ..Default::default() }
    }

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        for code in [0_u8, 1, 42, 124, 255] {
            let ended = outcome(v1::Cause::Exited, Some(End::ExitCode(code.into())));
            assert_eq!(exit_status(&ended), code);
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        for (name, status) in [("SIGKILL", 137), ("SIGTERM", 143), ("SIGRTMIN", 162), ("SIGRTMIN+3", 165)] {
            let ended = outcome(v1::Cause::Signalled, Some(End::Signal(name.to_owned())));
            assert_eq!(exit_status(&ended), status, "{name}");
        }
    }

    #[test]
    fn a_limit_of_time_is_124_whatever_the_command_made_of_it() {
        for end in [End::ExitCode(0), End::Signal("SIGTERM".to_owned())] {
            assert_eq!(exit_status(&outcome(v1::Cause::TimeLimit, Some(end.clone()))), 124);
            assert_eq!(exit_status(&outcome(v1::Cause::IdleLimit, Some(end))), 124);
        }
    }

    #[test]
    fn an_end_that_nobody_saw_is_never_0() {
        assert_eq!(exit_status(&outcome(v1::Cause::SandboxLost, None)), 125);
        assert_eq!(exit_status(&outcome(v1::Cause::Unspecified, None)), 125);
    }

    #[test]
    fn a_name_that_is_no_signal_has_no_number() {
        for name in ["", "KILL", "SIGRTMIN-1", "SIGRTMIN+99", "SIGNOPE"] {
            assert_eq!(signal_number(name), None, "{name:?}");
        }
    }
}
