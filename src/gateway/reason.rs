//! Why the gateway refuses a request: one table of every reason.
//!
//! A row has the word that programs compare, the gRPC status and one sentence. The `reason` of an `ErrorInfo`, the label
//! of a metric and the word in the journal all come from this table, so they cannot disagree. `docs/errors.md` is the
//! same table for people, and a test compares the two. Which error has which reason is decided where the errors are
//! known: `terminal/errors.rs` and `grpc/errors`.

use tonic::Code;

use crate::counters::Label;

/// Defines [`Reason`] by its rows.
macro_rules! reasons {
    ($($(#[doc = $about:literal])+ $name:ident = $code:literal, $status:ident;)+) => {
        /// Why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Reason {
            $($(#[doc = $about])+ $name,)+
        }

        impl Reason {
            const fn row(self) -> Row {
                match self {
                    $(Self::$name => Row {
                        code: $code,
                        label: {
                            const LABEL: [u8; $code.len()] = lower_case($code);
                            as_text(&LABEL)
                        },
                        status: Code::$status,
                        #[cfg(test)]
                        about: concat!($($about),+),
                    },)+
                }
            }
        }

        impl Label for Reason {
            const ALL: &'static [Self] = &[$(Self::$name,)+];

            fn label(self) -> &'static str {
                self.label()
            }
        }
    };
}

struct Row {
    code: &'static str,
    label: &'static str,
    status: Code,
    #[cfg(test)]
    about: &'static str,
}

impl Reason {
    /// The word that programs compare: the `reason` of an `ErrorInfo`, and the journal's.
    pub(crate) const fn code(self) -> &'static str {
        self.row().code
    }

    /// The label of metrics: the code in lower case.
    pub(crate) const fn label(self) -> &'static str {
        self.row().label
    }

    /// The status of the call.
    pub(crate) const fn status(self) -> Code {
        self.row().status
    }

    /// One sentence for people, as `docs/errors.md` has it.
    #[cfg(test)]
    pub(crate) const fn about(self) -> &'static str {
        self.row().about.trim_ascii()
    }
}

reasons! {
    // Any request.
    /// The gateway is shutting down.
    Draining = "DRAINING", Unavailable;
    /// A quota of the caller, or of the gateway, is used up. The metadata has its name and size.
    Quota = "QUOTA", ResourceExhausted;
    /// A field of the request is wrong. The metadata has its name.
    BadField = "BAD_FIELD", InvalidArgument;
    /// The request did not arrive in time.
    RequestTooSlow = "REQUEST_TOO_SLOW", DeadlineExceeded;
    /// The deadline of the call has passed.
    Deadline = "DEADLINE", DeadlineExceeded;
    /// The session does not exist, is closed, or is another user's.
    SessionNotFound = "SESSION_NOT_FOUND", NotFound;
    /// The terminal does not exist, is released, or is another user's.
    TerminalNotFound = "TERMINAL_NOT_FOUND", NotFound;
    /// The approval does not exist, or is not for this caller.
    ApprovalNotFound = "APPROVAL_NOT_FOUND", NotFound;
    /// The gateway failed. Its log says how.
    Internal = "INTERNAL", Internal;
    /// The state directory cannot be written.
    StateUnwritable = "STATE_UNWRITABLE", Unavailable;
    /// A file system of the caller does not answer.
    FileSystemOverdue = "FILE_SYSTEM_OVERDUE", Unavailable;
    /// The host gives the gateway no further thread.
    NoThread = "NO_THREAD", Unavailable;

    // The journal.
    /// The journal cannot be written. Nothing was started.
    JournalUnwritable = "JOURNAL_UNWRITABLE", Unavailable;
    /// The journal takes no record as long as this request's.
    JournalRecordTooLong = "JOURNAL_RECORD_TOO_LONG", InvalidArgument;
    /// The record of this request could not be made.
    JournalRecord = "JOURNAL_RECORD", Internal;
    /// The journal's files cannot be read.
    JournalUnreadable = "JOURNAL_UNREADABLE", Internal;
    /// This gateway keeps no journal.
    NoJournal = "NO_JOURNAL", FailedPrecondition;

    // Opening a session.
    /// The session is to end with its owner's process, and that process is not known.
    OwnerProcessUnknown = "OWNER_PROCESS_UNKNOWN", FailedPrecondition;

    // Policy and approvals.
    /// Policy denies it. The metadata has the rule.
    PolicyDenied = "POLICY_DENIED", PermissionDenied;
    /// A rule asks for an approval, and there is none. The metadata has the rule and the id of the approval.
    ApprovalRequired = "APPROVAL_REQUIRED", PermissionDenied;
    /// An approver has denied it.
    ApprovalDenied = "APPROVAL_DENIED", PermissionDenied;
    /// Nobody approved it in time.
    ApprovalExpired = "APPROVAL_EXPIRED", PermissionDenied;
    /// The caller disconnected before the approval was answered.
    CallerGone = "CALLER_GONE", Cancelled;
    /// Only an approver may answer an approval.
    NotAnApprover = "NOT_AN_APPROVER", PermissionDenied;
    /// The approval has been answered, or has ended without an answer.
    ApprovalNotPending = "APPROVAL_NOT_PENDING", FailedPrecondition;
    /// Only root and the gateway's own user may do this.
    NotAnAdministrator = "NOT_AN_ADMINISTRATOR", PermissionDenied;

    // Forwarding a port.
    /// Nothing listens at the port in the terminal's sandbox.
    PortClosed = "PORT_CLOSED", FailedPrecondition;
    /// The terminal's sandbox has no network of its own, or was started by a gateway that could not forward.
    ForwardUnavailable = "FORWARD_UNAVAILABLE", FailedPrecondition;

    // Starting a command.
    /// The program does not exist in the sandbox.
    CommandNotFound = "COMMAND_NOT_FOUND", FailedPrecondition;
    /// The file is not executable.
    NotExecutable = "NOT_EXECUTABLE", FailedPrecondition;
    /// The kernel refused to execute the file.
    PermissionDenied = "PERMISSION_DENIED", FailedPrecondition;
    /// The interpreter that the first line of a script names cannot be executed.
    BadInterpreter = "BAD_INTERPRETER", FailedPrecondition;
    /// The working directory does not exist.
    CwdGone = "CWD_GONE", FailedPrecondition;
    /// The working directory is not a directory.
    CwdNotADirectory = "CWD_NOT_A_DIRECTORY", FailedPrecondition;
    /// Arguments and environment are longer than exec takes.
    ArgumentListTooLong = "ARGUMENT_LIST_TOO_LONG", InvalidArgument;
    /// A limit of the host or of the sandbox is reached.
    LimitReached = "LIMIT_REACHED", ResourceExhausted;
    /// A protection could not be put in force, so nothing ran. The metadata has the stage.
    ConfinementUnavailable = "CONFINEMENT_UNAVAILABLE", FailedPrecondition;
    /// A directory of the session was removed, or another one is in its place.
    RootGone = "ROOT_GONE", FailedPrecondition;
    /// The file to be executed is not the one that policy evaluated, so nothing ran.
    ProgramChanged = "PROGRAM_CHANGED", FailedPrecondition;
    /// A secret cannot be read or masked, so nothing ran. The metadata has its name.
    SecretUnavailable = "SECRET_UNAVAILABLE", FailedPrecondition;
    /// The request's terminal is in a sandbox that could not be restored.
    TerminalQuarantined = "TERMINAL_QUARANTINED", FailedPrecondition;

    // A terminal that exists.
    /// The sandbox has ended.
    SandboxLost = "SANDBOX_LOST", Aborted;
    /// The supervisor of the sandbox could not do it, or answered what the protocol does not allow.
    Supervisor = "SUPERVISOR", Internal;
    /// The supervisor of the sandbox did not answer in time.
    SupervisorTimedOut = "SUPERVISOR_TIMED_OUT", Unavailable;
    /// The command has ended.
    CommandEnded = "COMMAND_ENDED", FailedPrecondition;
    /// The command's stdin is closed.
    StdinClosed = "STDIN_CLOSED", FailedPrecondition;
    /// Another write to the command's stdin is under way. Nothing of this one was taken.
    InputBusy = "INPUT_BUSY", Aborted;
    /// The terminal has pipes and not a pseudo-terminal.
    NoPty = "NO_PTY", FailedPrecondition;
    /// No caller is awaited: it is no resumable run of an earlier gateway or request, or its caller is there, or came too late.
    RunNotAwaited = "RUN_NOT_AWAITED", FailedPrecondition;
    /// The terminal has secrets, which a screen would show: its screen is not shown.
    ScreenHasSecrets = "SCREEN_HAS_SECRETS", FailedPrecondition;
    /// The terminal's screen is not available now. Its command runs on.
    ScreenUnavailable = "SCREEN_UNAVAILABLE", Unavailable;
    /// The program in the terminal has not asked for this input.
    InputNotWanted = "INPUT_NOT_WANTED", FailedPrecondition;
    /// The terminal is no kept shell.
    NotAKeptShell = "NOT_A_KEPT_SHELL", FailedPrecondition;
    /// The shell's sandbox has no exec gate in force.
    NoExecGate = "NO_EXEC_GATE", FailedPrecondition;
    /// Another line runs in the kept shell, or something else does. Wait until it is over, or interrupt it (`InterruptLine`).
    ShellBusy = "SHELL_BUSY", FailedPrecondition;
    /// The terminal has secrets: no line is run in it.
    ShellHasSecrets = "SHELL_HAS_SECRETS", FailedPrecondition;
    /// The rules give the line what a running shell cannot be given; `effects` names it: `profile`, `network`, `secrets`,
    /// `environment`, `time_limit`, `idle_limit`, `limits`.
    LineNeedsOtherTerminal = "LINE_NEEDS_OTHER_TERMINAL", FailedPrecondition;
    /// A line runs in the kept shell: other input is refused until it is over.
    LineRunning = "LINE_RUNNING", FailedPrecondition;
    /// The line that the input is for does not run.
    LineOver = "LINE_OVER", FailedPrecondition;
    /// The output cannot be read.
    OutputRing = "OUTPUT_RING", Internal;
    /// Output was overwritten before it was read.
    OutputLost = "OUTPUT_LOST", DataLoss;
}

const fn lower_case<const N: usize>(code: &str) -> [u8; N] {
    let mut lower = [0; N];
    let mut at = 0;
    while at < N {
        lower[at] = code.as_bytes()[at].to_ascii_lowercase();
        at += 1;
    }
    lower
}

const fn as_text(ascii: &[u8]) -> &str {
    match std::str::from_utf8(ascii) {
        Ok(text) => text,
        Err(_) => panic!("a code is ASCII"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::proto::v1::SpawnError;

    #[test]
    fn the_page_of_errors_has_exactly_these_rows() {
        let page = include_str!("../../docs/errors.md");
        let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let rows: Vec<String> = Reason::ALL
            .iter()
            .map(|reason| format!("| `{}` | {:?} | {} |", reason.code(), reason.status(), reason.about()))
            .collect();
        assert_eq!(shown, rows, "docs/errors.md is to have these rows:\n{}", rows.join("\n"));
    }

    #[test]
    fn codes_are_in_capitals_and_no_two_are_the_same() {
        let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert!(reason.code().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
            assert_eq!(reason.label(), reason.code().to_lowercase());
        }
    }

    #[test]
    fn every_spawn_error_of_the_api_is_a_reason() {
        let errors = (1..).map_while(|number| SpawnError::try_from(number).ok());
        for error in errors {
            let code = error.as_str_name().trim_start_matches("SPAWN_ERROR_");
            assert!(Reason::ALL.iter().any(|reason| reason.code() == code), "{code}");
        }
    }
}
