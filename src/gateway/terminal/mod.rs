//! Terminals: one command each, from request to release.
//!
//! The files of this directory and its directories import one another in one direction. From the lowest to the highest:
//! the plain types here, `secrets`, `records`, `recorder`, `errors` and `counters`, `state` and what is in it, `registry`, `output`,
//! `control`, `connections`, `execs` and `screens`, `terminals` with the parts of all terminals, the steps of one from its creation to its
//! release, and `shells`.

#![forbid(unsafe_code)]

mod adopt;
mod approvals;
mod connections;
mod control;
mod counters;
mod create;
mod end;
mod errors;
mod execs;
mod kept_shell;
mod live;
mod metadata;
pub(crate) mod outcome;
pub(crate) mod output;
mod permit;
pub(crate) mod quotas;
mod recorder;
pub(crate) mod records;
mod registry;
pub(crate) mod run;
mod screens;
pub(crate) mod secrets;
mod sessions;
mod shells;
mod spec;
mod stage;
mod state;
pub(crate) mod terminal_log;
mod terminals;
mod workspace;

pub(crate) use adopt::{SandboxStatuses, UncheckedSandboxes};
pub(crate) use approvals::approval_observer;
pub(crate) use control::Traffic;
pub(crate) use control::{EndOfInput, Forwarded};
pub(crate) use counters::{CloseReason, CountedCause};
pub(crate) use errors::{
    ApprovalError, CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError,
    RunLineError, ScreenAccessError, TerminalReleased,
};
pub use quotas::Quotas;
pub(crate) use quotas::{MAX_QUEUED_LINES, QuotaReached, QuotaUsage};
pub(crate) use recorder::{RecordedExits, Recorder, Unrecorded};
pub(crate) use registry::WaiterGuard;
pub(crate) use secrets::command_secrets::SecretError;
pub(crate) use shells::run_line::ShellStatus;
pub(crate) use shells::run_line::{NewLine, ShellActivity, WhenBusy};
pub(crate) use shells::running_line::{FollowLineError, LineEvent, RunningLine};
pub(crate) use shells::running_line::{LineDoubt, LineEnd, LineEnding};
pub(crate) use spec::{Channel, OnAsk, Requested, TerminalId};
pub(crate) use spec::{ReaderKind, WhenLeft};
pub(crate) use stage::Stage;
pub(crate) use state::AttachedGuard;
pub(crate) use state::Terminal;
pub(crate) use terminals::Terminals;
