//! The `provost` command: dispatch, and nothing else.

use std::process::ExitCode;

use provost::cli;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if cli::is_shell_name(&name) => cli::shell_main(),
        Some(_) | None => cli::main(),
    }
}
