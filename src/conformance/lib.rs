//! The conformance suite for ACP terminal backends: numbered cases that anyone can run against any ACP client.
//!
//! It plays the agent and asks the client under test for terminals. With a backend command it plays the editor too,
//! on the backend's other side; without one it is an agent that any editor can start, and it runs its cases at a
//! prompt. It knows the protocol from its specification only: it imports nothing of Provost but `base` (streams,
//! system calls, text that is printed) and none of the shim's code for the protocol, so that a mistake cannot be made
//! twice in the same way.

#![forbid(unsafe_code)]

use provost_base::{stdio, sys};

mod backend;
mod case;
mod cases;
mod context;
mod fault;
mod fifo_probe;
mod in_editor;
mod peer;
mod peer_record;
mod relay;
mod report;
mod roles;
mod suite;

pub use case::{Case, Level};
pub use in_editor::run_in_editor;
pub use relay::relay;
pub use suite::{ANSWER_TIMEOUT, Selection, all_cases, run_against};
