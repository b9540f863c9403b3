//! The top of the command line: the program and its subcommands, from which help, completions and man pages are made.

use clap::{Parser, Subcommand};

use super::{
    agent::{acp_conformance::AcpConformanceArguments, exec_server::ExecServerArguments, mcp::McpArguments},
    approvals::ApprovalsArguments,
    audit::audit::AuditArguments,
    gateway_link::connection::names_gateway,
    host::manual::{CompletionsArguments, ManArguments},
    policy::{init::InitArguments, policy::PolicyCommand},
    request::{
        arguments::{AcpArguments, DoctorArguments, ReapArguments, RunArguments, ServeArguments},
        terminal_arguments::{
            CloseArguments, KillArguments, LogsArguments, PruneArguments, PsArguments, RmArguments,
            StopArguments, WaitArguments,
        },
    },
    run::exec::ExecArguments,
    shell::{shell::ShellArguments, shell_wrapper::ShellWrapperArguments},
    terminal::{
        attach::AttachArguments, forward::ForwardArguments, record::PlayArguments, top::TopArguments,
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
    after_help = "Example:\n  provost run -- make test"
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

/// The subcommands, in the order in which help lists them.
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
    AcpConformance(AcpConformanceArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

impl CliCommand {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
    fn every_option_and_every_command_has_a_help_text() {
        for command in all_commands(CommandLine::command()) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
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
