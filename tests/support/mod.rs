//! The harness of the black-box suites: the real binary in a directory of its own, real gRPC clients, attack
//! programs compiled on the spot, and the host's view of it all.
//!
//! It knows the public API and the host's /proc, and nothing of Provost's insides: what these suites say of
//! Provost must be true for a stranger.

// Every suite compiles this module and uses its own part of it.
#![allow(dead_code, unused_imports)]

mod attack;
mod caller;
mod gateway;
mod group;
mod host;
mod model;
mod mounted;
mod pattern;
mod person;
mod policy;
mod process_state;
pub mod programs;
mod session;
mod sleepers;
mod status;
pub mod stdin_scripts;
mod stdio_server;
mod wait;

pub use attack::{Attack, run_outside};
pub use caller::Caller;
pub use gateway::{FIRST_SUBORDINATE, Gateway, Options};
pub use group::TestGroup;
pub use host::{Footprint, Process};
pub use model::Model;
pub use mounted::Mounted;
pub use pattern::Pattern;
pub use person::Person;
pub use policy::{add_rule, deny_touch, offer_hosts_network, require_gate};
pub use programs::{acp_conformance, built_by_cargo, copy_provost, lacks};
pub use session::{
    Collected, Command, EndOfInput, Finished, Follow, RunResult, Session, Terminal, api_duration, code,
    in_session, new_workspace, seconds, signal_name,
};
pub use sleepers::{mark, sleepers, sleeping, wait_for_sessions_end, wait_for_sleepers};
pub use status::Refusal;
pub use stdio_server::{StdioServer, directory_with_workspace};
pub use wait::{DEADLINE, eventually, within};

/// The generated types of the public API.
pub use provost::proto::v1 as api;

/// Says loudly that a test cannot be had on this host; fails instead where a CI host must have it.
pub fn skip(why: &str) {
    programs::say_skipped(why);
    assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped where CI must have it: {why}");
}

/// Whether the tests run as root, with whom they can be other principals.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
