//! The `provost-sandbox` command: the processes of sandboxes. `provost` starts it, and nobody else does.

use std::process::ExitCode;

fn main() -> ExitCode {
    provost_sandbox::main()
}
