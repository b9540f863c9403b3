//! `provost acp`: runs an agent for an editor.
//!
//! Connects to a gateway or starts an embedded one; the `acp` module does the rest. Nothing is printed to stdout, which
//! carries the protocol.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::token_file::new_token;
use crate::{
    acp,
    cli::{
        console::{
            error::CliError,
            log_writer::log_to,
            signals::TerminationSignals,
            table::{align_columns, print_to_stdout},
        },
        request::{
            arguments::{AcpArguments, NetworkChoice},
            known_agents::{AgentStart, KNOWN_AGENTS, KnownAgent, LIST, OwnShell},
            run_request::{named_current_directory, named_paths},
        },
    },
    client::Client,
    local_http::Token,
    mcp::{Approvals, ClientRoots, HttpEndpoint, McpOptions},
    proto::v1,
};

/// How long the tools' commands may take to end after the agent. They end with this process in any case.
const TOOLS_END_TIMEOUT: Duration = Duration::from_secs(35);

/// Runs the agent until it or its editor ends, and answers with the agent's exit status.
pub(in crate::cli) async fn run(arguments: AcpArguments) -> Result<u8, CliError> {
    if arguments.agent.as_deref() == Some(LIST) {
        return print_to_stdout(&known_agents());
    }
    let agent = agent_start(&arguments)?;
    if is_interactive() {
        return Err(no_editor(&agent.command));
    }
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    if let Some(file) = &arguments.log {
        log_to(file)?;
    }
    let shared = acp::SharedDirectories {
        writable: named_paths(&arguments.root)?,
        read_only: named_paths(&arguments.ro)?,
    };
    let confine = arguments.confine_agent.then(|| confinement(&arguments, &shared)).transpose()?;
    let connection = arguments.gateway.connect().await?;
    let (served, ending) = (TaskTracker::new(), CancellationToken::new());
    let http = http_tools(connection.client(), arguments.profile.clone(), served.clone(), ending.clone());
    let options = acp::ShimOptions {
        command: agent.command,
        env: agent.env,
        profile: arguments.profile.clone(),
        confine,
        tools: std::env::current_exe().ok().filter(|program| program.is_file()).map(|program| {
            acp::ToolServer {
                program,
                gateway: connection.uri().to_owned(),
                profile: arguments.profile.clone(),
                shared: shared.clone(),
                http,
            }
        }),
        terminals: if arguments.offer_tools { acp::ExpectedTerminals::NotRequested } else { agent.terminals },
        shared,
        notice: Arc::new(crate::cli::console::stdio::print_notice),
    };
    let stopped = async move {
        signals.next().await;
    };
    let ended = acp::run(connection.client(), options, stopped).await;
    ending.cancel();
    served.close();
    let _ = timeout(TOOLS_END_TIMEOUT, served.wait()).await;
    connection.close().await;
    Ok(ended.map_err(|error| CliError::caused_by("cannot run the agent", error))?.exit_status)
}

/// Serves the tools of `provost mcp` on the loopback from within this process, for agents that take them so. Who has the token has the
/// tools: it goes to the agent alone.
fn http_tools(
    client: Client,
    profile: Option<String>,
    served: TaskTracker,
    ending: CancellationToken,
) -> acp::HttpTools {
    Arc::new(move |roots: Vec<PathBuf>, read_only: Vec<PathBuf>| {
        let (client, profile) = (client.clone(), profile.clone());
        let (served, stop) = (served.clone(), ending.child_token());
        Box::pin(async move {
            let token = new_token()?;
            let checked = Token::parse(&token).ok_or(io::ErrorKind::InvalidData)?;
            let endpoint = HttpEndpoint::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
            let endpoint = endpoint.map_err(io::Error::other)?;
            let options = McpOptions {
                roots,
                read_only,
                extent: v1::WorkspaceExtent::Repository,
                profile,
                approvals: Approvals::Elsewhere,
                client_roots: ClientRoots::Ignored,
            };
            let url = endpoint.url();
            served.spawn(endpoint.serve(client, options, checked, stop.clone().cancelled_owned()));
            Ok(acp::HttpServer { url, token, stop: stop.drop_guard() })
        })
    })
}

/// The agent that is named, or the command that is given.
fn agent_start(arguments: &AcpArguments) -> Result<AgentStart, CliError> {
    let command = arguments.command.clone();
    let Some(name) = &arguments.agent else { return Ok(AgentStart { command, ..AgentStart::default() }) };
    let shell = if arguments.confine_agent { OwnShell::Kept } else { OwnShell::SwitchedOff };
    KnownAgent::find(name)?.start(command, shell)
}

fn known_agents() -> String {
    let mut rows = vec![["NAME", "COMMAND", "COVERED", "TESTED", "INSTALL"].map(str::to_owned)];
    rows.extend(KNOWN_AGENTS.iter().map(|agent| {
        let command = agent.start.join(" ");
        [agent.name, &command, agent.coverage(), agent.tested, agent.install].map(str::to_owned)
    }));
    align_columns(&rows)
}

/// Whether a person has started this in a terminal. An editor may have one for messages, but not for errors, too.
fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Editors start their agent's command in a terminal, too, with some words more, when its login is to be typed.
fn no_editor(agent: &[OsString]) -> CliError {
    let words: Vec<_> = agent.iter().map(|word| word.to_string_lossy()).collect();
    CliError::message_only(format!(
        "no editor is here, but a terminal: let your editor start this. To log in to the agent, start it by itself: {}",
        words.join(" ")
    ))
}

fn confinement(
    arguments: &AcpArguments,
    shared: &acp::SharedDirectories,
) -> Result<acp::Confinement, CliError> {
    let workspace = named_current_directory().map_err(|error| {
        CliError::caused_by("cannot use the current directory as the agent's workspace", error)
    })?;
    let network = match arguments.network {
        None => v1::Network::Unspecified,
        Some(NetworkChoice::None) => v1::Network::None,
        Some(NetworkChoice::Host) => v1::Network::Host,
        Some(NetworkChoice::Proxy) => v1::Network::Proxy,
    };
    let mut env = Vec::new();
    for variable in &arguments.env {
        env.extend(variable.clone().resolve());
    }
    let (profile, shared) = (arguments.profile.clone(), shared.clone());
    Ok(acp::Confinement { workspace, shared, profile, network, env })
}
