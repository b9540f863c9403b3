//! `provost exec-server`: serves the Codex CLI, which runs its processes and file operations by it.
//!
//! Connects to a gateway or starts an embedded one; the `exec_server` module does the rest. Nothing is printed to stdout, which
//! carries the protocol; with --listen the URL is.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::token_file::token_in;
use crate::{
    cli::{
        console::{error::CliError, log_writer::log_to, signals::TerminationSignals, stdio},
        gateway_link::connection::GatewayConnection,
        request::{
            arguments::{EmbeddableGatewayArguments, parse_duration},
            run_request::{real_paths, text_roots},
        },
    },
    exec_server::{self, ExecServerOptions, WebSocketEndpoint},
    local_http::Token,
};

/// `provost exec-server`.
#[derive(Debug, Args)]
#[command(
    about = "Run the commands and file operations of the Codex CLI, by its exec-server protocol",
    long_about = "Serves the Codex CLI on stdio, as an environment of its environments.toml; Codex starts this command. \
                  Its commands and file operations go to a gateway, which checks, confines and runs them. Connects to a \
                  gateway if one answers; otherwise starts one inside itself. Ends, with every command, when Codex ends. \
                  With --listen it serves clients of this user by websockets on a loopback address instead, until a \
                  signal ends it; each has a session of its own, which stays for a while when its connection breaks. \
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
    /// Listen for websockets on this loopback address instead of stdio, and print the URL; port 0: any that is free; clients must
    /// run under this user and bring the token, as the path of the URL (ws://127.0.0.1:PORT/TOKEN) or by Authorization: Bearer TOKEN
    #[arg(long, value_name = "ws://IP:PORT", value_parser = parse_listen, requires = "token_file")]
    listen: Option<SocketAddr>,
    /// With --listen: the file of the token, made with the mode 0600 if it is not there
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// With --listen: how long a session, with its commands, waits for its client to come back after their connection broke
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s", requires = "listen")]
    resume_timeout: Duration,
    /// Append log messages to this file; default: nothing is logged
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Serves the client until it goes away, or clients by websockets until a signal.
pub(in crate::cli) async fn run(arguments: ExecServerArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    if let Some(file) = &arguments.log {
        log_to(file)?;
    }
    let roots = text_roots(&arguments.root)?;
    let listen = match (arguments.listen, &arguments.token_file) {
        (Some(address), Some(file)) => Some((address, token_in(file, &real_paths(&roots)?)?)),
        (_, _) => None,
    };
    let connection = arguments.gateway.connect().await?;
    let options = ExecServerOptions { roots, profile: arguments.profile, env_names: arguments.env };
    let stopped = async move {
        signals.next().await;
    };
    let served = match listen {
        Some((address, token)) => {
            let kept = arguments.resume_timeout;
            listen_on(&connection, options, address, token, kept, stopped).await
        }
        None => exec_server::run(connection.client(), options, stopped)
            .await
            .map_err(|error| CliError::caused_by("cannot read from the client", error)),
    };
    connection.close().await;
    served.map(|()| 0)
}

async fn listen_on(
    connection: &GatewayConnection,
    options: ExecServerOptions,
    address: SocketAddr,
    token: Token,
    kept: Duration,
    stopped: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let endpoint = WebSocketEndpoint::bind(address)
        .await
        .map_err(|error| CliError::caused_by("cannot listen", error).with_advice("see --listen"))?;
    // Who started it reads the URL; where nobody does, it is served all the same.
    let _ = stdio::print(&format!("{}\n", endpoint.url()));
    endpoint.serve(connection.client(), options, token, kept, stopped).await;
    Ok(())
}

/// The address of `ws://IP:PORT`.
fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.strip_prefix("ws://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let address = address.and_then(|address| address.parse().ok());
    address.ok_or("it is ws://IP:PORT, with an address of the loopback")
}
