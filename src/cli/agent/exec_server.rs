//! `provost exec-server`: serves the Codex CLI, which runs its processes and file operations by it.
//!
//! Connects to a gateway or starts an embedded one; the `exec_server` module does the rest. Nothing is printed to stdout, which
//! carries the protocol.

use std::path::PathBuf;

use clap::Args;

use crate::{
    cli::{
        console::{error::CliError, log_writer::log_to, signals::TerminationSignals},
        request::{arguments::EmbeddableGatewayArguments, run_request::named_roots},
    },
    exec_server::{self, ExecServerOptions},
};

/// `provost exec-server`.
#[derive(Debug, Args)]
#[command(
    about = "Run the commands and file operations of the Codex CLI, by its exec-server protocol",
    long_about = "Serves the Codex CLI on stdio, as an environment of its environments.toml; Codex starts this command. \
                  Its commands and file operations go to a gateway, which checks, confines and runs them. Connects to a \
                  gateway if one answers; otherwise starts one inside itself. Ends, with every command, when Codex ends. \
                  With include_local = false Codex has no other place to run commands: without a gateway nothing runs.",
    after_help = "Example, as ~/.codex/environments.toml:\n  \
                  include_local = false\n  \
                  default = \"provost\"\n  \
                  [[environments]]\n  \
                  id = \"provost\"\n  \
                  program = \"provost\"\n  \
                  args = [\"exec-server\", \"--root\", \"/home/me/project\"]"
)]
pub(in crate::cli) struct ExecServerArguments {
    #[command(flatten)]
    gateway: EmbeddableGatewayArguments,
    /// Confine the commands by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Let commands write to this directory; may be given several times; default: the current directory
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Pass on this variable, too, if the client sets it; may be given several times; default: LANG, LANGUAGE, LC_*, TZ, TERM,
    /// COLORTERM, NO_COLOR, CI and CODEX_CI
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Append log messages to this file; default: nothing is logged
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Serves the client until it goes away.
pub(in crate::cli) async fn run(arguments: ExecServerArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    if let Some(file) = &arguments.log {
        log_to(file)?;
    }
    let roots = named_roots(&arguments.root)?;
    let connection = arguments.gateway.connect().await?;
    let options = ExecServerOptions { roots, profile: arguments.profile, env_names: arguments.env };
    let stopped = async move {
        signals.next().await;
    };
    let served = exec_server::run(connection.client(), options, stopped).await;
    connection.close().await;
    served.map(|()| 0).map_err(|error| CliError::caused_by("cannot read from the client", error))
}
