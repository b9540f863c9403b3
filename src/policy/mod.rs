//! Policy: what may run, where, as whom and with what. Pure: no input or output, no clock, no unsafe code.
//!
//! [`PolicySet`] is what the policy files say; [`judge`] holds a complete [`Request`] against it and mints the
//! [`Permit`] without which nothing can be spawned. This module refuses to read files and to ask the kernel.

#![forbid(unsafe_code)]

mod active;
mod approval;
mod check;
pub mod command;
mod denial;
pub mod duration;
pub mod environment;
pub mod explain;
mod file_error;
mod judge;
mod load;
mod path;
mod permit;
pub mod profile;
mod protection_lists;
mod request;
pub mod schema;
mod secret;
mod set;
pub mod suite;
pub mod variables;
pub mod workspace_files;

pub use active::{ActivePolicy, FailedLoad, LoadOutcome, LoadStatus};
pub use approval::{ApprovalGrant, ApprovalQuestion};
pub use denial::Denial;
pub use file_error::PolicyFileError;
pub use judge::{
    Evaluation, EvaluationTrace, ProfileResolvers, check_session, evaluate, judge, judge_with_minutes,
};
pub use load::MAX_RULES;
pub use path::{AbsPath, PathError};
pub use permit::{Digest, ExecSpec, Permit};
pub use request::{CommandSpec, OverflowMode, Request, StdinSource, StreamMode};
pub use secret::{SecretGrant, SecretSource};
pub use set::{PolicySet, ProfileName, RuleLocation};
