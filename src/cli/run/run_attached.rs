//! `provost run -t`: a command in a pseudo-terminal, to which this process stays attached until it ends.
//!
//! A gateway that is restarted meanwhile is followed: the session lives as long as this process.

use std::time::Duration;

use ulid::Ulid;

use super::{
    report::RunEnd,
    run_control::{Ending, pass_on, stop, unless_interrupted},
};
use crate::{
    cli::{
        console::{
            error::{self, CliError},
            exit_status,
            person_terminal::{DetachKeys, LeaveWhenDropped},
            receipt,
            signals::{TerminationSignals, is_passed_on},
            stdio::{self, Input},
        },
        gateway_link::{
            attached::{self, AttachEnd, AttachOptions, StartAt, WindowMode},
            connection::Terminals,
            reconnect::{Restarts, over_restarts},
        },
    },
    proto::v1,
};

/// The request, for a pseudo-terminal with this window.
pub(in crate::cli) fn in_pty(
    request: v1::CreateTerminalRequest,
    window: v1::Pty,
) -> v1::CreateTerminalRequest {
    // A variable that was named is meant.
    let has_term = request.env.iter().any(|variable| variable.name == "TERM");
    let term = if has_term { String::new() } else { window.term };
    v1::CreateTerminalRequest {
        output_mode: v1::OutputMode::Merged.into(),
        overflow: v1::Overflow::DropOldest.into(),
        pty: Some(v1::Pty { term, ..window }),
        ..request
    }
}

/// Starts the command and stays attached until it has ended.
pub(in crate::cli) async fn drive(
    mut terminals: Terminals,
    create: v1::CreateTerminalRequest,
    (mut input, restarts): (Input, Restarts),
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    // With an id, so that it can be sent again. It ends with this process, also in a session that goes on.
    let create = v1::CreateTerminalRequest {
        request_id: Ulid::generate().to_string(),
        stop_when_left: true,
        ..create
    };
    let creating = over_restarts(restarts, || {
        let (mut terminals, create) = (terminals.clone(), create.clone());
        async move { terminals.create_terminal(create).await }
    });
    let created = match unless_interrupted(signals, creating).await {
        Ok(created) => created?.into_inner().terminal.unwrap_or_default(),
        // What was created nevertheless ends with its session.
        Err(signal) => return Ok(RunEnd::interrupted_by(signal)),
    };
    let shortfalls = created.receipt.as_ref().map(|receipt| &receipt.shortfalls[..]).unwrap_or_default();
    if let Some(line) = receipt::shortfall_notice(shortfalls) {
        stdio::print_notice(&line);
    }
    let _left = LeaveWhenDropped;
    let (mut ending, mut from, mut is_reader_gone) = (Ending::NotAsked, StartAt::Offset(0), false);
    let outcome = loop {
        let options = AttachOptions {
            terminal_id: created.id.clone(),
            from,
            input,
            detach: DetachKeys::none(),
            restarts,
            window: WindowMode::Followed,
            is_pty: true,
        };
        let (end, next) = attached::attach(terminals.clone(), options, signals).await?;
        from = next;
        let signal = match end {
            AttachEnd::Ended(outcome) => break outcome,
            AttachEnd::Signal(signal) => signal,
            AttachEnd::ReaderGone if !is_reader_gone => {
                is_reader_gone = true;
                stop(terminals.clone(), created.id.clone(), None);
                break wait(&mut terminals, &created.id).await?;
            }
            AttachEnd::Detached | AttachEnd::ReaderGone => break None,
        };
        if is_passed_on(signal) {
            pass_on(terminals.clone(), created.id.clone(), signal);
            continue;
        }
        ending = ending.after(signal);
        match ending {
            Ending::NotAsked => {}
            Ending::Interrupted => pass_on(terminals.clone(), created.id.clone(), signal),
            // The person's terminal has gone, and with it all that the command's shows.
            Ending::HungUp | Ending::Stopped => {
                input = Input::Empty;
                stop(terminals.clone(), created.id.clone(), None);
            }
            Ending::Killed => stop(terminals.clone(), created.id.clone(), Some(Duration::ZERO)),
            Ending::Left => return Ok(RunEnd::interrupted_by(signal)),
        }
    };
    let exit_status = match is_reader_gone {
        true => exit_status::BROKEN_PIPE,
        false => outcome.as_deref().map_or(error::PROVOST_FAILED, exit_status::from_outcome),
    };
    let request = v1::GetTerminalRequest { terminal_id: created.id, session_id: String::new() };
    let terminal = terminals.get_terminal(request).await?.into_inner().terminal;
    Ok(RunEnd { exit_status, terminal })
}

async fn wait(terminals: &mut Terminals, terminal_id: &str) -> Result<Option<Box<v1::Outcome>>, CliError> {
    let request = v1::WaitForExitRequest { terminal_id: terminal_id.to_owned(), session_id: String::new() };
    Ok(terminals.wait_for_exit(request).await?.into_inner().outcome.map(Box::new))
}
