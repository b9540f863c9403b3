//! `provost attach`: connects this terminal to a running one, until its command ends or the person leaves.

use clap::Args;

use crate::{
    cli::{
        console::{
            error::{self, CliError},
            exit_status,
            person_terminal::{DetachKeys, LeaveWhenDropped},
            signals::TerminationSignals,
            stdio::{self, Input},
        },
        gateway_link::{
            attached::{self, AttachEnd, AttachOptions, StartAt, WindowMode},
            connection::GatewayConnection,
            reconnect::Restarts,
        },
        request::arguments::GatewayArguments,
        run::report::print_watched_end,
    },
    proto::v1,
};

/// How much of what was written before is shown again where there is no screen.
const SHOWN_AGAIN_BYTES: u64 = 64 << 10;

/// `provost attach`.
#[derive(Debug, Args)]
#[command(
    about = "Connect to a running terminal: its output here, your keys there",
    long_about = "Connects to a running terminal. Shows its screen, or the last of its output where it has none, and what \
                  comes, and passes stdin on: every key, if it is a pseudo-terminal and stdin is a terminal, with the size of the window. The detach \
                  keys leave it; it goes on without you. Several people can be attached to one terminal.",
    after_help = "Exit status:\n  the command's, as of `provost run`; 0 after the detach keys; 128+n if signal n ended this\n  \
                  process\n\n\
                  Example:\n  provost attach term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct AttachArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Leave with these keys, with commas between them; empty: no keys leave
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
    /// Only look: pass nothing on
    #[arg(short, long)]
    no_stdin: bool,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    terminal: String,
}

/// Attaches, and returns the status to exit with.
pub(in crate::cli) async fn attach(arguments: AttachArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut terminals = connection.client().terminals;
    let request =
        v1::GetTerminalRequest { terminal_id: arguments.terminal.clone(), session_id: String::new() };
    let terminal = terminals.get_terminal(request).await?.into_inner().terminal.unwrap_or_default();
    if terminal.output.len() > 1 {
        return Err(CliError::message_only("stdout and stderr of this terminal are two streams".to_owned())
            .with_advice("see both with `provost logs -f`"));
    }
    let is_pty = terminal.pty.is_some();
    let options = AttachOptions {
        terminal_id: terminal.id,
        from: StartAt::Screen { tail_bytes: SHOWN_AGAIN_BYTES },
        input: match (arguments.no_stdin, is_pty) {
            (true, _) => Input::Empty,
            (false, true) => Input::Forwarded,
            (false, false) => Input::of_stdin(),
        },
        detach: arguments.detach_keys,
        restarts: Restarts::Followed,
        window: if is_pty && !arguments.no_stdin { WindowMode::Followed } else { WindowMode::Ignored },
        is_pty,
    };
    let end = {
        let _left = LeaveWhenDropped;
        attached::attach(terminals, options, &mut signals).await?.0
    };
    Ok(match end {
        AttachEnd::Ended(outcome) => {
            outcome.iter().for_each(|outcome| print_watched_end(outcome));
            outcome.as_deref().map_or(error::PROVOST_FAILED, exit_status::from_outcome)
        }
        AttachEnd::Detached => {
            stdio::print_notice("detached");
            0
        }
        AttachEnd::Signal(signal) => exit_status::from_signal(signal),
        AttachEnd::ReaderGone => exit_status::BROKEN_PIPE,
    })
}
