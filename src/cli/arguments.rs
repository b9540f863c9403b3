//! The arguments: every command, option and help text of `provost`.
//!
//! Parses what can be parsed without asking anybody (durations, `NAME=value`, `unix:PATH`) and refuses the
//! rest with a sentence. It opens nothing and connects to nothing.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{gateway::parse_listen, policy::duration};

/// `provost`.
#[derive(Debug, Parser)]
#[command(
    name = "provost",
    version,
    about = "A sandboxed command-execution gateway",
    long_about = "Provost runs commands for agents, CI runners and editors: each one judged by policy, confined \
                  by the kernel, streamed, and ended for certain.",
    after_help = "Example:\n  provost run -- make test"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Serve the gateway's API on a unix socket
    Serve(ServeArguments),
    /// Run one command in a sandbox and end with its exit status
    Run(RunArguments),
    /// Stand between an editor and its agent, and answer the agent's terminals
    Acp(AcpArguments),
    /// List the terminals that are yours
    Ps(PsArguments),
    /// Print the output of a terminal
    Logs(LogsArguments),
    /// Stop a terminal's command and all that it started
    Kill(KillArguments),
    /// Wait until a terminal's command has ended, and end with its exit status
    Wait(WaitArguments),
    /// Stop a terminal if it runs, and free everything that it holds
    Release(ReleaseArguments),
    /// Show what waits for a person's yes, and answer it
    Approvals(super::approvals::ApprovalsArguments),
    /// Read and check the journal
    Audit(super::audit::AuditArguments),
    /// Say which protections this host offers, which are missing, and how to get them
    Doctor(DoctorArguments),
    /// End and remove what a gateway could not take back when it was started again
    Reap(ReapArguments),
    /// Check, test and explain policies, and see which one is in force
    #[command(subcommand, after_help = "Example:\n  provost policy explain -- git push --force")]
    Policy(super::policy::PolicyCommand),
    /// Test the terminals of an ACP client, this one's or another's, against the protocol
    AcpConformance(super::acp_conformance::AcpConformanceArguments),
}

/// `provost serve`.
#[derive(Debug, Args)]
#[command(
    long_about = "Serves the API (gRPC, with health and reflection) on a unix socket. Callers are known by the \
                  credentials of their process. SIGTERM drains, and leaves what runs to the next \
                  gateway on the same state directory, or stops it, as the configuration says (on_stop). SIGINT stops \
                  what runs. A second signal ends the gateway at once.",
    after_help = "Example:\n  provost serve --listen unix:/run/provost/provost.sock --policies /etc/provost/policies"
)]
pub(super) struct ServeArguments {
    /// Configuration file (TOML): listen, state, policies; the options below win over it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Where to listen. Without it: /run/provost/provost.sock for root, else provost/provost.sock in
    /// $XDG_RUNTIME_DIR, else in /tmp/provost-UID
    #[arg(long, value_name = "unix:PATH", value_parser = parse_listen)]
    pub(super) listen: Option<PathBuf>,
    /// Directory for the sandboxes' sockets and plans; made when absent
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Directory with the policy files. Without it: the policy that is compiled in
    #[arg(long, value_name = "DIR")]
    pub(super) policies: Option<PathBuf>,
    /// The cgroup to make sandboxes in, as /proc/PID/cgroup writes it. Without it: the one it is started in
    #[arg(long, value_name = "GROUP")]
    pub(super) cgroup: Option<PathBuf>,
}

/// Which gateway to talk to.
#[derive(Debug, Args)]
pub(super) struct GatewayArguments {
    /// The gateway's socket. Without it: $PROVOST_GATEWAY, else the socket that `provost serve` has by default
    #[arg(long, value_name = "unix:PATH", value_parser = parse_gateway)]
    pub(super) gateway: Option<String>,
}

/// `provost run`.
#[derive(Debug, Args)]
#[command(
    long_about = "Runs one command in a sandbox, with the current directory (or --cwd) as its workspace, prints its \
                  stdout and stderr as they come, and ends when nothing of it is left. Uses a gateway that \
                  answers, else an embedded one that lives as long as the command.",
    after_help = "Exit status:\n  \
                  that of the command; 128+n when signal n ended it; 124 on a time limit;\n  \
                  127 command not found; 126 denied or not executable; 125 Provost's own failure\n\n\
                  Ctrl-C (or SIGTERM, SIGHUP) stops the command and all that it started: TERM, and KILL after \
                  the grace time. A second one kills at once.\n\n\
                  Examples:\n  \
                  provost run -- make test\n  \
                  provost run --timeout 10m --receipt -- python3 -m unittest\n  \
                  tar c src | provost run --stdin -- sha256sum"
)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// The profile of confinement; without it the policy's default
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
    /// Directory with policy files for an embedded gateway; a running one, which has its own, is not used then
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    pub(super) policies: Option<PathBuf>,
    /// Directory to keep an embedded gateway's journal in; a running one, which keeps its own, is not used then. Without
    /// it an embedded gateway keeps none
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    pub(super) journal: Option<PathBuf>,
    /// The workspace, and the command's working directory; without it the current directory
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,
    /// A variable of the command's environment; may be given many times. Nothing else is passed on
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pub(super) env: Vec<(String, String)>,
    /// Stop the command after this time: a whole number and ms, s, m or h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// The network; without it the profile's default. "host" reaches the services on the host's loopback and its metadata
    /// addresses, too
    #[arg(long, value_name = "NETWORK")]
    pub(super) network: Option<NetworkChoice>,
    /// Pass stdin on to the command; without it the command's stdin is empty
    #[arg(long)]
    pub(super) stdin: bool,
    /// When a rule asks a person. Without it you are asked on a terminal, and elsewhere the command is refused
    #[arg(long, value_name = "WHAT")]
    pub(super) on_ask: Option<OnAskChoice>,
    /// Afterwards print, on stderr, what confined the command and how it ended
    #[arg(long)]
    pub(super) receipt: bool,
    /// Afterwards print one JSON object with outcome, receipt and error, on stderr
    #[arg(long)]
    pub(super) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND [ARG]...")]
    pub(super) command: Vec<OsString>,
}

/// `provost acp`.
#[derive(Debug, Args)]
#[command(
    long_about = "Stands between an editor and an agent that speak the Agent Client Protocol on stdio: the editor \
                  starts this instead of the agent. What the agent asks of terminals is judged, confined and run \
                  by a gateway, one that answers or else an embedded one; everything else is passed on. Ends with \
                  the agent, and with the editor.",
    after_help = "Exit status:\n  that of the agent; 128+n when signal n ended it; 125 Provost's own failure\n\n\
                  Example, as an editor's agent command:\n  provost acp -- my-agent --acp"
)]
pub(super) struct AcpArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// The profile of confinement; without it the policy's default
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
    /// Directory with policy files for an embedded gateway; a running one, which has its own, is not used then
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    pub(super) policies: Option<PathBuf>,
    /// Directory to keep an embedded gateway's journal in; a running one, which keeps its own, is not used then. Without
    /// it an embedded gateway keeps none
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    pub(super) journal: Option<PathBuf>,
    /// Run the agent itself in a sandbox, too, with the current directory as its workspace: for agents that run commands
    /// themselves
    #[arg(long)]
    pub(super) confine_agent: bool,
    /// The network of a confined agent, for its model; without it the profile's default. "host" reaches the services on the
    /// host's loopback and its metadata addresses, too
    #[arg(long, value_name = "NETWORK", requires = "confine_agent")]
    pub(super) network: Option<NetworkChoice>,
    /// A variable of a confined agent's environment; may be given many times. Nothing else is passed on
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, requires = "confine_agent")]
    pub(super) env: Vec<(String, String)>,
    /// Append what happens to this file; stdout belongs to the editor, and stderr to the agent
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// The agent and its arguments
    #[arg(last = true, required = true, value_name = "AGENT [ARG]...")]
    pub(super) command: Vec<OsString>,
}

/// A network to ask for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum NetworkChoice {
    /// Its own, with a loopback and nothing else
    None,
    /// The host's: its loopback and metadata addresses, too
    Host,
}

/// What to do when a rule asks a person.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum OnAskChoice {
    /// Wait until somebody answers with `provost approvals`
    Wait,
    /// End at once
    Refuse,
}

/// `provost ps`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  provost ps --json")]
pub(super) struct PsArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// `provost logs`.
#[derive(Debug, Args)]
#[command(
    long_about = "Prints the output of a terminal that is still held: stdout to stdout, stderr to stderr. What \
                  was dropped before is counted on stderr.",
    after_help = "Example:\n  provost logs -f term_01JD3ZK6T0000000000000000"
)]
pub(super) struct LogsArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// Go on with what comes, until the command has ended
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print a JSON object a line: stream, offset and data (base64), or a gap, then the end
    #[arg(long)]
    pub(super) json: bool,
    /// The terminal's id
    #[arg(value_name = "TERM")]
    pub(super) terminal: String,
}

/// `provost kill`.
#[derive(Debug, Args)]
#[command(
    long_about = "Stops a terminal's command and all that it started: TERM, and KILL after the grace time. The \
                  terminal stays, with its output and its outcome, until it is released.",
    after_help = "Example:\n  provost kill --grace 2s term_01JD3ZK6T0000000000000000"
)]
pub(super) struct KillArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// Time between TERM and KILL; 0s kills at once. Without it the profile's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) grace: Option<Duration>,
    /// Print the terminal as a JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// The terminal's id
    #[arg(value_name = "TERM")]
    pub(super) terminal: String,
}

/// `provost wait`.
#[derive(Debug, Args)]
#[command(
    long_about = "Waits until a terminal's command has ended, and ends with the exit status that `provost run` \
                  would have had.",
    after_help = "Example:\n  provost wait --json term_01JD3ZK6T0000000000000000"
)]
pub(super) struct WaitArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// Print the outcome as a JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// The terminal's id
    #[arg(value_name = "TERM")]
    pub(super) terminal: String,
}

/// `provost release`.
#[derive(Debug, Args)]
#[command(
    long_about = "Stops a terminal if it runs, frees everything that it holds, and ends its id. Answers when \
                  nothing is left.",
    after_help = "Example:\n  provost release term_01JD3ZK6T0000000000000000"
)]
pub(super) struct ReleaseArguments {
    #[command(flatten)]
    pub(super) gateway: GatewayArguments,
    /// Time between TERM and KILL; 0s kills at once. Without it the profile's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) grace: Option<Duration>,
    /// The terminal's id
    #[arg(value_name = "TERM")]
    pub(super) terminal: String,
}

/// `provost reap`.
#[derive(Debug, Args)]
#[command(
    long_about = "Ends and removes what a gateway could not take back when it was started, and left as it is: \
                  sandboxes with all that lives in them, and sessions' files. `provost doctor` lists them. \
                  Nothing else is touched, and a gateway may run meanwhile.",
    after_help = "Example:\n  provost reap sbx_01JD3ZK6T00000000000000000\n  provost reap --all"
)]
pub(super) struct ReapArguments {
    /// The gateway's state directory; without it the default one
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Everything that is listed
    #[arg(long, conflicts_with = "ids")]
    pub(super) all: bool,
    /// Ids that are listed
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(super) ids: Vec<String>,
}

/// `provost doctor`.
#[derive(Debug, Args)]
#[command(
    long_about = "Says for each protection whether this host offers it to this user, why not, and how to get it. \
                  Ends with status 1 when one is missing without which nothing runs.",
    after_help = "Example:\n  provost doctor --json"
)]
pub(super) struct DoctorArguments {
    /// The gateway's state directory, in which it says what it did not take back; without it the default one
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// An address, checked here so that a mistake is a mistake of arguments; the client parses it again.
pub(super) fn parse_gateway(text: &str) -> Result<String, &'static str> {
    parse_listen(text).map(|_| text.to_owned())
}

pub(super) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name before \"=\" is empty".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("a variable is written NAME=VALUE".to_owned()),
    }
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Arguments::command().get_subcommands() {
            let shown = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(shown.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn a_command_needs_the_double_dash() {
        assert!(Arguments::try_parse_from(["provost", "run", "true"]).is_err());
        assert!(Arguments::try_parse_from(["provost", "run", "--"]).is_err());
        assert!(Arguments::try_parse_from(["provost", "run", "--", "true", "--json"]).is_ok());
    }
}
