//! `provost exec`: runs one command in a session that is there, and exits with its status.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    denial_remedy,
    report::RunReport,
    run::{drive, no_input},
    run_attached,
};
use crate::{
    cli::{
        console::{
            command_input::CommandInput,
            error::CliError,
            signals::TerminationSignals,
            stdio::{self, Input},
        },
        gateway_link::{
            approval_prompt::{self, AnswerWait},
            attached,
            connection::{GatewayConnection, id_of},
        },
        request::{
            arguments::{EnvArgument, GatewayArguments, real_workdir},
            run_request::text,
        },
    },
    client,
    proto::v1,
};

/// `provost exec`.
#[derive(Debug, Args)]
#[command(
    about = "Run one command in a session that is open and exit with its status",
    long_about = "Runs one command in a session that a running gateway has open, next to the commands that run there, \
                  and exits with its status. The command is judged and confined as every other one of the session. It \
                  ends with this process; the session stays.",
    after_help = "Exit status:\n  as of `provost run`\n\n\
                  Example:\n  provost exec -it sess_01JD3ZK6T0000000000000000 -- sh"
)]
pub(in crate::cli) struct ExecArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Pass stdin on to the command even if it is a terminal; default: what is no terminal is passed on
    #[arg(short = 'i', long, visible_alias = "interactive")]
    stdin: bool,
    /// Run the command in a pseudo-terminal; stdin must be a terminal; with -i every key goes to the command
    #[arg(short = 't', long)]
    tty: bool,
    /// Set a variable in the command's environment, or pass on the one of this name if it is set here; may be given
    /// several times
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = EnvArgument::parser())]
    env: Vec<EnvArgument>,
    /// Start the command in this directory; a relative path counts from the session's; default: the session's
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// The session's id or name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND [ARG]...")]
    command: Vec<OsString>,
}

/// Runs the command and returns its exit status.
pub(in crate::cli) async fn exec(arguments: ExecArguments) -> Result<u8, CliError> {
    let mut signals = TerminationSignals::install_for_command()
        .map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let input = if arguments.stdin { Input::Forwarded } else { Input::of_stdin() };
    let request = request(arguments.session, arguments.command, arguments.env, input)?;
    let request = match arguments.tty {
        true => run_attached::in_pty(request, attached::own_window().ok_or_else(attached::no_terminal)?),
        false => request,
    };
    let input = match request.pty {
        Some(_) => CommandInput::keys(input),
        None => CommandInput::open(input).map_err(no_input)?,
    };
    let connection =
        GatewayConnection::find_giving(arguments.gateway.gateway.as_deref(), input.given()).await?;
    let session_id = id_of(&mut connection.client(), request.session_id.clone()).await?;
    let request = v1::CreateTerminalRequest { session_id, ..request };
    let request = match arguments.workdir {
        Some(workdir) => {
            let cwd = working_directory(&connection, &request.session_id, &workdir).await?;
            v1::CreateTerminalRequest { cwd, ..request }
        }
        None => request,
    };
    let request = client::terminal_in_bytes(request);
    let is_pty = request.pty.is_some();
    let ended = drive(&connection, request, &input, &mut signals)
        .await
        .map_err(|failure| approval_prompt::advise(failure, AnswerWait::Never))
        .map_err(denial_remedy::advise_on_workdir)?;
    if let (true, Some(terminal)) = (is_pty, &ended.terminal) {
        let request = v1::ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        if let Err(status) = connection.client().terminals.release_terminal(request).await {
            stdio::print_notice(&format!("removing the terminal: {}", CliError::from(status)));
        }
    }
    RunReport::of_command().print_end(&ended);
    Ok(ended.exit_status)
}

/// The path of a directory that counts from the session's.
async fn working_directory(
    connection: &GatewayConnection,
    session_id: &str,
    workdir: &Path,
) -> Result<String, CliError> {
    let from = if workdir.is_absolute() {
        PathBuf::new()
    } else {
        let request = v1::GetSessionRequest { session_id: session_id.to_owned() };
        let session = connection.client().sessions.get_session(request).await?.into_inner().session;
        session.unwrap_or_default().cwd.into()
    };
    Ok(text(real_workdir(&from, workdir)?))
}

fn request(
    session_id: String,
    command: Vec<OsString>,
    variables: Vec<EnvArgument>,
    input: Input,
) -> Result<v1::CreateTerminalRequest, CliError> {
    let mut words = command.iter().map(text);
    let program = words.next().unwrap_or_default();
    let mut env = Vec::new();
    for variable in variables {
        env.extend(variable.resolve().map(|(name, value)| v1::EnvVar { name, value, ..Default::default() }));
    }
    Ok(v1::CreateTerminalRequest {
        session_id,
        command: Some(v1::create_terminal_request::Command::Program(program)),
        args: words.collect(),
        env,
        output_mode: stdio::output_mode().into(),
        overflow: v1::Overflow::Block.into(),
        stdin_mode: match input {
            Input::Forwarded => v1::StdinMode::Open,
            Input::Empty => v1::StdinMode::Closed,
        }
        .into(),
        on_ask: v1::OnAsk::Refuse.into(),
        ..client::new_terminal()
    })
}
