//! Terminals: one command each, from request to release.
//!
//! The files of this directory and its directories import one another in one direction. From the lowest to the highest:
//! the plain types here, `secrets`, `audit`, `errors`, `refusal` and `counters`, `state`, `output`, `use_case`.

#![forbid(unsafe_code)]

mod audit;
mod counters;
mod errors;
mod evaluation;
mod id;
mod output;
mod quotas;
mod refusal;
mod run_to_completion;
mod secrets;
pub mod signal;
mod spec;
mod state;
mod use_case;

pub use audit::{
    recorder::{RecordedExits, Recorder, Unrecorded},
    records,
};
pub use counters::{CreateTimings, TerminalCounters};
pub use errors::{CreateError, OperationError, TerminalReleased};
pub use id::TerminalId;
pub use output::{
    backpressure::{Backpressure, ReaderKind},
    reader,
};
pub use quotas::Quotas;
pub use refusal::{CreateRefusal, LimitName, SessionRefusal};
pub use secrets::command_secrets::{SecretError, SecretFault};
pub use spec::{CommandForm, TerminalSpec, TimeLimits};
pub use state::{
    metadata::MetadataError,
    outcome,
    quota_tracker::{QuotaKind, QuotaReached, QuotaScope, QuotaUsage},
    receipt,
    registry::Terminals,
    stage::Stage,
    terminal::{Live, Terminal},
    terminal_log,
    waiters::{WaiterGuard, Waiters},
};
pub use use_case::{
    adopt::{AdoptError, SandboxStatuses, UncheckedSandboxes},
    approve::{ApprovalError, OnAsk, ResolveApprovalError, approval_observer},
    close_session,
    control::EndOfInput,
    create::NewRequest,
    open_session, run,
};
