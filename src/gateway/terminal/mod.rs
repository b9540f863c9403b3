//! Terminals: one command each, from request to release.
//!
//! The files of this directory and its directories import one another in one direction. From the lowest to the highest:
//! the plain types here, `secrets`, `audit`, `errors`, `refusal` and `counters`, `state`, `output`,
//! `connections` and `execs`, the context of all terminals, the steps of one from its creation to its release, and `shells`.

#![forbid(unsafe_code)]

mod adopt;
mod approve;
mod audit;
mod channel;
mod close_session;
mod connections;
mod context;
mod control;
mod counters;
mod create;
mod errors;
mod evaluation;
mod execs;
mod explain;
mod forward;
mod id;
mod new_request;
mod open_session;
mod output;
mod quotas;
mod refusal;
mod release;
mod resolve_approval;
pub mod run;
mod run_to_completion;
mod screens;
mod secrets;
mod shells;
mod shutdown;
mod spec;
mod state;
mod steps;
mod terminals;
mod when_left;

pub use adopt::{AdoptError, SandboxStatuses, UncheckedSandboxes};
pub use audit::{
    recorder::{RecordedExits, Recorder, Unrecorded},
    records, session_records,
};
pub use channel::Channel;
pub use control::EndOfInput;
pub use counters::{CloseReason, CountedCause, CreateTimings, TerminalCounters};
pub use errors::{
    ApprovalError, CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError,
    RunLineError, ScreenAccessError, TerminalReleased,
};
pub use forward::{Forwarded, Traffic};
pub use id::TerminalId;
pub use new_request::NewRequest;
pub use output::reader;
pub use quotas::{MAX_QUEUED_LINES, QuotaKind, QuotaReached, QuotaScope, Quotas};
pub use refusal::LimitName;
pub use resolve_approval::approval_observer;
pub use secrets::command_secrets::{SecretError, SecretFault};
pub use shells::{
    line_end::{LineDoubt, LineEnd, LineEnding},
    run_line::{NewLine, ShellActivity, ShellStatus, WhenBusy},
    running_line::{FollowLineError, LineEvent, RunningLine},
};
pub use spec::{Backpressure, CommandForm, OnAsk, ReaderKind, TerminalSpec, TimeLimits, WhenLeft};
pub use state::{
    live::Live,
    metadata::MetadataError,
    outcome,
    pty::AttachedGuard,
    quota_tracker::QuotaUsage,
    stage::Stage,
    terminal::Terminal,
    terminal_log,
    waiters::{WaiterGuard, Waiters},
};
pub use terminals::Terminals;
