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
pub mod outcome;
pub mod output;
mod permit;
mod quotas;
mod recorder;
pub mod records;
mod registry;
pub mod run;
mod screens;
mod secrets;
mod sessions;
mod shells;
mod spec;
mod stage;
mod state;
pub mod terminal_log;
mod terminals;
mod workspace;

pub use adopt::{AdoptError, SandboxStatuses, UncheckedSandboxes};
pub use approvals::approval_observer;
pub use control::{EndOfInput, Forwarded, Forwards, Traffic};
pub use counters::{CloseReason, CountedCause, CreateTimings, TerminalCounters};
pub use errors::{
    ApprovalError, CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError,
    RunLineError, ScreenAccessError, TerminalReleased,
};
pub use live::Live;
pub use metadata::MetadataError;
pub use quotas::{LimitName, MAX_QUEUED_LINES, QuotaReached, QuotaTracker, QuotaUsage, Quotas};
pub use recorder::{RecordedExits, Recorder, Unrecorded};
pub use registry::{Registry, WaiterGuard, Waiters};
pub use screens::Screens;
pub use secrets::command_secrets::{SecretError, SecretFault};
pub use shells::{
    run_line::{NewLine, ShellActivity, ShellStatus, WhenBusy},
    running_line::{FollowLineError, LineDoubt, LineEnd, LineEnding, LineEvent, RunningLine},
};
pub use spec::{
    Backpressure, Channel, CommandForm, OnAsk, ReaderKind, Requested, TerminalId, TerminalSpec, TimeLimits,
    WhenLeft,
};
pub use stage::Stage;
pub use state::{AttachedGuard, Terminal};
pub use terminals::Terminals;
