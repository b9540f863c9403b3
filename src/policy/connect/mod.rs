//! Rules about connections: what a sandbox with the network `proxy` may reach.
//!
//! The same files, the same order: deny over ask over allow, and what no rule matches is denied. `connect_decision` decides by them.

mod credential;
mod request;
mod rule;
mod source;

pub use credential::CredentialError;
pub use request::{Approved, ConnectRequest, DialTarget};
pub use rule::{ConnectRule, ConnectRuleError};
pub use source::{ConnectSource, ConnectWhen, Credential, SECRET_PLACE, TlsHandling, Tunnel};
