//! What Provost makes of the kernel, below the API: set-up, the exec gate, a launch's system calls, the journal's files.

#[path = "support/attack.rs"]
#[allow(dead_code)]
mod attack;
#[path = "support/mounted.rs"]
mod mounted;
#[path = "support/process_state.rs"]
mod process_state;

mod audit;
mod exec_gate;
mod launching;
mod setup;
