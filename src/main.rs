//! The `provost` command: dispatch, and nothing else.
//!
//! The gateway starts sandboxes by executing this same file under another name. That path must reach neither
//! clap nor tokio: it clones namespaces, and a thread or a runtime would be in the way.

use std::process::ExitCode;

fn main() -> ExitCode {
    provost::cli::main()
}
