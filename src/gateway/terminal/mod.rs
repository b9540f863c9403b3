//! Terminals: one command each, from request to release.
//!
//! The files of this directory and its directories import one another in one direction. From the lowest to the highest:
//! the plain types here, `secrets`, `audit`, `errors`, `refusal` and `counters`, `state`, `output`, `use_case`.

#![forbid(unsafe_code)]

mod audit;
mod channel;
mod counters;
mod errors;
mod evaluation;
mod id;
mod output;
mod quotas;
mod refusal;
mod run_to_completion;
mod secrets;
mod spec;
mod state;
mod terminals;
mod use_case;

pub use audit::{
    recorder::{RecordedExits, Recorder, Unrecorded},
    records, session_records,
};
pub use channel::Channel;
pub use counters::{CloseReason, CountedCause, CreateTimings, TerminalCounters};
pub use errors::{
    ApprovalError, CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError,
    RunLineError, ScreenAccessError, TerminalReleased,
};
pub use id::TerminalId;
pub use output::reader;
pub use quotas::{MAX_QUEUED_LINES, QuotaKind, QuotaReached, QuotaScope, Quotas};
pub use refusal::LimitName;
pub use secrets::command_secrets::{SecretError, SecretFault};
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
pub use use_case::{
    adopt::{AdoptError, SandboxStatuses, UncheckedSandboxes},
    control::EndOfInput,
    forward::{Forwarded, Traffic},
    line_end::{LineDoubt, LineEnd, LineEnding},
    new_request::NewRequest,
    resolve_approval::approval_observer,
    run,
    run_line::{NewLine, ShellActivity, ShellStatus, WhenBusy},
    running_line::{FollowLineError, LineEvent, RunningLine},
};
