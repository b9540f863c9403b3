//! `provost run`: runs one command through a gateway, prints its output as it comes, and exits with its status.
//!
//! If the output cannot be written, the command is stopped. The session is always closed at the end, so that no process
//! is left.

use std::{path::PathBuf, time::Duration};

use tokio::{signal::unix::SignalKind, time::Instant};
use ulid::Ulid;

use super::{
    denial_remedy, missing_program,
    report::{RunEnd, RunReport},
    run_attached,
    run_control::{pass_on, stop, unless_interrupted},
    run_detached,
    run_ending::Ending,
    run_input::forward_input,
    run_output::{RETAINED_BYTES, RunEvents},
};
use crate::{
    cli::{
        console::{
            command_input::CommandInput,
            error::CliError,
            receipt,
            signals::{TerminationSignals, is_passed_on},
            stdio::{self, Input},
        },
        gateway_link::{
            approval_prompt::{self, AnswerWait, ApprovalMode, OnAskChoice},
            attached,
            background::running_or_started,
            connection::{GatewayConnection, Terminals},
            reconnect::{Restarts, over_restarts, until_answered},
        },
        request::{
            arguments::RunArguments,
            run_request::{named_paths, request, text, workspace_roots},
        },
    },
    client::{self, FrontEnd},
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
        let started = run_detached::start(
            gateway.named(),
            workspace,
            run_detached::without_reader(request),
            &mut signals,
        );
        return started
            .await
            .map_err(|failure| approval_prompt::advise(failure, AnswerWait::ByOption))
            .map_err(|failure| denial_remedy::advise(missing_program::advise(failure, &program)));
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
    let result = result
        .map_err(|failure| approval_prompt::advise(failure, waiting))
        .map_err(|failure| denial_remedy::advise(missing_program::advise(failure, &program)));
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
