//! `provost run`: runs one command through a gateway, prints its output as it comes, and exits with its status; with `-d`, prints the
//! terminal's id, and leaves the command running.
//!
//! If the output cannot be written, the command is stopped. The session is always closed at the end, so that no process is left.
//!
//! Input and output outlast a restart of the gateway. Each write of input says where it stands in the input, so that one whose response was
//! not sent is repeated and nothing arrives twice. Output goes on at the byte that it has come to: none is missed, none comes twice.

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{signal::unix::SignalKind, task::AbortHandle, time::Instant};
use tonic::{Status, Streaming};
use ulid::Ulid;

use super::{
    denial_remedy,
    report::{RunEnd, RunReport},
    run_attached,
    run_control::{Ending, is_end_of_reader, pass_on, stop, unless_interrupted},
};
use crate::{
    cli::{
        console::{
            command_input::CommandInput,
            error::{self, CliError},
            exit_status,
            person_terminal::{LeaveWhenDropped, OutputStream},
            receipt,
            signals::{TerminationSignals, is_passed_on},
            stdio::{self, Input, WriteOutcome},
        },
        gateway_link::{
            approval_prompt::{self, AnswerWait, ApprovalMode, OnAskChoice},
            attached,
            connection::{GatewayConnection, Terminals, running_or_started},
            reconnect::{Outage, Restarts, over_restarts, until_answered},
        },
        request::{
            arguments::RunArguments,
            run_request::{named_paths, request, text, workspace_roots},
        },
    },
    client::{self, FrontEnd, RunStream},
    proto::v1::{self, run_response::Event},
};

/// How long, after the second interrupt, output may still come before this process leaves without it.
const FORCED_EXIT_AFTER: Duration = Duration::from_secs(2);

/// How long a command that was sent SIGHUP has to end by itself.
const HANGUP_GRACE: Duration = Duration::from_secs(2);

/// Runs the command and returns its exit status.
pub(in crate::cli) async fn run(arguments: RunArguments) -> Result<u8, CliError> {
    let report = RunReport::open(arguments.receipt, arguments.report.as_deref())?;
    Ok(match run_confined(arguments).await {
        Ok(ended) => report.print_end(&ended),
        Err(error) => {
            report.print_failure(&error);
            error.exit_status
        }
    })
}

/// As [`run`], without a word of what came of it.
pub(in crate::cli) async fn run_confined(arguments: RunArguments) -> Result<RunEnd, CliError> {
    // First of all: from here on an interrupt leaves nothing behind.
    let mut signals = TerminationSignals::install_for_command()
        .map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let roots = workspace_roots(arguments.workspace.roots())?;
    let read_only_roots = named_paths(&arguments.ro)?;
    let working_directory = arguments.workspace.working_directory(&roots[0])?;
    let input = match (arguments.stdin, arguments.no_stdin || arguments.detach) {
        (true, _) => Input::Forwarded,
        (_, true) => Input::Empty,
        (false, false) => Input::of_stdin(),
    };
    let window = match (arguments.tty, attached::own_window()) {
        (false, _) => None,
        (true, None) if arguments.detach => Some(attached::usual_window()),
        (true, window) => Some(window.ok_or_else(attached::no_terminal)?),
    };
    let detach = arguments.detach;
    let program =
        arguments.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let gateway = arguments.gateway.clone();
    let on_ask = arguments.on_ask.or(detach.then_some(OnAskChoice::Refuse));
    let approval_mode = ApprovalMode::new(on_ask, input);
    let texts = |paths: Vec<PathBuf>| paths.iter().map(text).collect();
    let workspace = client::session_in_bytes(v1::CreateSessionRequest {
        roots: texts(roots),
        read_only_roots: texts(read_only_roots),
        extent: arguments.workspace.extent().into(),
        lifetime: match arguments.session {
            Some(_) => v1::Lifetime::Explicit,
            None => v1::Lifetime::OwnerProcess,
        }
        .into(),
        name: arguments.session.clone().unwrap_or_default(),
        ssh_agent: client::ssh_agent_socket(),
        ..Default::default()
    });
    let request = v1::CreateTerminalRequest {
        on_ask: approval_mode.on_ask().into(),
        cwd: text(working_directory),
        stdin_mode: match input {
            Input::Forwarded => v1::StdinMode::Open,
            Input::Empty => v1::StdinMode::Closed,
        }
        .into(),
        // What is left running is read by others, each stream for itself.
        output_mode: if detach { v1::OutputMode::Split } else { stdio::output_mode() }.into(),
        ..request(arguments)?
    };
    let request = match window {
        Some(window) => run_attached::in_pty(request, window),
        None => request,
    };
    let request = client::terminal_in_bytes(request);
    if detach {
        let started = start_detached(gateway.named(), workspace, without_reader(request), &mut signals);
        return started
            .await
            .map_err(|failure| approval_prompt::advise(failure, AnswerWait::ByOption))
            .map_err(|failure| {
                denial_remedy::advise(denial_remedy::advise_on_missing_program(failure, &program))
            });
    }
    let input = match request.pty {
        Some(_) => CommandInput::keys(input),
        None => CommandInput::open(input).map_err(no_input)?,
    };
    // An embedded gateway is up in milliseconds and must be taken down in order: only the search is given up.
    let found = match gateway.is_embedded() {
        true => None,
        false => {
            let search = async {
                match workspace.name.is_empty() {
                    true => GatewayConnection::running(gateway.named(), input.given()).await,
                    // A session that outlives this process needs a gateway that does.
                    false => running_or_started(gateway.named(), input.given()).await.map(Some),
                }
            };
            match unless_interrupted(&mut signals, search).await {
                Ok(found) => found?,
                Err(signal) => return Ok(RunEnd::interrupted_by(signal)),
            }
        }
    };
    let connection = match found {
        Some(connection) => connection,
        None => gateway.embed(input.given()).await?,
    };
    let waiting = if connection.is_embedded() { AnswerWait::OnTerminal } else { AnswerWait::ByOption };
    let result = in_session(&connection, workspace, request, (&input, approval_mode), &mut signals).await;
    let result = result.map_err(|failure| approval_prompt::advise(failure, waiting)).map_err(|failure| {
        denial_remedy::advise(denial_remedy::advise_on_missing_program(failure, &program))
    });
    connection.close().await;
    result
}

/// The command cannot be given what it is to read.
pub(in crate::cli) fn no_input(error: std::io::Error) -> CliError {
    CliError::caused_by("cannot pass stdin on to the command", error)
}

/// Opens a session for the workspace, runs the command in it, and closes it.
async fn in_session(
    connection: &GatewayConnection,
    workspace: v1::CreateSessionRequest,
    mut create: v1::CreateTerminalRequest,
    (input, person): (&CommandInput, ApprovalMode),
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let mut sessions = connection.client().sessions;
    let opening = sessions.create_session(FrontEnd::Cli.sign(v1::CreateSessionRequest {
        profile: create.profile.clone(),
        network: create.network,
        labels: create.labels.clone(),
        ..workspace
    }));
    let session = match unless_interrupted(signals, opening).await {
        Ok(session) => session?.into_inner().session.unwrap_or_default(),
        Err(signal) => return Ok(RunEnd::interrupted_by(signal)),
    };
    create.session_id.clone_from(&session.id);
    if let Some(line) = session.repository.as_ref().and_then(receipt::repository_notice) {
        stdio::print_notice(&line);
    }
    if let Some(line) = receipt::git_notice(&session) {
        stdio::print_notice(&line);
    }
    // A session that is closed takes its terminals with it, and needs no call for each of them.
    let release =
        if session.name.is_empty() { TerminalRelease::WithSession } else { TerminalRelease::ByCall };
    let result = tokio::select! {
        driven = drive_with(connection, create, (input, ShortfallNotice::Printed), release, signals) => driven,
        never = approval_prompt::prompt(connection.client().approvals, session.id.clone()), if person == ApprovalMode::Prompt => match never {},
    };
    if !session.name.is_empty() {
        return result;
    }
    let request = v1::CloseSessionRequest { session_id: session.id };
    let closing = until_answered(|| {
        let (mut sessions, request) = (sessions.clone(), request.clone());
        async move { sessions.close_session(request).await }
    });
    // It ends with this process too.
    let Ok(closed) = unless_interrupted(signals, closing).await else { return result };
    let ended = result?;
    // The command is done and its status known: that its session could not be closed is worth a line, no more.
    if let Err(status) = closed {
        stdio::print_notice(&format!("closing the session: {}", CliError::from(status)));
    }
    Ok(ended)
}

/// Whether a line says what the sandbox lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum ShortfallNotice {
    /// On stderr, if it lacks something.
    Printed,
    /// It was said before.
    Omitted,
}

/// How the terminal of a command that has ended is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum TerminalRelease {
    /// By a call of its own.
    ByCall,
    /// With its session, which is closed next.
    WithSession,
}

/// Starts the command and stays with it until it has ended.
pub(in crate::cli) async fn drive(
    connection: &GatewayConnection,
    create: v1::CreateTerminalRequest,
    input: &CommandInput,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    drive_with(connection, create, (input, ShortfallNotice::Printed), TerminalRelease::ByCall, signals).await
}

/// As [`drive`], with or without the notice of what the sandbox lacks, and with or without a call that releases the terminal.
pub(in crate::cli) async fn drive_with(
    connection: &GatewayConnection,
    mut create: v1::CreateTerminalRequest,
    (input, notice): (&CommandInput, ShortfallNotice),
    release: TerminalRelease,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let mut terminals = connection.client().terminals;
    let restarts = if connection.is_embedded() { Restarts::Never } else { Restarts::Followed };
    if create.pty.is_some() {
        return run_attached::drive(terminals, create, (input.kind(), restarts), signals).await;
    }
    create.stdin_given = input.given().is_some();
    let request = match restarts {
        Restarts::Followed => v1::RunRequest {
            create: Some(v1::CreateTerminalRequest {
                output_byte_limit: Some(RETAINED_BYTES),
                // So that it can be sent again.
                request_id: Ulid::generate().to_string(),
                ..create
            }),
            resumable: true,
        },
        Restarts::Never => v1::RunRequest { create: Some(create), resumable: false },
    };
    let starting = over_restarts(restarts, || {
        let (mut starter, request) = (terminals.clone(), request.clone());
        async move {
            let mut events = starter.run(request).await?.into_inner();
            let first = events.message().await?;
            Ok((first, events))
        }
    });
    let (first, events) = match unless_interrupted(signals, starting).await {
        Ok(started) => started?,
        // To drop the call is enough: a caller of Run that goes away stops the command.
        Err(signal) => return Ok(RunEnd::interrupted_by(signal)),
    };
    let Some(Event::Started(started)) = first.and_then(|first| first.event) else {
        return Err(CliError::message_only(
            "the gateway ended the call before the command had started".to_owned(),
        ));
    };
    if let Some(line) =
        started.receipt.as_ref().and_then(|receipt| receipt::shortfall_notice(&receipt.shortfalls))
        && notice == ShortfallNotice::Printed
    {
        stdio::print_notice(&line);
    }
    input.start().map_err(no_input)?;
    let feeding = match input.given() {
        // A gateway of an earlier build takes no descriptor.
        Some(given) if !started.stdin_given => {
            Some(forward_input(given, terminals.clone(), started.id.clone(), restarts))
        }
        Some(_) | None => None,
    };
    let events = RunEvents::new(terminals.clone(), started.id.clone(), events, restarts);
    let result = forward_until_end(&terminals, &started.id, events, signals).await;
    if let Some(feeding) = feeding {
        feeding.abort();
    }
    let has_ended = result.as_ref().is_ok_and(|ended| ended.terminal.is_some());
    if has_ended && release == TerminalRelease::ByCall && restarts == Restarts::Followed {
        let request = v1::ReleaseTerminalRequest { terminal_id: started.id, ..Default::default() };
        // What is not released here goes with its session, or after its time.
        let _ = terminals.release_terminal(request).await;
    }
    result
}

/// Passes output on until the command has ended, and stops it when asked to.
async fn forward_until_end(
    terminals: &Terminals,
    terminal_id: &str,
    events: RunEvents,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let passing = events.forward();
    tokio::pin!(passing);
    let mut ending = Ending::NotAsked;
    let (mut stop_at, mut exit_at) = (None, None);
    loop {
        tokio::select! {
            ended = &mut passing => return ended,
            signal = signals.next() => {
                if is_passed_on(signal) {
                    pass_on(terminals.clone(), terminal_id.to_owned(), signal);
                    continue;
                }
                ending = ending.after(signal);
                stop_at = None;
                match ending {
                    Ending::NotAsked => {}
                    Ending::Interrupted => pass_on(terminals.clone(), terminal_id.to_owned(), signal),
                    Ending::HungUp => {
                        pass_on(terminals.clone(), terminal_id.to_owned(), signal);
                        stop_at = Some((Instant::now() + HANGUP_GRACE, signal));
                    }
                    Ending::Stopped => stop(terminals.clone(), terminal_id.to_owned(), None),
                    Ending::Killed => {
                        stop(terminals.clone(), terminal_id.to_owned(), Some(Duration::ZERO));
                        exit_at = Some((Instant::now() + FORCED_EXIT_AFTER, signal));
                    }
                    Ending::Left => return Ok(RunEnd::interrupted_by(signal)),
                }
            }
            _ = at_time(stop_at) => {
                stop_at = None;
                ending = Ending::Stopped;
                stop(terminals.clone(), terminal_id.to_owned(), None);
            }
            signal = at_time(exit_at) => {
                return Ok(RunEnd::interrupted_by(signal));
            }
        }
    }
}

/// Never, until there is a time.
async fn at_time(at: Option<(Instant, SignalKind)>) -> SignalKind {
    match at {
        Some((at, signal)) => {
            tokio::time::sleep_until(at).await;
            signal
        }
        None => std::future::pending().await,
    }
}

/// Starts the command, and returns when it runs.
pub(in crate::cli) async fn start_detached(
    gateway: Option<&str>,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let starting = async {
        let connection = running_or_started(gateway, None).await?;
        start_at(&connection, workspace, create).await
    };
    match unless_interrupted(signals, starting).await {
        Ok(started) => {
            let terminal = started?;
            let shortfalls =
                terminal.receipt.as_ref().map(|receipt| &receipt.shortfalls[..]).unwrap_or_default();
            if let Some(line) = receipt::shortfall_notice(shortfalls) {
                stdio::print_notice(&line);
            }
            let printed = stdio::print(&format!("{}\n", terminal.id));
            // A reader that has gone finds it with `provost ps`.
            let _ = printed.map_err(|error| CliError::caused_by("cannot print the terminal's id", error))?;
            Ok(RunEnd { exit_status: 0, terminal: None })
        }
        // A session without a command that runs is closed after a time.
        Err(signal) => Ok(RunEnd::interrupted_by(signal)),
    }
}

/// The request, for a command whose output nobody reads as it comes. One that takes input has one output, so that a person can
/// attach to it.
pub(super) fn without_reader(request: v1::CreateTerminalRequest) -> v1::CreateTerminalRequest {
    let output_mode = match request.stdin_mode() {
        v1::StdinMode::Open => v1::OutputMode::Merged.into(),
        v1::StdinMode::Closed | v1::StdinMode::Unspecified => request.output_mode,
    };
    v1::CreateTerminalRequest { overflow: v1::Overflow::DropOldest.into(), output_mode, ..request }
}

async fn start_at(
    connection: &GatewayConnection,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
) -> Result<v1::Terminal, CliError> {
    let mut client = connection.client();
    let is_own = workspace.name.is_empty();
    let session = v1::CreateSessionRequest {
        // A session with a name is closed when nothing has run in it for a time. Until then the output can be read.
        name: if is_own { own_name() } else { workspace.name.clone() },
        lifetime: v1::Lifetime::Explicit.into(),
        profile: create.profile.clone(),
        network: create.network,
        labels: create.labels.clone(),
        ..workspace
    };
    let session = client
        .sessions
        .create_session(FrontEnd::Cli.sign(session))
        .await?
        .into_inner()
        .session
        .unwrap_or_default();
    if let Some(line) = session.repository.as_ref().and_then(receipt::repository_notice) {
        stdio::print_notice(&line);
    }
    if let Some(line) = receipt::git_notice(&session) {
        stdio::print_notice(&line);
    }
    let create = v1::CreateTerminalRequest { session_id: session.id.clone(), ..create };
    match client.terminals.create_terminal(create).await {
        Ok(created) => Ok(created.into_inner().terminal.unwrap_or_default()),
        Err(refused) => {
            if is_own {
                let request = v1::CloseSessionRequest { session_id: session.id };
                // The refusal says more than that this failed, too.
                let _ = client.sessions.close_session(request).await;
            }
            Err(refused.into())
        }
    }
}

/// A name that no other session has.
fn own_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("detached-{}-{}", since.as_nanos(), std::process::id())
}

/// How long to wait until the command has read what a lost write has given it.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Feeds the command's stdin from what it would have been given, and closes it at the end.
pub(super) fn forward_input(
    given: Arc<OwnedFd>,
    terminals: Terminals,
    terminal_id: String,
    restarts: Restarts,
) -> AbortHandle {
    let mut stdin = crate::stdio::Input::new(given);
    let forwarding = tokio::spawn(async move {
        let mut offset = 0;
        loop {
            let data = match stdio::next_input(&mut stdin).await {
                Ok(data) => data,
                Err(error) => return stdio::print_notice(&format!("cannot read stdin: {error}")),
            };
            let (eof, length) = (data.is_none(), data.as_ref().map_or(0, Vec::len) as u64);
            let request = v1::WriteInputRequest {
                terminal_id: terminal_id.clone(),
                session_id: String::new(),
                data: data.unwrap_or_default().into(),
                eof,
                offset: Some(offset),
            };
            match write(&terminals, request, restarts).await {
                // The command has closed its stdin, or has ended: what it did not want is not an error.
                Ok(written) if eof || written < length => return,
                Ok(_) => offset += length,
                Err(status) if is_end_of_reader(status.code()) => return,
                Err(status) => return CliError::from(status).print(),
            }
        }
    });
    forwarding.abort_handle()
}

async fn write(
    terminals: &Terminals,
    request: v1::WriteInputRequest,
    restarts: Restarts,
) -> Result<u64, tonic::Status> {
    let mut outage = Outage::new(restarts);
    let mut is_repeated = false;
    loop {
        match terminals.clone().write_input(request.clone()).await {
            Ok(written) => return Ok(written.into_inner().written_bytes),
            // The command has not read what the same write gave it before.
            Err(status) if is_repeated && is_pending(&status) => tokio::time::sleep(RETRY_AFTER).await,
            Err(status) => {
                outage.wait(status).await?;
                is_repeated = true;
            }
        }
    }
}

/// Whether another write is under way.
fn is_pending(status: &tonic::Status) -> bool {
    client::reason_of(status) == "INPUT_BUSY"
}

/// Bytes of output to retain of each stream. Half of them may be on the way to this process when a gateway dies.
pub(super) const RETAINED_BYTES: u64 = 4 << 20;

/// A run under way.
pub(super) struct RunEvents {
    terminals: Terminals,
    terminal_id: String,
    stream: RunStream,
    restarts: Restarts,
}

impl RunEvents {
    /// The events of a run of which the first one has come.
    pub(in crate::cli) fn new(
        terminals: Terminals,
        terminal_id: String,
        stream: Streaming<v1::RunResponse>,
        restarts: Restarts,
    ) -> Self {
        let stream = RunStream::new(terminal_id.clone(), String::new(), stream);
        Self { terminals, terminal_id, stream, restarts }
    }

    /// Writes each chunk to its own stream as it comes, until the command has ended. The command waits while this process's
    /// reader does.
    pub(in crate::cli) async fn forward(mut self) -> Result<RunEnd, CliError> {
        let mut stdout = crate::stdio::stdout();
        let mut stderr = crate::stdio::stderr();
        let (own_stdout, own_stderr) = (OutputStream::stdout(), OutputStream::stderr());
        let _left = LeaveWhenDropped;
        let mut is_reader_gone = false;
        loop {
            match self.next().await? {
                Event::Chunk(chunk) if !is_reader_gone => {
                    let written = if chunk.stream() == v1::OutputStream::Stderr {
                        stdio::write_all(&mut stderr, &own_stderr.shown(&chunk.data)).await
                    } else {
                        stdio::write_all(&mut stdout, &own_stdout.shown(&chunk.data)).await
                    };
                    match written {
                        Ok(WriteOutcome::Complete) => {}
                        Ok(WriteOutcome::ReaderGone) => {
                            is_reader_gone = true;
                            stop(self.terminals.clone(), self.terminal_id.clone(), None);
                        }
                        Err(error) => {
                            stop(self.terminals.clone(), self.terminal_id.clone(), None);
                            return Err(CliError::caused_by("cannot write the command's output", error));
                        }
                    }
                }
                Event::Finished(terminal) => {
                    let outcome = terminal.outcome.as_ref();
                    let exit_status = if is_reader_gone {
                        exit_status::BROKEN_PIPE
                    } else {
                        outcome.map_or(error::PROVOST_FAILED, exit_status::from_outcome)
                    };
                    return Ok(RunEnd { exit_status, terminal: Some(terminal) });
                }
                Event::Chunk(_) | Event::Started(_) => {}
            }
        }
    }

    /// The next event, of this gateway or of one after it.
    async fn next(&mut self) -> Result<Event, CliError> {
        let mut outage = Outage::new(self.restarts);
        loop {
            let lost = match self.stream.next().await {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => Status::unavailable("the gateway ended the call before the command had"),
                Err(status) => status,
            };
            outage.wait(lost).await?;
            if let Err(status) = self.stream.resume(&mut self.terminals).await {
                outage.wait(status).await?;
            }
        }
    }
}
