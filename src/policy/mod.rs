//! Policy: what may run, where, as whom and with what. Pure: no input or output, no clock, no unsafe code.
//!
//! [`PolicySet`] is what the policy files say; [`judge`] holds a complete [`Request`] against it and mints the
//! [`Permit`] without which nothing can be spawned. This module refuses to read files and to ask the kernel.

#![forbid(unsafe_code)]

mod approval;
mod check;
pub mod command;
mod denial;
pub mod duration;
pub mod environment;
pub mod explain;
mod file_error;
mod in_force;
mod judge;
mod load;
mod path;
mod permit;
pub mod profile;
mod protections;
mod request;
pub mod schema;
mod secret;
mod set;
pub mod suite;
pub mod variables;
pub mod workspace_files;

pub use approval::{Approval, Question};
pub use denial::Denial;
pub use file_error::PolicyFileError;
pub use in_force::{InForce, Loading, Refusal, Replaced};
pub use judge::{Hearing, Minutes, Views, hear, judge, judge_session, judge_with_minutes};
pub use load::MOST_RULES;
pub use path::{AbsPath, PathError};
pub use permit::{Digest, Order, Permit};
pub use request::{Overflow, Program, Request, Stdin, Streams};
pub use secret::{Grant, SecretSource};
pub use set::{Origin, PolicySet, ProfileName};
