//! Rules about connections: what a sandbox with the network `proxy` may reach.
//!
//! The same files, the same order: deny over ask over allow, and what no rule matches is denied. `connect_decision` decides by them.

mod credential;
mod request;
mod rule;
mod rule_error;
mod source;

pub use credential::CredentialError;
pub use request::{Approved, ConnectRequest, ConnectingProgram, DialTarget, SocketRequest};
pub use rule::ConnectRule;
pub use rule_error::ConnectRuleError;
pub use source::{ConnectSource, ConnectWhen, Credential, SECRET_PLACE, TlsHandling, Tunnel};
