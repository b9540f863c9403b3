//! Rules about connections: what a sandbox with the network `proxy` may reach.
//!
//! The same files, the same order: deny over ask over allow, and what no rule matches is denied. A name is judged before it is
//! resolved, and each address that it has is judged before it is dialled. An address that is not public needs a rule that names it.

mod decision;
mod request;
mod rule;
mod source;

pub use decision::{ADDRESS_RULE, ConnectDecision, ConnectReason, NAME_RULE};
pub use request::{Approved, ConnectRequest, DialTarget};
pub use rule::{ConnectRule, ConnectRuleError};
pub use source::{ConnectSource, ConnectWhen, Tunnel};
