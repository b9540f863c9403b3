//! What a gateway does with commands over time, through its public API: output, approvals, execs, terminals, the journal, restarts.

use provost_test_support as support;

support::test_program!();

mod approvals;
mod gate;
mod interactive;
mod journaled;
mod metrics;
mod output;
mod policy;
mod restart;
mod screen;
mod secrets;
mod soak;
