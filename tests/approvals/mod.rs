//! The approvals suite: requests that a rule asks a person about, the answers, and the policy that asks.

mod adverse;
mod command_line;
mod desk;
mod people;
mod posted;
mod recorded;
mod reload;
mod waiting;

use crate::journaled::disk;
