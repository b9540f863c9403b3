//! By which front end a session was opened: a label of the session, which the journal records with it.
//!
//! It is the caller's claim, as all labels are: rules may restrict by it, and never grant. A session that a program opened
//! over gRPC itself has no such label.

/// The name of the label.
pub const FRONT_END_LABEL: &str = "front_end";

/// A front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontEnd {
    /// `provost run`.
    Cli,
    /// `provost acp`, and programs that embed its terminals.
    Acp,
    /// `provost mcp`.
    Mcp,
}

impl FrontEnd {
    /// The label that a session opened by it has.
    pub fn label(self) -> (String, String) {
        let value = match self {
            Self::Cli => "cli",
            Self::Acp => "acp",
            Self::Mcp => "mcp",
        };
        (FRONT_END_LABEL.to_owned(), value.to_owned())
    }
}
