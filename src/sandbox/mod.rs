//! The gateway's side of a sandbox: plan, launch, control.

pub mod adopt;
pub mod cgroup;
pub mod control;
pub mod counters;
pub mod facts;
mod group_trials;
pub mod groups;
pub mod handle;
pub mod host;
pub mod identity;
pub mod launch;
pub mod launch_error;
pub mod leftover;
mod prepare;
pub mod programs;
pub mod protected;
mod remains;
pub mod requests;
pub mod roots;
mod script;
pub mod seccomp;
mod spare;
pub mod spawn_error;
pub mod spawn_request;
pub mod spec;
mod trials;
pub mod view;
