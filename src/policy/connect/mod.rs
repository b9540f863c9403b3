//! Rules about connections: what a sandbox with the network `proxy` may reach.
//!
//! The same files, the same order: deny over ask over allow, and what no rule matches is denied. `connect_decision` decides by them.

mod request;
mod rule;
mod source;

pub use request::{Approved, ConnectRequest, DialTarget};
pub use rule::{ConnectRule, ConnectRuleError};
pub use source::{ConnectSource, ConnectWhen, Tunnel};
