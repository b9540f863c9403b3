//! Why requests came to nothing, in the few words that are counted: those of the statuses that their callers get.

use super::{
    audit::{recorder::Unrecorded, records},
    errors::{ApprovalError, CreateError, OpenSessionError},
    quotas::{QuotaKind, QuotaReached, QuotaScope},
};
use crate::{
    approval::ApprovalLimitReached,
    counters::words,
    journal::AppendError,
    proto::v1::SpawnError,
    sandbox::{control::ControlError, handle::StartError, requests::SpawnRefused},
    session::OpenError,
    workspace::WatchError,
};

words! {
    /// Why there is no terminal. Each word is the reason of the caller's status, in lower case.
    pub enum CreateRefusal {
        /// The gateway is going down.
        Draining = "draining",
        /// The session is being closed.
        SessionClosing = "session_not_found",
        /// Policy refuses it.
        Denied = "policy_denied",
        /// A person must say yes first, or again.
        ApprovalRequired = "approval_required",
        /// A person said no.
        ApprovalDenied = "approval_denied",
        /// No person answered in time.
        ApprovalExpired = "approval_expired",
        /// The caller's deadline came before the answer.
        Deadline = "deadline",
        /// The caller went away before the answer.
        CallerGone = "caller_gone",
        /// A bound is reached.
        Quota = "quota",
        /// The state directory takes nothing.
        StateUnwritable = "state_unwritable",
        /// The request's terminal is in a sandbox that could not be taken back.
        Quarantined = "terminal_quarantined",
        /// The journal takes no records.
        JournalUnwritable = "journal_unwritable",
        /// The journal takes no record as long as this one.
        JournalRecordTooLong = "journal_record_too_long",
        /// The journal takes no such record.
        JournalRecord = "journal_record",
        /// A layer of the confinement cannot be had.
        ConfinementUnavailable = "confinement_unavailable",
        /// A file system of the caller does not answer.
        Filesystem = "file_system_overdue",
        /// A secret cannot be had.
        SecretUnavailable = "secret_unavailable",
        /// There is no such program.
        CommandNotFound = "command_not_found",
        /// It is no program.
        NotExecutable = "not_executable",
        /// The kernel does not let it run.
        PermissionDenied = "permission_denied",
        /// The program that its first line names is not there.
        BadInterpreter = "bad_interpreter",
        /// The working directory is gone.
        CwdGone = "cwd_gone",
        /// It is no directory.
        CwdNotADirectory = "cwd_not_a_directory",
        /// More arguments than the kernel takes.
        ArgumentListTooLong = "argument_list_too_long",
        /// A limit of the host or of the sandbox.
        LimitReached = "limit_reached",
        /// The sandbox was lost meanwhile.
        SandboxLost = "sandbox_lost",
        /// The program is another one than policy judged.
        ProgramChanged = "program_changed",
        /// The supervisor does not keep to its protocol.
        Supervisor = "supervisor",
    }
}

words! {
    /// Why there is no session.
    pub enum SessionRefusal {
        /// The gateway is going down.
        Draining = "draining",
        /// Policy refuses it.
        Denied = "policy_denied",
        /// A root cannot be used.
        Root = "bad_root",
        /// The owner's process is not known.
        OwnerUnknown = "owner_process_unknown",
        /// A bound is reached.
        Quota = "quota",
        /// The state directory takes nothing.
        StateUnwritable = "state_unwritable",
        /// The journal did not take the record of it.
        Unrecorded = "journal_unwritable",
        /// The file systems of its roots do not answer.
        Filesystem = "file_system_overdue",
    }
}

words! {
    /// A bound that refused something, by its name in the configuration.
    pub enum LimitName {
        /// `caps.sessions_per_principal`.
        Sessions = "sessions_per_principal",
        /// `caps.live_terminals_per_session`.
        LiveOfSession = "live_terminals_per_session",
        /// `caps.live_terminals_per_principal`.
        LiveOfPrincipal = "live_terminals_per_principal",
        /// `caps.retained_terminals_per_session`.
        RetainedOfSession = "retained_terminals_per_session",
        /// `caps.retained_terminals_per_principal`.
        RetainedOfPrincipal = "retained_terminals_per_principal",
        /// `caps.retained_bytes_per_session`.
        BytesOfSession = "retained_bytes_per_session",
        /// `caps.retained_bytes_per_principal`.
        BytesOfPrincipal = "retained_bytes_per_principal",
        /// A principal's share of what the journal keeps for `journal.keep_for_at_least`.
        Journal = "journal_share",
        /// A principal's part of the gateway's descriptors.
        Descriptors = "descriptors_per_principal",
        /// `approvals.open_per_principal`.
        ApprovalsOfPrincipal = "approvals_open_per_principal",
        /// `approvals.open`.
        Approvals = "approvals_open",
    }
}

impl From<&CreateError> for CreateRefusal {
    fn from(error: &CreateError) -> Self {
        match error {
            CreateError::Draining => Self::Draining,
            CreateError::SessionClosing => Self::SessionClosing,
            CreateError::Denied(_) => Self::Denied,
            CreateError::Unapproved(unapproved) => of_unapproved(unapproved),
            CreateError::Quota(_)
            | CreateError::RefusalRateExceeded
            | CreateError::WorkspaceUnwatched(WatchError::TooMany { .. } | WatchError::System(_)) => {
                Self::Quota
            }
            CreateError::Unrecorded(error) => of_unrecorded(error),
            CreateError::LogUnwritable(_) => Self::StateUnwritable,
            CreateError::Filesystem(_) => Self::Filesystem,
            CreateError::Quarantined(_) => Self::Quarantined,
            CreateError::Sandbox(error) => of_sandbox(error),
            CreateError::Secret(_) => Self::SecretUnavailable,
            CreateError::Spawn(refused) => of_spawn(refused),
        }
    }
}

fn of_unapproved(unapproved: &ApprovalError) -> CreateRefusal {
    match unapproved {
        ApprovalError::Required(..) | ApprovalError::Superseded(..) | ApprovalError::Changed(_) => {
            CreateRefusal::ApprovalRequired
        }
        ApprovalError::Denied(..) => CreateRefusal::ApprovalDenied,
        ApprovalError::Expired(..) => CreateRefusal::ApprovalExpired,
        ApprovalError::DeadlineExceeded(..) => CreateRefusal::Deadline,
        ApprovalError::CallerDisconnected(..) => CreateRefusal::CallerGone,
        ApprovalError::LimitReached(_) => CreateRefusal::Quota,
    }
}

fn of_unrecorded(Unrecorded(error): &Unrecorded) -> CreateRefusal {
    match error {
        AppendError::Unwritable(_) | AppendError::Stopped => CreateRefusal::JournalUnwritable,
        AppendError::TooLong { .. } => CreateRefusal::JournalRecordTooLong,
        AppendError::Reserved | AppendError::Unencodable(_) => CreateRefusal::JournalRecord,
    }
}

fn of_sandbox(error: &StartError) -> CreateRefusal {
    match error {
        StartError::Launch(_) | StartError::Connect(_) | StartError::TimedOut | StartError::RootGone(_) => {
            CreateRefusal::ConfinementUnavailable
        }
        StartError::Descriptors(_) => CreateRefusal::LimitReached,
    }
}

fn of_spawn(refused: &SpawnRefused) -> CreateRefusal {
    match refused {
        SpawnRefused::Failed(failure) | SpawnRefused::Changed { failure, .. } => {
            of_spawn_error(records::spawn_error(failure.fault))
        }
        SpawnRefused::Control(ControlError::Lost) => CreateRefusal::SandboxLost,
        SpawnRefused::Control(ControlError::TooLarge(_)) => CreateRefusal::ArgumentListTooLong,
        SpawnRefused::Control(ControlError::UnexpectedMessage | ControlError::TimedOut) => {
            CreateRefusal::Supervisor
        }
        SpawnRefused::Ring(_) => CreateRefusal::ConfinementUnavailable,
    }
}

fn of_spawn_error(error: SpawnError) -> CreateRefusal {
    match error {
        SpawnError::CommandNotFound => CreateRefusal::CommandNotFound,
        SpawnError::NotExecutable => CreateRefusal::NotExecutable,
        SpawnError::PermissionDenied => CreateRefusal::PermissionDenied,
        SpawnError::BadInterpreter => CreateRefusal::BadInterpreter,
        SpawnError::CwdGone => CreateRefusal::CwdGone,
        SpawnError::CwdNotADirectory => CreateRefusal::CwdNotADirectory,
        SpawnError::ArgumentListTooLong => CreateRefusal::ArgumentListTooLong,
        SpawnError::LimitReached => CreateRefusal::LimitReached,
        SpawnError::SandboxLost => CreateRefusal::SandboxLost,
        SpawnError::ProgramChanged => CreateRefusal::ProgramChanged,
        SpawnError::SecretUnavailable => CreateRefusal::SecretUnavailable,
        SpawnError::StateUnwritable => CreateRefusal::StateUnwritable,
        SpawnError::ConfinementUnavailable | SpawnError::Unspecified => CreateRefusal::ConfinementUnavailable,
    }
}

impl From<&OpenSessionError> for SessionRefusal {
    fn from(error: &OpenSessionError) -> Self {
        match error {
            OpenSessionError::Unrecorded(_) => Self::Unrecorded,
            OpenSessionError::JournalShare(_) => Self::Quota,
            OpenSessionError::Open(error) => match error {
                OpenError::Denied(_) => Self::Denied,
                OpenError::Root(..) | OpenError::RootName(_) | OpenError::Governing(_) => Self::Root,
                OpenError::NoOwnerProcess => Self::OwnerUnknown,
                OpenError::TooMany(_) | OpenError::Descriptors(_) => Self::Quota,
                OpenError::Draining => Self::Draining,
                OpenError::StateUnwritable(_) => Self::StateUnwritable,
                OpenError::Filesystem(_) => Self::Filesystem,
            },
        }
    }
}

impl LimitName {
    /// The bound that a request met, if it was one.
    pub(super) fn of(error: &CreateError) -> Option<Self> {
        match error {
            CreateError::Quota(QuotaReached { kind, scope, .. }) => Some(match (kind, scope) {
                (QuotaKind::Live, QuotaScope::Session) => Self::LiveOfSession,
                (QuotaKind::Live, QuotaScope::Principal) => Self::LiveOfPrincipal,
                (QuotaKind::Retained, QuotaScope::Session) => Self::RetainedOfSession,
                (QuotaKind::Retained, QuotaScope::Principal) => Self::RetainedOfPrincipal,
                (QuotaKind::Bytes, QuotaScope::Session) => Self::BytesOfSession,
                (QuotaKind::Bytes, QuotaScope::Principal) => Self::BytesOfPrincipal,
                (QuotaKind::Journal { .. }, _) => Self::Journal,
                (QuotaKind::Descriptors, _) => Self::Descriptors,
            }),
            CreateError::Unapproved(ApprovalError::LimitReached(ApprovalLimitReached::Principal(_))) => {
                Some(Self::ApprovalsOfPrincipal)
            }
            CreateError::Unapproved(ApprovalError::LimitReached(ApprovalLimitReached::Gateway(_))) => {
                Some(Self::Approvals)
            }
            CreateError::Draining
            | CreateError::SessionClosing
            | CreateError::Denied(_)
            | CreateError::Unapproved(_)
            | CreateError::Unrecorded(_)
            | CreateError::LogUnwritable(_)
            | CreateError::Filesystem(_)
            | CreateError::RefusalRateExceeded
            | CreateError::Quarantined(_)
            | CreateError::WorkspaceUnwatched(_)
            | CreateError::Sandbox(_)
            | CreateError::Secret(_)
            | CreateError::Spawn(_) => None,
        }
    }
}
