//! Terminals: one command each, from request to release.

#![forbid(unsafe_code)]

mod adopt;
mod approval_records;
mod asking;
mod backpressure;
pub mod closing;
mod control;
mod counters;
mod creating;
mod deadlines;
mod driver;
mod errors;
mod evaluation;
mod id;
mod metadata;
pub mod opening;
pub mod outcome;
mod quota_tracker;
mod quotas;
pub mod reader;
pub mod receipt;
mod record_limiter;
mod recorder;
pub mod records;
mod redact;
mod redacted_ring;
mod redactor;
mod refusal;
mod releasing;
mod repeat_counts_file;
pub mod run;
mod run_to_completion;
mod secrets;
mod shutdown;
pub mod signal;
mod spec;
mod stage;
#[expect(clippy::module_inception, reason = "the directory is about terminals, the file about one")]
mod terminal;
pub mod terminal_log;
mod terminals;
mod waiters;
mod workspace;

pub use adopt::{AdoptError, SandboxStatuses, UncheckedSandboxes};
pub use asking::{ApprovalError, OnAsk, ResolveApprovalError, approval_observer};
pub use backpressure::{Backpressure, ReaderKind};
pub use control::EndOfInput;
pub use counters::{CreateTimings, TerminalCounters};
pub use creating::NewRequest;
pub use errors::{CreateError, OperationError, TerminalReleased};
pub use id::TerminalId;
pub use metadata::MetadataError;
pub use quota_tracker::{QuotaKind, QuotaReached, QuotaScope, QuotaUsage};
pub use quotas::Quotas;
pub use recorder::{RecordedExits, Recorder, Unrecorded};
pub use refusal::{CreateRefusal, LimitName, SessionRefusal};
pub use secrets::{SecretError, SecretFault};
pub use spec::{CommandForm, TerminalSpec, TimeLimits};
pub use stage::Stage;
pub use terminal::{Live, Terminal};
pub use terminals::Terminals;
pub use waiters::{WaiterGuard, Waiters};
