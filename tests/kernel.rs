//! What Provost makes of the kernel, below the API: set-up, the exec gate, a launch's system calls, the journal's files.

use provost_test_support as support;

support::test_program!();

mod audit;
mod exec_gate;
mod launching;
mod setup;
