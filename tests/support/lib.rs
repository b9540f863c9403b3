//! The harness of the black-box suites: the real binary in a directory of its own, real gRPC clients, attack
//! programs compiled on the spot, and the host's view of it all.
//!
//! It knows the public API and the host's /proc, and nothing of Provost's insides: what these suites say of
//! Provost must be true for a stranger. A program of tests or a benchmark has this at its root:
//!
//! ```ignore
//! use provost_test_support as support;
//!
//! support::test_program!();
//! ```

mod caller;
mod gateway;
mod group;
mod host;
mod peers;
mod programs;
mod session;
pub mod stdin_scripts;

use std::{
    future::Future,
    io::{Write, stderr},
    time::{Duration, Instant},
};

pub use caller::{Caller, Refusal};
pub use gateway::{
    FIRST_SUBORDINATE, Gateway, Options, add_rule, deny_touch, offer_hosts_network, require_gate,
};
pub use group::TestGroup;
pub use host::{
    Footprint, Mounted, Process, mark, sleepers, sleeping, wait_for_sessions_end, wait_for_sleepers,
};
pub use peers::{Model, Person, StdioServer, directory_with_workspace};
pub use programs::{Attack, acp_conformance, built_by_cargo, copy_provost, lacks, run_outside};
#[doc(hidden)]
pub use programs::{Built, begin};
/// The generated types of the public API.
pub use provost_proto::v1 as api;
pub use session::{
    Collected, Command, EndOfInput, Finished, Follow, Pattern, RunResult, Session, Terminal, api_duration,
    code, in_session, new_workspace, seconds, signal_name,
};

/// How long anything may take on a loaded machine before a test gives up. No timing is asserted by it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Looks again and again until `seen` answers, and fails with `what` at the deadline: no wait is a sleep for luck, and each says
/// what it waits for.
pub async fn eventually<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = seen() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Awaits `future`, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(answer) => answer,
        Err(_) => panic!("waited {DEADLINE:?} in vain for: {what}"),
    }
}

/// Says loudly that a test cannot be had on this host; fails instead where a CI host must have it.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // Past the standard library's harness, which shows what a test prints only when it fails.
    let _ = writeln!(stderr(), "SKIPPED: {name}: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped where CI must have it: {why}");
}

/// Whether the tests run as root, with whom they can be other principals.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
