//! The gate: a process next to each sandbox that evaluates every exec in it.
//!
//! It answers the notifications of the sandbox's filter by the policy, and compares at the exec what is executed with what was
//! evaluated. It executes nothing, changes nothing in the sandbox but the modes of directories (`caller`), and ends with the supervisor.
//!
//! Types stand below the files that act on them: `process`, `lookup`, `exec_call`, `reading`, `terminals`, `verdicts`,
//! `refusals`, `reports`, then `state`, then one file for each concern.

mod asking;
mod connection;
mod evaluation;
mod event_loop;
mod exec_call;
mod filter;
mod gateways;
mod judging;
mod lookup;
mod memory;
mod policy_state;
mod process;
mod reading;
mod refusals;
mod reporting;
mod reports;
mod setup;
mod start;
mod state;
mod terminals;
mod verdicts;
mod verifying;

use std::process::exit;

pub use start::{GateStart, SetupFailure};
use state::Gate;

use crate::sys::seccomp;

/// Exit codes: the set-up failed and was reported; the launcher is gone.
const EXIT_SETUP_FAILED: i32 = 80;
const EXIT_LAUNCHER_GONE: i32 = 81;

/// The steps of the set-up that make the event loop and give up all other system calls; those of [`setup`] come before them.
const LOOP_STEP: usize = 24;
const FILTER_STEP: usize = 25;

/// Sets the gate up, reports that, and evaluates execs until the sandbox ends.
pub fn run(mut start: GateStart<'_>) -> ! {
    let entered = setup::enter(&mut start);
    let GateStart { sandbox_id, has_cgroups, socket, listener, report, encode, .. } = start;
    let ready = entered.and_then(|descriptors| {
        let identity = (sandbox_id.to_owned(), has_cgroups);
        Gate::new(identity, socket, listener, descriptors)
            .map_err(|errno| SetupFailure { index: LOOP_STEP, errno })
    });
    let ready = ready.and_then(|gate| {
        let installed = seccomp::install(&filter::program());
        installed.map(|()| gate).map_err(|errno| SetupFailure { index: FILTER_STEP, errno })
    });
    let outcome = encode(ready.as_ref().map(drop).map_err(|failure| *failure));
    let reported = nix::unistd::write(&report, &outcome).is_ok();
    drop(report);
    match ready {
        Ok(gate) if reported => gate.run(),
        Ok(_) => exit(EXIT_LAUNCHER_GONE),
        Err(_) => exit(EXIT_SETUP_FAILED),
    }
}
