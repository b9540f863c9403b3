//! Policy: which commands may run, and confined how. Pure but for [`resolve`], which finds files, and [`certificate`], which
//! makes keys: the rest has no input or output and no clock. It has no unsafe code.
//!
//! [`PolicySet`] is what the policy files say. [`PolicySet::evaluate`] holds a complete [`Request`] against it, and
//! [`Evaluation::decide`](evaluate::Evaluation::decide) makes the [`Permit`] without which nothing is started, or a [`Denial`].
//! Callers read the policy files and pass their texts.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod network;
pub mod resolve;
pub mod ssh_agent;

use provost_base::{byte_text, printable};

mod active;
mod approval;
pub mod cache;
mod check;
pub mod command;
pub mod connect;
pub mod connect_decision;
mod denial;
pub mod diagnostics;
pub mod duration;
pub mod environment;
mod evaluate;
mod exec_gate;
mod exec_spec;
pub mod explain;
pub mod format;
pub mod implied_variables;
mod load;
mod path;
pub mod presets;
pub mod profile;
mod request;
mod rule_warnings;
pub mod schema;
mod search_path;
mod set;
pub mod suite;
pub mod toolchain;
pub mod variables;
pub mod workspace_files;

pub use active::{ActivePolicy, FailedLoad, LoadOutcome};
pub use approval::{ApprovalGrant, ApprovalQuestion, ApprovedCommand, ApprovedFile, AskedCommand};
pub use denial::Denial;
pub use diagnostics::PolicyFileError;
pub use evaluate::{EvaluationTrace, Permit, ProfileResolvers, check_session};
pub use exec_gate::{ExecDecision, ExecRequest, ExecVerdict, executed_path};
pub use exec_spec::ExecSpec;
pub use load::BUILT_IN_TEXT;
pub use path::{AbsPath, PathError};
pub use profile::{ProfileName, Umask};
pub use request::{CommandSpec, OverflowMode, PtySize, PtySizeError, Request, StdinSource, StreamMode};
pub use set::{Digest, PolicySet, SecretGrant};
