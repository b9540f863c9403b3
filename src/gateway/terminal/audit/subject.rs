//! The terminal, session and principal that an audit record is about.

use crate::{
    session::{Principal, SessionId},
    terminal::id::TerminalId,
};

/// A terminal, its session and its principal, by name.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The terminal.
    pub terminal: TerminalId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// The principal that owns both.
    pub principal: Principal,
}
