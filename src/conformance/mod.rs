//! The conformance suite for ACP terminal backends: numbered cases that anyone can run against any ACP client.
//!
//! It plays the agent and asks the client under test for terminals. With a backend command it plays the editor too,
//! on the backend's other side; without one it is an agent that any editor can start, and it runs its cases at a
//! prompt. It knows the protocol from its specification only: it imports nothing of Provost and nothing that is
//! shared with the shim, so that a mistake cannot be made twice in the same way.

#![forbid(unsafe_code)]

mod backend;
mod case;
mod cases;
mod editing;
mod inside;
mod lifeline;
mod peer;
mod relay;
mod report;
mod stage;
mod suite;

pub use backend::BackendError;
pub use case::{Case, Level, Needs};
pub use inside::{InsideError, run_inside_an_editor};
pub use relay::relay;
pub use report::{Report, Verdict};
pub use suite::{PATIENCE, Selection, SelectionError, all_cases, run_against};
