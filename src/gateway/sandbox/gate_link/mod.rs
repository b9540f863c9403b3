//! The gateway's links to the gates: the processes that evaluate every exec in a sandbox.
//!
//! A link sends the policy, announces terminals before their commands are spawned, and passes the gate's reports on to an
//! observer, which writes them into the journal. It decides nothing and records nothing itself.

mod connection;
mod error;
mod gates;
mod link;
mod policy_frame;

pub use error::GateError;
pub use gates::Gates;
pub use link::{GateHello, GateLink, GateObserver, GateOwner};
