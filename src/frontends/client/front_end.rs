//! By which front end a session was opened: a field of the session, which the journal records with it and with each decision.
//!
//! It is the caller's claim, which the gateway does not check. The label of the same name is for rules, which may restrict by it and never
//! grant. A session that a program opened over gRPC itself has the field `grpc`, and no such label.

use crate::proto::v1::CreateSessionRequest;

/// The name of the label.
const FRONT_END_LABEL: &str = "front_end";

/// A front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontEnd {
    /// `provost run` and `provost shell`.
    Cli,
    /// `provost acp`, and programs that embed its terminals.
    Acp,
    /// `provost mcp`.
    Mcp,
    /// `provost shell-wrapper`.
    Shell,
    /// `provost exec-server`.
    ExecServer,
}

impl FrontEnd {
    /// The request as one of this front end: with its name in the field and in the label.
    #[must_use]
    pub fn sign(self, mut request: CreateSessionRequest) -> CreateSessionRequest {
        self.name().clone_into(&mut request.front_end);
        request.labels.insert(FRONT_END_LABEL.to_owned(), self.name().to_owned());
        request
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Acp => "acp",
            Self::Mcp => "mcp",
            Self::Shell => "shell",
            Self::ExecServer => "exec-server",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_request_keeps_its_own_labels_and_cannot_name_another_front_end() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let request = CreateSessionRequest {
            labels: [own("team", "a"), own(FRONT_END_LABEL, "mcp")].into(),
            ..Default::default()
        };
        let signed = FrontEnd::Shell.sign(request);
        assert_eq!(signed.front_end, "shell");
        assert_eq!(signed.labels, [own("team", "a"), own(FRONT_END_LABEL, "shell")].into());
    }
}
