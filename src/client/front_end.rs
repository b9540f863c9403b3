//! By which front end a session was opened: a field of the session, which the journal records with it and with each decision.
//!
//! It is the caller's claim, which the gateway does not check. The label of the same name is for rules, which may restrict by it and never
//! grant. A session that a program opened over gRPC itself has the field `grpc`, and no such label.

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
    /// `provost shell-wrapper`.
    Shell,
}

impl FrontEnd {
    /// The label that a session opened by it has.
    pub fn label(self) -> (String, String) {
        (FRONT_END_LABEL.to_owned(), self.name())
    }

    /// What a session opened by it has in its field `front_end`.
    pub fn name(self) -> String {
        let name = match self {
            Self::Cli => "cli",
            Self::Acp => "acp",
            Self::Mcp => "mcp",
            Self::Shell => "shell",
        };
        name.to_owned()
    }
}
