//! Terminals: one command each, from request to release.

#![forbid(unsafe_code)]

mod adopt;
mod approval_records;
mod asking;
mod attendance;
mod caps;
pub mod closing;
mod counters;
mod counts_file;
mod covering;
mod creating;
mod driver;
mod enforcing;
mod errors;
mod holds;
mod id;
mod judging;
mod keepsake;
mod known_secrets;
mod leaving;
mod masked;
pub mod opening;
pub mod outcome;
mod quota;
pub mod reader;
pub mod receipt;
mod recorder;
pub mod records;
mod refusals;
mod releasing;
pub mod roll;
pub mod run;
mod secrets;
pub mod signal;
mod stage;
mod steering;
mod summary;
#[expect(clippy::module_inception, reason = "the folder is about terminals, the file about one")]
mod terminal;
mod terminals;
mod turned_away;
mod uninterrupted;
mod workspace;

pub use adopt::{AdoptError, Fates, Others};
pub use asking::{AnswerError, OnAsk, Unapproved, witness};
pub use attendance::{Attendance, Attending};
pub use caps::Caps;
pub use counters::{Counters, Steps};
pub use creating::NewRequest;
pub use errors::{AskError, CreateError, Gone};
pub use holds::{Audience, Waits};
pub use id::TerminalId;
pub use keepsake::KeepsakeError;
pub use quota::{Counts, Kind, QuotaReached, Scope};
pub use recorder::{Recorder, Unrecorded, WrittenEnds};
pub use secrets::{SecretError, SecretFault};
pub use stage::Stage;
pub use steering::EndOfInput;
pub use summary::{Form, Summary, TimeLimits};
pub use terminal::{Live, Terminal};
pub use terminals::Terminals;
pub use turned_away::{Limit, NotOpened, TurnedAway};
