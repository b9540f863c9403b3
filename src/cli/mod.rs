//! The command line: arguments in, one command done, an exit status out.
//!
//! The only part of Provost that uses `anyhow`, and the only one that talks to people. It decides nothing about
//! commands: whatever it is asked to run goes to a gateway, its own embedded one where there is no other.

use std::{process::ExitCode, time::Duration};

use clap::Parser;

mod acp;
mod acp_conformance;
mod approvals;
mod arguments;
mod asking;
mod audit;
mod audit_service;
mod connection;
mod doctor;
mod exit;
mod failure;
mod interrupts;
mod json;
mod logs;
mod policy;
mod policy_in_force;
mod reap;
mod receipt;
mod report;
mod run;
mod serve;
mod streams;
mod terminals;

use arguments::{Arguments, Command};
use failure::Failure;

use crate::gateway;

/// How long threads that cannot be cancelled (a read of the terminal) are waited for at the end.
const LAST_THREADS: Duration = Duration::from_millis(100);

/// Runs the command that the arguments name, and answers with the status that the process is to end with.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let runtime = match gateway::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::own("cannot start the runtime", error).report(),
    };
    let status = runtime.block_on(perform(arguments.command));
    runtime.shutdown_timeout(LAST_THREADS);
    match status {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

async fn perform(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Serve(arguments) => serve::serve(arguments).await,
        Command::Run(arguments) => run::run(arguments).await,
        Command::Acp(arguments) => acp::run(arguments).await,
        Command::Ps(arguments) => terminals::list(arguments).await,
        Command::Logs(arguments) => logs::logs(arguments).await,
        Command::Kill(arguments) => terminals::kill(arguments).await,
        Command::Wait(arguments) => terminals::wait(arguments).await,
        Command::Release(arguments) => terminals::release(arguments).await,
        Command::Approvals(arguments) => approvals::approvals(arguments).await,
        Command::Audit(arguments) => audit::audit(arguments).await,
        Command::Doctor(arguments) => doctor::examine(&arguments),
        Command::Reap(arguments) => reap::reap(&arguments),
        Command::AcpConformance(arguments) => acp_conformance::run(arguments).await,
        Command::Policy(command) => policy::perform(command).await,
    }
}

/// Prints help to stdout with status 0, and a mistake in the arguments to stderr with status 125: 2, which is
/// usual, is a status that commands have, and `run` and `wait` answer with their command's.
fn usage(error: &clap::Error) -> ExitCode {
    let status = if error.use_stderr() { failure::OWN } else { 0 };
    // A closed stdout or stderr leaves nobody to tell.
    let _ = error.print();
    ExitCode::from(status)
}
