//! The options of the subcommands that work on terminals.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::arguments::{GatewayArguments, OutputArguments, parse_duration};

/// `provost ps`.
#[derive(Debug, Args)]
#[command(about = "List your terminals", after_help = "Example:\n  provost ps -o json")]
pub(in crate::cli) struct PsArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArguments,
}

/// `provost logs`.
#[derive(Debug, Args)]
#[command(
    about = "Print the output of a terminal",
    long_about = "Prints the retained output of a terminal: its stdout to stdout, its stderr to stderr. Reports on \
                  stderr how many bytes are no longer retained. With -o json it prints one JSON object a line: \
                  stream, offset and data (base64), or a gap, then the end.",
    after_help = "Example:\n  provost logs -f term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct LogsArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// Continue with new output until the command has ended
    #[arg(short, long)]
    pub(in crate::cli) follow: bool,
    /// Print the output as it is, with every sequence that drives a terminal; default: the text of a pseudo-terminal
    #[arg(long, conflicts_with = "output")]
    pub(in crate::cli) raw: bool,
    /// Write the output of a pseudo-terminal to this file as a recording (asciicast v3), with the times at which it comes;
    /// with -f until the command has ended
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "raw"])]
    pub(in crate::cli) cast: Option<PathBuf>,
    /// Begin at this byte of the output, as `end` of -o json says it; default: the oldest that is held
    #[arg(long, value_name = "BYTES", default_value_t = 0, conflicts_with = "cast")]
    pub(in crate::cli) offset: u64,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArguments,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    pub(in crate::cli) terminal: String,
}

/// `provost stop`.
#[derive(Debug, Args)]
#[command(
    about = "Stop a terminal's command and everything that it started",
    long_about = "Stops a terminal's command and everything that it started: SIGTERM, then SIGKILL after the grace \
                  period. The terminal stays, with its output and its outcome, until it is removed.",
    after_help = "Example:\n  provost stop --grace 2s term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct StopArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// Time between SIGTERM and SIGKILL, a whole number with ms, s, m or h; 0s kills at once; default: the profile's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) grace: Option<Duration>,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArguments,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    pub(in crate::cli) terminal: String,
}

/// `provost kill`.
#[derive(Debug, Args)]
#[command(
    about = "Send a signal to a terminal's command",
    long_about = "Sends a signal to the process group of a terminal's command. Processes that have left the group do \
                  not get it: use `provost stop` to end everything that the command started.",
    after_help = "Examples:\n  \
                  provost kill term_01JD3ZK6T0000000000000000\n  \
                  provost kill -s HUP term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct KillArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// The signal to send: a name such as INT, SIGINT or RTMIN+1, in capitals or not, or a number
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    pub(in crate::cli) signal: String,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    pub(in crate::cli) terminal: String,
}

/// `provost wait`.
#[derive(Debug, Args)]
#[command(
    about = "Wait until a terminal's command has ended and exit with its status",
    long_about = "Waits until a terminal's command has ended, and exits with the status that `provost run` would have \
                  for it.",
    after_help = "Example:\n  provost wait -o json term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct WaitArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArguments,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    pub(in crate::cli) terminal: String,
}

/// `provost rm`.
#[derive(Debug, Args)]
#[command(
    about = "Remove a terminal, and stop its command first if it still runs",
    long_about = "Removes a terminal: stops its command if it still runs, frees everything that the terminal holds, \
                  and ends its id. Returns when this is done.",
    after_help = "Example:\n  provost rm term_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct RmArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// Time between SIGTERM and SIGKILL, a whole number with ms, s, m or h; 0s kills at once; default: the profile's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) grace: Option<Duration>,
    /// The terminal's id
    #[arg(value_name = "TERMINAL")]
    pub(in crate::cli) terminal: String,
}

/// `provost close`.
#[derive(Debug, Args)]
#[command(
    about = "Close a session and end everything in it",
    long_about = "Closes a session: stops all its commands, SIGTERM first and SIGKILL after the grace period of their profiles, and \
                  removes its terminals, its /tmp and its home. The workspace and the journal stay. Returns when this is done.",
    after_help = "Examples:\n  provost close dev\n  provost close sess_01JD3ZK6T0000000000000000"
)]
pub(in crate::cli) struct CloseArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// The session's id, or the name that it was given by --session
    #[arg(value_name = "SESSION")]
    pub(in crate::cli) session: String,
}

/// `provost prune`.
#[derive(Debug, Args)]
#[command(
    about = "Remove all terminals whose commands have ended",
    long_about = "Removes all of the caller's terminals whose commands have ended, with their output and outcomes, and \
                  prints their ids. What runs is left alone. The journal keeps its records.",
    after_help = "Example:\n  provost prune --older-than 1h"
)]
pub(in crate::cli) struct PruneArguments {
    #[command(flatten)]
    pub(in crate::cli) gateway: GatewayArguments,
    /// Only those that ended at least so long ago, a whole number with ms, s, m or h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub(in crate::cli) older_than: Duration,
    /// Only those of this session
    #[arg(long, value_name = "SESSION")]
    pub(in crate::cli) session: Option<String>,
    /// Instead, the caches that profiles keep between sessions and that were not used for that time: this user's, as
    /// root everybody's
    #[arg(long, conflicts_with_all = ["session", "gateway"])]
    pub(in crate::cli) caches: bool,
    /// Where the gateway keeps them, if its configuration says so (`kept_caches`)
    #[arg(long, value_name = "DIR", requires = "caches")]
    pub(in crate::cli) kept_caches: Option<std::path::PathBuf>,
}
