//! The `provost` command: dispatch, and nothing else.
//!
//! The gateway starts sandboxes and their screens by executing this same file under another name, and `provost acp` starts its agent's
//! subreaper so. Those paths must reach neither clap nor tokio: they must not have threads or a runtime.

use std::process::ExitCode;

use provost::{cli, net, screen, subreaper, supervisor};

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if name == supervisor::PROCESS_NAME => supervisor::main(),
        Some(name) if name == screen::PROCESS_NAME => screen::main(),
        Some(name) if name == subreaper::PROCESS_NAME => subreaper::main(),
        Some(name) if name == net::PROCESS_NAME => net::main(),
        Some(name) if cli::is_shell_name(&name) => cli::shell_main(),
        Some(_) | None => cli::main(),
    }
}
