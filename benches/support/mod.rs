//! What the benchmarks share: the gateway under measurement, the machine's facts, the statistics.
//!
//! Measures nothing itself.

pub(crate) mod gateway;
pub(crate) mod machine;
pub(crate) mod peers;
pub(crate) mod statistics;

use std::env;

provost_test_support::test_program!();

/// The numbers of the command line, `--NAME N`, with their defaults.
pub(crate) fn number(name: &str, default: usize) -> usize {
    let option = format!("--{name}");
    env::args()
        .skip_while(|argument| *argument != option)
        .nth(1)
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Whether cargo was asked to measure. `cargo test --all-targets` runs benchmarks too, and means something else.
pub(crate) fn asked_to_measure() -> bool {
    let asked = env::args().any(|argument| argument == "--bench");
    if !asked {
        println!("SKIPPED: a benchmark, run by `cargo bench`");
    }
    asked
}
