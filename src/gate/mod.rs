//! The gate: a process beside each sandbox that evaluates every exec in it.
//!
//! It answers the notifications of the sandbox's filter by the policy, and compares at the exec what is executed with what was
//! evaluated. It executes nothing, changes nothing in the sandbox, and ends with the supervisor.

mod setup;
mod start;

use std::process::exit;

pub use start::{GateStart, SetupFailure};

/// Exit codes: the set-up failed and was reported; the launcher is gone; the event loop ended.
const EXIT_SETUP_FAILED: i32 = 80;
const EXIT_LAUNCHER_GONE: i32 = 81;

/// Sets the gate up, reports that, and evaluates execs until the sandbox ends.
pub fn run(start: GateStart<'_>) -> ! {
    let entered = setup::enter(&start);
    let outcome = (start.encode)(entered.as_ref().map(drop).map_err(|failure| *failure));
    let reported = nix::unistd::write(&start.report, &outcome).is_ok();
    match entered {
        Ok(_) if !reported => exit(EXIT_LAUNCHER_GONE),
        Ok(descriptors) => {
            let _keep = descriptors;
            loop {
                std::thread::park();
            }
        }
        Err(_) => exit(EXIT_SETUP_FAILED),
    }
}
