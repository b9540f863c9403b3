//! The command line: it parses the arguments, performs one subcommand and returns an exit status.
//!
//! It decides nothing about commands: it hands them to a gateway, or to an embedded one if no gateway runs. It is the only
//! module that uses `anyhow`.
//!
//! The directories import one another in one direction. From the lowest to the highest: `console`, `gateway_link`, `request`, `run`,
//! `shell`; then those of the other commands, none of which imports another.

use std::{
    env,
    ffi::OsStr,
    panic,
    path::Path,
    process::{self, ExitCode},
    time::Duration,
};

use clap::{Args as _, CommandFactory, FromArgMatches as _};

mod agent;
mod approvals;
mod audit;
mod command_line;
mod console;
mod gateway_link;
mod host;
mod policy;
mod request;
mod run;
mod shell;
mod terminal;

use nix::{errno::Errno, sys::signal::SigSet};

use command_line::{CliCommand, CommandLine};
use console::error::CliError;
use shell::shell_wrapper::ShellWrapperArguments;

use crate::{client, gateway, sys::signals as signals_of_system};

/// How long threads that cannot be cancelled (a read of the terminal) are waited for at the end.
const THREAD_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs the command that the arguments name, and answers with the status that the process is to end with.
pub fn main() -> ExitCode {
    client::keep_umask();
    let command = match CliCommand::parse(env::args_os().collect()) {
        Ok(command) => command,
        Err(error) => return usage(&error),
    };
    // Before there are other threads, which inherit it: our parent may have blocked the signals that end us.
    // SIG_UNBLOCK with a valid set cannot fail.
    let _ = SigSet::all().thread_unblock();
    let runtime = if command.needs_no_threads() { light_runtime() } else { started_runtime() };
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(failure) => return failure.print_and_exit(),
    };
    let status = runtime.block_on(run_command(command));
    runtime.shutdown_timeout(THREAD_SHUTDOWN_TIMEOUT);
    match status {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.print_and_exit(),
    }
}

/// Whether the program was started under the name by which it is a shell. Login shells have a dash before theirs.
pub fn is_shell_name(name: &OsStr) -> bool {
    let name = Path::new(name).file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_prefix('-').unwrap_or(name) == shell::shell_wrapper::SHELL_NAME
}

/// As [`main`], for the program as a shell: all arguments are the shell's.
pub fn shell_main() -> ExitCode {
    client::keep_umask();
    let mut words = env::args_os();
    let words = words.next().into_iter().chain(["--".into()]).chain(words);
    let command = ShellWrapperArguments::augment_args(clap::Command::new(shell::shell_wrapper::SHELL_NAME));
    let arguments = request::arguments::without_empty_variables(command)
        .try_get_matches_from(words)
        .and_then(|matches| ShellWrapperArguments::from_arg_matches(&matches));
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    // As in `main`.
    let _ = SigSet::all().thread_unblock();
    let status = light_runtime().and_then(|runtime| {
        let status = runtime.block_on(shell::shell_wrapper::run(arguments));
        runtime.shutdown_background();
        status
    });
    match status {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.print_and_exit(),
    }
}

/// A runtime on this thread, for commands that only talk to a gateway. It starts threads when something blocks.
fn light_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    signals_of_system::ignore_file_size_limit();
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| CliError::caused_by("cannot start the runtime", error))
}

/// Without threads it fails, and says so. What the system gave a moment ago it can still refuse to the runtime, which then
/// panics and hangs: the process ends before that.
fn started_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        eprintln!("provost: cannot start the threads of the runtime");
        process::exit(console::error::PROVOST_FAILED.into());
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
        CliError::caused_by("cannot start the threads of the runtime", error).with_advice(advice)
    })
}

async fn run_command(command: CliCommand) -> Result<u8, CliError> {
    match command {
        CliCommand::Serve(arguments) => host::serve::serve(arguments).await,
        CliCommand::Run(arguments) => run::run::run(arguments).await,
        CliCommand::Exec(arguments) => run::exec::exec(arguments).await,
        CliCommand::Shell(arguments) => shell::shell::shell(arguments).await,
        CliCommand::Attach(arguments) => terminal::attach::attach(arguments).await,
        CliCommand::Forward(arguments) => terminal::forward::forward(arguments).await,
        CliCommand::Acp(arguments) => agent::acp::run(arguments).await,
        CliCommand::Mcp(arguments) => agent::mcp::run(arguments).await,
        CliCommand::ExecServer(arguments) => agent::exec_server::run(arguments).await,
        CliCommand::ShellWrapper(arguments) => shell::shell_wrapper::run(arguments).await,
        CliCommand::Ps(arguments) => terminal::terminals::list(arguments).await,
        CliCommand::Top(arguments) => terminal::terminals::top(arguments).await,
        CliCommand::Logs(arguments) => terminal::logs::logs(arguments).await,
        CliCommand::Play(arguments) => terminal::record::play(arguments).await,
        CliCommand::Stop(arguments) => terminal::terminals::stop(arguments).await,
        CliCommand::Kill(arguments) => terminal::terminals::kill(arguments).await,
        CliCommand::Wait(arguments) => terminal::terminals::wait(arguments).await,
        CliCommand::Rm(arguments) => terminal::terminals::rm(arguments).await,
        CliCommand::Close(arguments) => terminal::terminals::close(arguments).await,
        CliCommand::Prune(arguments) => host::prune::prune(arguments).await,
        CliCommand::Approvals(arguments) => approvals::run(arguments).await,
        CliCommand::Audit(arguments) => audit::audit(arguments).await,
        CliCommand::Doctor(arguments) => host::doctor::examine(&arguments).await,
        CliCommand::Reap(arguments) => host::prune::reap(&arguments),
        CliCommand::Init(arguments) => policy::init::init(&arguments),
        CliCommand::Completions(arguments) => host::manual::completions(&arguments, CommandLine::command()),
        CliCommand::Man(arguments) => host::manual::man(&arguments, CommandLine::command()),
        CliCommand::Policy(command) => policy::run(command).await,
    }
}

/// Prints help to stdout with status 0, and a mistake in the arguments to stderr with status 125: 2, which is
/// usual, is a status that commands have, and `run` and `wait` answer with their command's.
fn usage(error: &clap::Error) -> ExitCode {
    let status = if error.use_stderr() { console::error::PROVOST_FAILED } else { 0 };
    match error.use_stderr() {
        // It says again what it was given.
        true => console::stdio::print_to_stderr(error.render().to_string().trim_end()),
        // A closed stdout leaves nobody to tell.
        false => drop(error.print()),
    }
    ExitCode::from(status)
}
