//! `provost mcp`: serves tools to an agent that speaks the Model Context Protocol.
//!
//! Connects to a gateway or starts an embedded one; the `mcp` module does the rest. Nothing is printed to stdout, which
//! carries the protocol; with --http the URL is.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::token_file::token_in;
use crate::{
    cli::{
        console::{error::CliError, log_writer::log_to, signals::TerminationSignals, stdio},
        gateway_link::connection::GatewayConnection,
        request::{
            arguments::EmbeddableGatewayArguments,
            run_request::{named_paths, real_paths, text_roots},
        },
    },
    local_http::Token,
    mcp::{self, Approvals, ClientRoots, HttpEndpoint, McpOptions},
    proto::v1::WorkspaceExtent,
};

/// `provost mcp`.
#[derive(Debug, Args)]
#[command(
    about = "Offer an agent tools to run commands, by the Model Context Protocol",
    long_about = "Serves an agent that speaks the Model Context Protocol (MCP) on stdio; the agent starts this command. \
                  With --http it serves agents of this user on a loopback address instead. \
                  Its tools run commands, start them in the background, read their output, wait, write, stop and list. \
                  They go to a gateway, which checks, confines and runs the commands. Connects to a gateway if one \
                  answers; otherwise starts one inside itself. Ends, with every command, when the agent ends. An \
                  agent's own shell tool is not covered: switch it off where the agent allows that.",
    after_help = "Example, as a client's entry in mcpServers:\n  \
                  {\"provost\": {\"command\": \"provost\", \"args\": [\"mcp\", \"--root\", \"/home/me/project\"]}}"
)]
pub(in crate::cli) struct McpArguments {
    #[command(flatten)]
    gateway: EmbeddableGatewayArguments,
    /// Confine the commands by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Let commands write to this directory; may be given several times; roots that the client names can only narrow
    /// this; default: the current directory
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Show commands this directory, which they cannot write to; may be given several times
    #[arg(long, value_name = "DIR")]
    ro: Vec<PathBuf>,
    /// Take the git repository around the first directory in its place, as `provost acp` does; roots that the client names have
    /// no effect then
    #[arg(long)]
    repository: bool,
    /// When a rule requires approval, ask the person at the client; the client is the agent, and could answer itself;
    /// default: the command is refused until someone has approved it by `provost approvals`
    #[arg(long)]
    ask_client: bool,
    /// Serve streamable HTTP on this loopback address instead of stdio, and print the URL; port 0: any that is free; clients share
    /// one session, and must bring the token (Authorization: Bearer TOKEN) and run under this user
    #[arg(long, value_name = "ADDRESS", requires = "token_file")]
    http: Option<SocketAddr>,
    /// With --http: the file of the token, made with the mode 0600 if it is not there
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Append log messages to this file; default: nothing is logged
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Serves the client until it goes away, or over HTTP until a signal.
pub(in crate::cli) async fn run(arguments: McpArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    if let Some(file) = &arguments.log {
        log_to(file)?;
    }
    let roots = text_roots(&arguments.root)?;
    let read_only = named_paths(&arguments.ro)?;
    let http = match (arguments.http, &arguments.token_file) {
        (Some(address), Some(file)) => {
            let shown = [real_paths(&roots)?, real_paths(&read_only)?].concat();
            Some((address, token_in(file, &shown)?))
        }
        (_, _) => None,
    };
    let connection = arguments.gateway.connect().await?;
    let approvals = if arguments.ask_client { Approvals::ByClient } else { Approvals::Elsewhere };
    // What a client names could not be widened to a repository without going beyond it.
    let is_fixed = http.is_some() || arguments.repository;
    let client_roots = if is_fixed { ClientRoots::Ignored } else { ClientRoots::Narrow };
    let extent =
        if arguments.repository { WorkspaceExtent::Repository } else { WorkspaceExtent::Unspecified };
    let profile = arguments.profile;
    let options = McpOptions { roots, read_only, extent, profile, approvals, client_roots };
    let stopped = async move {
        signals.next().await;
    };
    let served = match http {
        Some((address, token)) => serve_http(&connection, options, address, token, stopped).await,
        None => mcp::run(connection.client(), options, stopped)
            .await
            .map_err(|error| CliError::caused_by("cannot serve the client", error)),
    };
    connection.close().await;
    served.map(|()| 0)
}

async fn serve_http(
    connection: &GatewayConnection,
    options: McpOptions,
    address: SocketAddr,
    token: Token,
    stopped: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let endpoint = HttpEndpoint::bind(address)
        .await
        .map_err(|error| CliError::caused_by("cannot serve HTTP", error).with_advice("see --http"))?;
    // Who started it reads the URL; where nobody does, it is served all the same.
    let _ = stdio::print(&format!("{}\n", endpoint.url()));
    endpoint.serve(connection.client(), options, token, stopped).await;
    Ok(())
}
