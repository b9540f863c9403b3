//! The approvals suite: requests that a rule asks a person about, the answers, and the policy that asks.

#[path = "../support/mod.rs"]
mod support;

mod command_line;
mod desk;
mod people;
mod posted;
mod recorded;
mod reload;
mod waiting;
