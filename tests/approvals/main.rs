//! The approvals suite: requests that a rule asks a person about, the answers, and the policy that asks.

#[path = "../support/mod.rs"]
mod support;

mod adverse;
mod command_line;
mod desk;
#[path = "../journaled/disk.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod disk;
mod people;
mod posted;
mod recorded;
mod reload;
mod waiting;
