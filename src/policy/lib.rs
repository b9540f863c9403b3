//! Policy: which commands may run, and confined how. Pure: no input or output, no clock, no unsafe code.
//!
//! [`PolicySet`] is what the policy files say. [`PolicySet::evaluate`] holds a complete [`Request`] against it, and
//! [`Evaluation::decide`] makes the [`Permit`] without which nothing is started, or a [`Denial`]. This module never reads
//! files and never asks the kernel.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod network;
pub mod resolve;
pub mod ssh_agent;

use provost_base::{byte_text, printable};

mod active;
mod apply_rules;
mod approval;
mod approved_command;
mod build_spec;
pub mod cache;
mod caller_checks;
mod check;
pub mod command;
pub mod connect;
pub mod connect_decision;
mod connect_socket;
mod connect_wanted;
mod denial;
mod digest;
pub mod duration;
pub mod environment;
mod evaluate;
pub mod exec_gate;
mod exec_spec;
pub mod explain;
mod file_error;
pub mod format;
pub mod implied_variables;
mod load;
mod path;
mod permit;
pub mod presets;
pub mod profile;
mod protection_lists;
mod request;
mod request_digest;
mod rule_warnings;
pub mod schema;
mod search_path;
mod secret;
mod set;
pub mod suite;
pub mod toolchain;
mod umask;
pub mod variables;
pub mod warning;
pub mod workspace_files;

pub use active::{ActivePolicy, FailedLoad, LoadOutcome, LoadStatus};
pub use approval::{ApprovalGrant, ApprovalQuestion, AskedCommand};
pub use approved_command::{ApprovedCommand, ApprovedFile};
pub use caller_checks::check_session;
pub use denial::Denial;
pub use digest::Digest;
pub use evaluate::{Evaluation, EvaluationTrace, ProfileResolvers};
pub use exec_gate::{ExecDecision, ExecRequest, ExecVerdict};
pub use exec_spec::ExecSpec;
pub use file_error::PolicyFileError;
pub use load::{BUILT_IN_TEXT, MAX_RULES};
pub use path::{AbsPath, PathError};
pub use permit::Permit;
pub use profile::ProfileName;
pub use request::{CommandSpec, OverflowMode, PtySize, PtySizeError, Request, StdinSource, StreamMode};
pub use secret::{SecretGrant, SecretSource};
pub use set::{PolicySet, PolicyText};
pub use umask::{Umask, UmaskError};
pub use warning::RuleLocation;
