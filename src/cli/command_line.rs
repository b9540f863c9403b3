//! The top of the command line: the program and its subcommands, from which help, completions and man pages are made.

use std::{ffi::OsString, fmt::Write};

use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{
    agent::{exec_server::ExecServerArguments, mcp::McpArguments},
    approvals::ApprovalsArguments,
    audit::AuditArguments,
    gateway_link::connection::names_gateway,
    host::manual::{CompletionsArguments, ManArguments},
    policy::{PolicyCommand, init::InitArguments},
    request::{
        arguments::{
            AcpArguments, DoctorArguments, ReapArguments, RunArguments, ServeArguments,
            without_empty_variables,
        },
        terminal_arguments::{
            CloseArguments, KillArguments, LogsArguments, PruneArguments, PsArguments, RmArguments,
            StopArguments, WaitArguments,
        },
    },
    run::exec::ExecArguments,
    shell::{shell::ShellArguments, shell_wrapper::ShellWrapperArguments},
    terminal::{
        attach::AttachArguments, forward::ForwardArguments, record::PlayArguments, terminals::TopArguments,
    },
};

/// The whole command line of `provost`.
#[derive(Debug, Parser)]
#[command(
    name = "provost",
    version,
    about = "A sandboxed command-execution gateway",
    long_about = "Provost runs commands for agents, CI runners and editors. It checks each command against a policy, \
                  confines it by the kernel, streams its output, and ends it with everything that it started.",
    after_help = "Example:\n  provost run -- make test\n\n`provost help COMMAND` prints the help of a command."
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

/// The groups in which `provost --help` lists the subcommands, each in one of them.
const HELP_GROUPS: [(&str, &[&str]); 6] = [
    ("Run commands", &["run", "exec", "shell", "attach", "forward"]),
    (
        "Terminal and session commands",
        &["ps", "top", "logs", "play", "wait", "stop", "kill", "rm", "prune", "close"],
    ),
    ("Policy and approval commands", &["init", "policy", "approvals"]),
    ("Audit commands", &["audit"]),
    ("Agent and editor commands", &["acp", "mcp", "exec-server", "shell-wrapper"]),
    ("Gateway and host commands", &["serve", "doctor", "reap", "completions", "man"]),
];

/// The tree of all commands.
pub(super) fn command() -> Command {
    let command = CommandLine::command();
    let help = grouped_help(&command);
    command.help_template(help)
}

/// The help of the program, with its subcommands in groups. clap itself groups arguments only.
fn grouped_help(command: &Command) -> String {
    let (heading, name) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or_default();
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in HELP_GROUPS {
        let _ = writeln!(help, "\n{heading}{group}:{heading:#}");
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(help, "  {name}{:width$}{name:#}  {about}", subcommand.get_name());
        }
    }
    let _ = write!(help, "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    help
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    Serve(ServeArguments),
    Run(RunArguments),
    Exec(ExecArguments),
    Shell(ShellArguments),
    Attach(AttachArguments),
    Forward(ForwardArguments),
    Acp(AcpArguments),
    Mcp(McpArguments),
    ExecServer(ExecServerArguments),
    ShellWrapper(ShellWrapperArguments),
    Ps(PsArguments),
    Top(TopArguments),
    Logs(LogsArguments),
    Play(PlayArguments),
    Stop(StopArguments),
    Kill(KillArguments),
    Wait(WaitArguments),
    Rm(RmArguments),
    Close(CloseArguments),
    Prune(PruneArguments),
    Approvals(ApprovalsArguments),
    Audit(AuditArguments),
    Doctor(DoctorArguments),
    Reap(ReapArguments),
    Init(InitArguments),
    /// Check, test and explain policies, and show the active one
    #[command(subcommand, after_help = "Example:\n  provost policy explain -- git push --force")]
    Policy(PolicyCommand),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

impl CliCommand {
    /// Reads a command line, of which the first word is the program.
    pub(super) fn parse(words: Vec<OsString>) -> Result<Self, clap::Error> {
        match Self::parse_alone(&words) {
            Some(command) => Ok(command),
            None => {
                let matches = command().try_get_matches_from(words)?;
                let line = CommandLine::from_arg_matches(&matches);
                line.map(|line| line.command).map_err(|error| error.format(&mut command()))
            }
        }
    }

    /// The commands that an agent calls for each of its lines, read without the tree of all commands, which takes longer to build than
    /// they run. `None`: the whole tree has to read the line, or to say what is wrong with it.
    fn parse_alone(words: &[OsString]) -> Option<Self> {
        let [_, name, ..] = words else { return None };
        match name.to_str()? {
            "run" => alone("run", words).map(Self::Run),
            "exec" => alone("exec", words).map(Self::Exec),
            "shell-wrapper" => alone("shell-wrapper", words).map(Self::ShellWrapper),
            _ => None,
        }
    }

    /// Whether it only talks to a gateway that another process serves.
    pub(super) fn needs_no_threads(&self) -> bool {
        match self {
            Self::ShellWrapper(_) | Self::Exec(_) => true,
            Self::Run(arguments) => {
                let gateway = &arguments.gateway;
                !gateway.is_embedded() && !arguments.detach && names_gateway(gateway.named())
            }
            _ => false,
        }
    }
}

/// The arguments of one subcommand, if they are right.
fn alone<A: Args + FromArgMatches>(name: &'static str, words: &[OsString]) -> Option<A> {
    let command = without_empty_variables(A::augment_args(Command::new(name)).no_binary_name(true));
    let matches: ArgMatches = command.try_get_matches_from(&words[2..]).ok()?;
    A::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_commands(command: clap::Command) -> Vec<clap::Command> {
        let below = command.get_subcommands().cloned().flat_map(all_commands).collect::<Vec<_>>();
        std::iter::once(command).chain(below).collect()
    }

    #[test]
    fn the_arguments_are_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in CommandLine::command().get_subcommands() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(text.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let tree = CommandLine::command();
        let mut there: Vec<&str> = tree.get_subcommands().map(Command::get_name).collect();
        let mut listed: Vec<&str> = HELP_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        there.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, there);
        let help = command().render_help().to_string();
        for subcommand in tree.get_subcommands() {
            let about = subcommand.get_about().expect("it has a help text").to_string();
            let start = format!("  {} ", subcommand.get_name());
            let line = help.lines().find(|line| line.starts_with(&start) && line.ends_with(&about));
            assert!(line.is_some_and(|line| line.len() <= 100), "{start}: {help}");
        }
        assert!(help.contains("\nOptions:\n  -h, --help") && help.contains("Example:"), "{help}");
    }

    #[test]
    fn every_option_and_every_command_has_a_help_text() {
        for command in all_commands(CommandLine::command()) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn a_command_that_is_read_alone_means_what_it_means_in_the_tree() {
        let all = [
            "run true",
            "run -- sh -c x --help",
            "run --gateway unix:/g --root / -w a --ro /usr -e A=1 -l b=c --timeout 3s --idle 1m -- make -j",
            "run -dt --session s --on-ask wait x",
            "run --policies /p --journal /j x",
            "exec -it --gateway unix:/g sess_1 -- sh -l",
            "exec -e A -w /x s x -e",
            "shell-wrapper -c x",
            "shell-wrapper --gateway unix:/g --profile p --root /a --root /b --env A,B --shell sh -- -lc x",
            "shell-wrapper",
        ];
        for line in all {
            let words: Vec<OsString> =
                ["provost"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let alone = CliCommand::parse_alone(&words).unwrap_or_else(|| panic!("it is read: {line}"));
            let in_tree = CommandLine::try_parse_from(words).expect("so it is there").command;
            assert_eq!(format!("{alone:?}"), format!("{in_tree:?}"));
        }
    }

    #[test]
    fn help_and_mistakes_are_left_to_the_tree() {
        for line in [
            "",
            "run",
            "run --help",
            "run -h",
            "run --hepl x",
            "run --timeout never x",
            "exec s",
            "exec --version",
            "shell-wrapper --help",
            "help run",
            "--help run",
            "ps",
            "--version",
        ] {
            let words: Vec<OsString> =
                ["provost"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            assert!(CliCommand::parse_alone(&words).is_none(), "{line}");
        }
    }

    #[test]
    fn a_command_needs_no_double_dash_and_is_needed() {
        assert!(CommandLine::try_parse_from(["provost", "run", "true", "--report", "x"]).is_ok());
        assert!(CommandLine::try_parse_from(["provost", "run"]).is_err());
        assert!(CommandLine::try_parse_from(["provost", "run", "--"]).is_err());
        assert!(CommandLine::try_parse_from(["provost", "run", "--", "true", "--report", "x"]).is_ok());
    }
}
