//! The command line: arguments in, one command done, an exit status out.
//!
//! The only part of Provost that uses `anyhow`, and the only one that talks to people. It decides nothing about
//! commands: whatever it is asked to run goes to a gateway, its own embedded one where there is no other.

use std::{
    panic,
    process::{self, ExitCode},
    time::Duration,
};

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
mod log_lines;
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

use nix::{errno::Errno, sys::signal::SigSet};

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
    // Before there are other threads, which inherit it: whoever started us may have blocked what we are ended by.
    // SIG_UNBLOCK with a valid set cannot fail.
    let _ = SigSet::all().thread_unblock();
    let runtime = match started_runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return failure.report(),
    };
    let status = runtime.block_on(perform(arguments.command));
    runtime.shutdown_timeout(LAST_THREADS);
    match status {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

/// Without threads it fails, and says so. What the system gave a moment ago it can still refuse to the runtime, which then
/// panics and hangs: the process ends before that.
fn started_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        eprintln!("provost: cannot start the threads of the runtime");
        process::exit(failure::OWN.into());
    }));
    let started = gateway::runtime();
    panic::set_hook(usual);
    started.map_err(|error| {
        let advice = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE) => "the limit of open files is reached: see `ulimit -n`",
            Some(_) | None => {
                "the user's or the cgroup's limit of processes and threads is reached: see `ulimit -u` and pids.max"
            }
        };
        Failure::own("cannot start the threads of the runtime", error).advise(advice)
    })
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
    match error.use_stderr() {
        // It says again what it was given.
        true => streams::print_to_stderr(error.render().to_string().trim_end()),
        // A closed stdout leaves nobody to tell.
        false => drop(error.print()),
    }
    ExitCode::from(status)
}
