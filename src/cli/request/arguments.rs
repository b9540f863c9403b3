//! The options of the subcommands that run commands or work on terminals, the options that several subcommands share, and the values of
//! options as text on the command line: variables, durations, `unix:PATH`.
//!
//! Values are parsed here as far as that needs no input or output.

use std::{
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{
    Args, Command, ValueEnum,
    builder::{OsStringValueParser, Resettable, TypedValueParser},
};

use crate::{
    byte_text,
    cli::{
        console::error::CliError,
        gateway_link::{approval_prompt::OnAskChoice, connection::GatewayConnection},
    },
    gateway::parse_listen,
    policy::duration,
    printable,
    proto::v1,
};

/// `provost serve`.
#[derive(Debug, Args)]
#[command(
    about = "Serve the gateway's API on a Unix socket",
    long_about = "Serves the API (gRPC, with health and reflection) on a Unix socket. The gateway identifies a caller \
                  by the credentials of its process. On SIGTERM it drains, and either leaves running commands to the \
                  next gateway with the same state directory or stops them, as `on_stop` in the configuration says. \
                  On SIGINT it stops them. A second signal ends the gateway at once.",
    after_help = "Example:\n  provost serve --listen unix:/run/provost/provost.sock --policies /etc/provost/policies"
)]
pub(in crate::cli) struct ServeArguments {
    /// Read the configuration from this file (TOML); the options below override it
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: Option<PathBuf>,
    /// Listen on this socket; default: /run/provost/provost.sock for root, else provost/provost.sock in
    /// $XDG_RUNTIME_DIR, else in /tmp/provost-UID
    #[arg(long, value_name = "unix:PATH", value_parser = parse_listen)]
    pub(in crate::cli) listen: Option<PathBuf>,
    /// Keep sockets and state in this directory, which is created if absent
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) state: Option<PathBuf>,
    /// Read policy files from this directory; default: the compiled-in policy
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) policies: Option<PathBuf>,
    /// End when there has been no session for this time, a whole number with ms, s, m or h; default: never
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) idle_exit: Option<Duration>,
    /// Create sandboxes below this cgroup, a path as in /proc/PID/cgroup; default: the gateway's own cgroup
    #[arg(long, value_name = "CGROUP")]
    pub(in crate::cli) cgroup: Option<PathBuf>,
}

/// The option that names a gateway.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct GatewayArguments {
    /// Connect to the gateway on this socket; default: $PROVOST_GATEWAY, else the default socket of `provost serve`
    #[arg(long, value_name = "unix:PATH", value_parser = parse_gateway)]
    pub(in crate::cli) gateway: Option<String>,
}

/// The options that choose between a gateway that runs and an embedded one.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct EmbeddableGatewayArguments {
    #[command(flatten)]
    running: GatewayArguments,
    /// Start an embedded gateway with the policy files in this directory, even if another gateway runs
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    policies: Option<PathBuf>,
    /// Start an embedded gateway that keeps a journal in this directory, even if another gateway runs; default: an
    /// embedded gateway keeps no journal
    #[arg(long, value_name = "DIR", conflicts_with = "gateway")]
    journal: Option<PathBuf>,
}

impl EmbeddableGatewayArguments {
    /// Connects to the gateway that runs, or starts an embedded one.
    pub(in crate::cli) async fn connect(&self) -> Result<GatewayConnection, CliError> {
        let (policies, journal) = (self.policies.as_deref(), self.journal.as_deref());
        GatewayConnection::running_or_own(self.named(), policies, journal).await
    }

    /// Starts an embedded gateway.
    pub(in crate::cli) async fn embed(
        &self,
        given: Option<Arc<OwnedFd>>,
    ) -> Result<GatewayConnection, CliError> {
        GatewayConnection::embed(self.policies.as_deref(), self.journal.as_deref(), given).await
    }

    /// The gateway that is named.
    pub(in crate::cli) fn named(&self) -> Option<&str> {
        self.running.gateway.as_deref()
    }

    /// Whether an embedded one is asked for.
    pub(in crate::cli) fn is_embedded(&self) -> bool {
        self.policies.is_some() || self.journal.is_some()
    }
}

/// The option that chooses how data is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(in crate::cli) struct OutputArguments {
    /// Print in this format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub(in crate::cli) output: OutputFormat,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum OutputFormat {
    /// Lines and tables for people
    Text,
    /// JSON for programs
    Json,
}

/// Where a command may write, and where it starts.
#[derive(Debug, Args)]
pub(in crate::cli) struct WorkspaceArguments {
    /// Use this directory as the workspace, where the command may write; may be given several times, and the command starts
    /// in the first; default: the git repository around the current directory, else the current directory
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Start the command in this directory; a relative path counts from the first --root, else from the current directory;
    /// default: that directory
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<PathBuf>,
}

impl WorkspaceArguments {
    /// The directories that were named; none for the current directory.
    pub(in crate::cli) fn roots(&self) -> &[PathBuf] {
        &self.root
    }

    /// How much is taken of what lies around the first directory: named directories are taken as they are.
    pub(in crate::cli) fn extent(&self) -> v1::WorkspaceExtent {
        match self.root[..] {
            [] => v1::WorkspaceExtent::Repository,
            [_, ..] => v1::WorkspaceExtent::Unspecified,
        }
    }

    /// The working directory for a command whose first directory is `root`.
    pub(in crate::cli) fn working_directory(&self, root: &Path) -> Result<PathBuf, CliError> {
        self.workdir.as_deref().map_or_else(|| Ok(root.to_owned()), |workdir| real_workdir(root, workdir))
    }
}

/// A working directory that counts from `from`. One that exists is given by its real path, which is how sandboxes name the directories
/// in a workspace. One that does not may be there in the sandbox; where `..` leads from it nobody knows.
pub(in crate::cli) fn real_workdir(from: &Path, workdir: &Path) -> Result<PathBuf, CliError> {
    let path = from.join(workdir);
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if path.components().any(|part| part == Component::ParentDir) => {
            Err(CliError::caused_by(format!("--workdir {}", printable::path(workdir)), error))
        }
        Err(_) => Ok(path),
    }
}

/// `provost run`.
#[derive(Debug, Args)]
#[command(
    about = "Run one command in a sandbox and exit with its status",
    long_about = "Runs one command in a sandbox and prints its stdout and stderr as they come, in their order where \
                  both go to one file, pipe or terminal. The workspace, where \
                  the command may write, is the git repository around the current directory, else the current \
                  directory, or what --root names. Ends when the command and everything that it started has ended. \
                  Connects to a gateway if one answers; otherwise starts one inside itself for this command.",
    after_help = "Exit status:\n  \
                  the command's own; 128+n if signal n ended it; 124 at a time limit;\n  \
                  127 command not found; 126 denied or not executable; 125 Provost failed\n\n\
                  Ctrl-C sends the command SIGINT, as in a shell. A second one stops the command and everything that \
                  it started: SIGTERM, then SIGKILL after the grace period. A third one kills at once. SIGTERM \
                  begins with the stop. SIGHUP is sent on, and the stop follows if the command has not ended 2 s \
                  later, or at once with -t. SIGQUIT, SIGUSR1 and SIGUSR2 are sent on as often as they come. With \
                  -it, Ctrl-C is a key like any other.\n\n\
                  Examples:\n  \
                  provost run make test\n  \
                  provost run --timeout 10m --receipt -- python3 -m unittest\n  \
                  provost run -w docs -e CI=1 -- make html\n  \
                  tar c src | provost run sha256sum\n  \
                  provost run -it bash\n  \
                  provost run -d -- make all"
)]
pub(in crate::cli) struct RunArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: EmbeddableGatewayArguments,
    /// Confine the command by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) profile: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) workspace: WorkspaceArguments,
    /// Show the command this directory, which it cannot write to; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) ro: Vec<PathBuf>,
    /// Run the command in the session of this name, which is opened if there is none and stays open for 30 minutes after its
    /// last command; its commands share /tmp and the home, and those of one profile the loopback; a later run must ask for the
    /// same workspace, profile and network; where no gateway serves, one is started that ends when it is idle
    #[arg(long, value_name = "NAME", conflicts_with_all = ["policies", "journal"])]
    pub(in crate::cli) session: Option<String>,
    /// Set a variable in the command's environment, or pass on the one of this name if it is set here; may be given
    /// several times; no other variable is passed on
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = EnvArgument::parser())]
    pub(in crate::cli) env: Vec<EnvArgument>,
    /// Give the session and the terminal this label, which `provost ps` shows and rules may depend on; may be given
    /// several times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pub(in crate::cli) label: Vec<(String, String)>,
    /// Stop the command after this time, a whole number with ms, s, m or h; default: the profile's limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) timeout: Option<Duration>,
    /// Stop the command when it has written nothing for this time; default: the profile's limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) idle: Option<Duration>,
    /// Give the command this network; "host" includes services on the host's loopback and its metadata addresses;
    /// default: the profile's
    #[arg(long, value_name = "NETWORK")]
    pub(in crate::cli) network: Option<NetworkChoice>,
    /// Pass stdin on to the command even if it is a terminal; default: what is no terminal is passed on
    #[arg(short = 'i', long, visible_alias = "interactive")]
    pub(in crate::cli) stdin: bool,
    /// Run the command in a pseudo-terminal; stdin must be a terminal; with -i every key goes to the command
    #[arg(short = 't', long)]
    pub(in crate::cli) tty: bool,
    /// Start the command, print its terminal's id and leave it running; where no gateway serves, one is started for this user,
    /// which ends when it has had no session for 10 minutes; output and status stay for 30 minutes after the command's end
    #[arg(short, long, conflicts_with_all = ["policies", "journal", "receipt", "report"])]
    pub(in crate::cli) detach: bool,
    /// Give the command an empty stdin
    #[arg(short, long, conflicts_with = "stdin")]
    pub(in crate::cli) no_stdin: bool,
    /// What to do when a rule requires approval; default: ask on the terminal, or refuse if there is none
    #[arg(long, value_name = "ACTION")]
    pub(in crate::cli) on_ask: Option<OnAskChoice>,
    /// Print to stderr, at the end, what confined the command and how it ended
    #[arg(long)]
    pub(in crate::cli) receipt: bool,
    /// Write exit status, outcome, receipt and error to this file at the end, as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) report: Option<PathBuf>,
    /// The command and its arguments; options for `provost run` stand before it
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND [ARG]...")]
    pub(in crate::cli) command: Vec<OsString>,
}

/// `provost acp`.
#[derive(Debug, Args)]
#[command(
    about = "Run an agent for an editor and answer the agent's terminal requests",
    long_about = "Runs an agent for an editor. Both speak the Agent Client Protocol on stdio, and the editor starts \
                  this command instead of the agent. The agent's terminal requests go to a gateway, which checks, \
                  confines and runs the commands; every other message passes through unchanged. Connects to a \
                  gateway if one answers; otherwise starts one inside itself. Ends when the agent or the editor ends.",
    after_help = "Exit status:\n  the agent's own; 128+n if signal n ended it; 125 Provost failed\n\n\
                  Example, as an editor's agent command:\n  provost acp -- my-agent --acp\n  provost acp --agent opencode"
)]
pub(in crate::cli) struct AcpArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: EmbeddableGatewayArguments,
    /// Confine the agent's commands by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) profile: Option<String>,
    /// Let the commands of every session, and a confined agent, write in this directory, alongside their own; may be given several
    /// times
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) root: Vec<PathBuf>,
    /// Show the commands of every session, and a confined agent, this directory, which they cannot write to; may be given several
    /// times
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) ro: Vec<PathBuf>,
    /// Run the agent itself in a sandbox, with the current directory and the git repository around it as its workspace; for agents that run commands
    /// without asking for a terminal
    #[arg(long)]
    pub(in crate::cli) confine_agent: bool,
    /// Give a confined agent this network; "host" includes services on the host's loopback and its metadata addresses;
    /// default: the profile's
    #[arg(long, value_name = "NETWORK", requires = "confine_agent")]
    pub(in crate::cli) network: Option<NetworkChoice>,
    /// Set a variable in a confined agent's environment; may be given several times; no other variable is passed on
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = EnvArgument::parser(), requires = "confine_agent")]
    pub(in crate::cli) env: Vec<EnvArgument>,
    /// Give every session of the agent the tools of `provost mcp`, too, because it runs commands itself; default: once that is
    /// known of it
    #[arg(long, conflicts_with = "confine_agent")]
    pub(in crate::cli) offer_tools: bool,
    /// Start this agent, as is known of it, with what has it run its commands here; "list" prints the agents that are known
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// Append log messages to this file; default: nothing is logged
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) log: Option<PathBuf>,
    /// The agent and its arguments; with --agent: arguments to add
    #[arg(last = true, required_unless_present = "agent", value_name = "AGENT [ARG]...")]
    pub(in crate::cli) command: Vec<OsString>,
}

/// The network of a command.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::cli) enum NetworkChoice {
    /// A loopback interface of its own and nothing else
    None,
    /// A network of its own, with proxies that carry what the policy's rules about connections allow
    Proxy,
    /// The host's network, with the host's loopback and metadata addresses
    Host,
}

/// `provost reap`.
#[derive(Debug, Args)]
#[command(
    about = "End and remove what a gateway could not restore when it started",
    long_about = "Ends and removes what a gateway could not restore when it started: sandboxes with every process in \
                  them, and session files. `provost doctor` lists them. Nothing else is changed, and a gateway may \
                  run meanwhile.",
    after_help = "Example:\n  provost reap sbx_01JD3ZK6T00000000000000000\n  provost reap --all"
)]
pub(in crate::cli) struct ReapArguments {
    /// The gateway's state directory; default: that of `provost serve`
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) state: Option<PathBuf>,
    /// Remove everything that is listed
    #[arg(long, conflicts_with = "ids")]
    pub(in crate::cli) all: bool,
    /// The ids to remove
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(in crate::cli) ids: Vec<String>,
}

/// `provost doctor`.
#[derive(Debug, Args)]
#[command(
    about = "Show which protections this host offers, and how to get those it lacks",
    long_about = "Shows for each protection whether this host offers it to this user, the reason if not, and how to \
                  get it. Exits with status 1 if one is missing without which no command runs.",
    after_help = "Example:\n  provost doctor -o json"
)]
pub(in crate::cli) struct DoctorArguments {
    /// The gateway's state directory, which lists what it could not restore; default: that of `provost serve`
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) state: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArguments,
}

/// A variable for a command, as `-e` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum EnvArgument {
    /// With this value.
    Set(String, String),
    /// With the value that it has here, if it has one.
    PassedOn(String),
}

impl EnvArgument {
    /// For clap: an argument of any bytes.
    pub(in crate::cli) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|word| Self::parse(&byte_text::from_bytes(word.as_bytes())))
    }

    /// Reads `NAME=VALUE` or `NAME`.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            return parse_assignment(text).map(|(name, value)| Self::Set(name, value));
        }
        match text {
            "" => Err("the name is empty".to_owned()),
            name => Ok(Self::PassedOn(name.to_owned())),
        }
    }

    /// The name and the value, in the form of [`byte_text`]; `None`: it is not set here.
    pub(in crate::cli) fn resolve(self) -> Option<(String, String)> {
        match self {
            Self::Set(name, value) => Some((name, value)),
            // It goes with every command, as far as it lies in the workspace.
            Self::PassedOn(name) if name == "PATH" => None,
            Self::PassedOn(name) => {
                let value = std::env::var_os(&*byte_text::to_path(&name));
                value.map(|value| (name, byte_text::from_bytes(value.as_bytes())))
            }
        }
    }
}

/// Checks the form of a gateway's address, so that a mistake is reported as one in the arguments; the client parses the
/// address again.
pub(in crate::cli) fn parse_gateway(text: &str) -> Result<String, &'static str> {
    parse_listen(text).map(|_| text.to_owned())
}

/// Splits `NAME=VALUE`.
pub(in crate::cli) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name before \"=\" is empty".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("it is written NAME=VALUE".to_owned()),
    }
}

/// Parses a whole number with ms, s, m or h.
pub(in crate::cli) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

/// The command, for which a variable that is set and empty is as one that is not set: that is how scripts take a setting back.
pub(in crate::cli) fn without_empty_variables(command: Command) -> Command {
    command.mut_args(|argument| {
        let value = argument.get_env().and_then(std::env::var_os);
        match value.is_some_and(|value| value.is_empty()) {
            true => argument.env(Resettable::Reset),
            false => argument,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_working_directory_counts_from_the_workspace() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("sub/again")).unwrap();
        let of = |workdir: Option<&str>| {
            WorkspaceArguments { root: Vec::new(), workdir: workdir.map(PathBuf::from) }
                .working_directory(&root)
        };
        for (workdir, path) in [
            (None, root.clone()),
            (Some("sub"), root.join("sub")),
            (Some("sub/again/sub"), root.join("sub")),
            (Some("sub/.."), root.clone()),
            (Some(".."), root.parent().unwrap().to_owned()),
            (Some("/"), PathBuf::from("/")),
            (Some("absent"), root.join("absent")),
        ] {
            assert_eq!(of(workdir).unwrap(), path, "{workdir:?}");
        }
        let refused = of(Some("absent/..")).unwrap_err().to_string();
        assert!(refused.starts_with("--workdir absent/..: "), "{refused}");
    }
}
