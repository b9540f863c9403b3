//! The `provost` command: dispatch, and nothing else.
//!
//! The gateway starts sandboxes by executing this same file under another name. That path must reach neither
//! clap nor tokio: it clones namespaces, and a thread or a runtime would be in the way.

use std::process::ExitCode;

use provost::{cli, supervisor};

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == supervisor::PROCESS_NAME) {
        supervisor::main()
    }
    cli::main()
}
