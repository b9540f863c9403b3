//! `provost mcp`: serves tools to an agent that speaks the Model Context Protocol.
//!
//! Connects to a gateway or starts an embedded one; the `mcp` module does the rest. Nothing is printed to stdout, which
//! carries the protocol.

use std::path::PathBuf;

use clap::Args;

use super::{
    arguments::GatewayArguments,
    connection::GatewayConnection,
    error::CliError,
    log_writer::log_to,
    run_request::{text, workspace_roots},
    signals::TerminationSignals,
};
use crate::mcp::{self, Approvals, McpOptions};

/// `provost mcp`.
#[derive(Debug, Args)]
#[command(
    about = "Offer an agent tools to run commands, by the Model Context Protocol",
    long_about = "Serves an agent that speaks the Model Context Protocol (MCP) on stdio; the agent starts this command. \
                  Its tools run commands, start them in the background, read their output, wait, write, stop and list. \
                  They go to a gateway, which checks, confines and runs the commands. Connects to a gateway if one \
                  answers; otherwise starts one inside itself. Ends, with every command, when the agent ends. An \
                  agent's own shell tool is not covered: switch it off where the agent allows that.",
    after_help = "Example, as a client's entry in mcpServers:\n  \
                  {\"provost\": {\"command\": \"provost\", \"args\": [\"mcp\", \"--root\", \"/home/me/project\"]}}"
)]
pub(super) struct McpArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Confine the commands by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Start an embedded gateway with the policy files in this directory, even if another gateway runs
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    policies: Option<PathBuf>,
    /// Start an embedded gateway that keeps a journal in this directory, even if another gateway runs; default: an
    /// embedded gateway keeps no journal
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    journal: Option<PathBuf>,
    /// Let commands write to this directory; may be given several times; roots that the client names can only narrow
    /// this; default: the current directory
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// When a rule requires approval, ask the person at the client; the client is the agent, and could answer itself;
    /// default: the command is refused until someone has approved it by `provost approvals`
    #[arg(long)]
    ask_client: bool,
    /// Append log messages to this file; default: nothing is logged
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Serves the client until it goes away.
pub(super) async fn run(arguments: McpArguments) -> Result<u8, CliError> {
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    if let Some(file) = &arguments.log {
        log_to(file)?;
    }
    let roots = workspace_roots(&arguments.root)?;
    for root in &roots {
        text(root.clone().into_os_string(), "the workspace's path")?;
    }
    let (policies, journal) = (arguments.policies.as_deref(), arguments.journal.as_deref());
    let connection =
        GatewayConnection::running_or_own(arguments.gateway.gateway.as_deref(), policies, journal).await?;
    let approvals = if arguments.ask_client { Approvals::ByClient } else { Approvals::Elsewhere };
    let options = McpOptions { roots, profile: arguments.profile, approvals };
    let stopped = async move {
        signals.next().await;
    };
    let served = mcp::run(connection.client(), options, stopped).await;
    connection.close().await;
    served.map(|()| 0).map_err(|error| CliError::caused_by("cannot serve the client", error))
}
