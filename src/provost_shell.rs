//! The `provost-shell` command: a client of a gateway in the place of a shell, and nothing else.
//!
//! `provost` under this name does the same. Most of the time that a small command takes by way of it is the start of a large program,
//! and this one is small: what only a gateway needs is not in it (docs/internals/decisions/0430).

use std::process::ExitCode;

fn main() -> ExitCode {
    provost::cli::shell_main()
}
