//! Why requests came to nothing, in the few words that are counted: those of the statuses that their callers get.

use super::{CreateError, Kind, QuotaReached, Scope, Unapproved, Unrecorded, opening::OpeningError, records};
use crate::{
    approval::Full,
    journal::AppendError,
    proto::v1::SpawnError,
    sandbox::{control::ControlError, handle::StartError, requests::SpawnRefused},
    session::OpenError,
    tally::words,
    workspace::WatchError,
};

words! {
    /// Why there is no terminal. Each word is the reason of the caller's status, in lower case.
    pub enum TurnedAway {
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
        /// The state folder takes nothing.
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
        Host = "file_system_overdue",
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
        /// The working folder is gone.
        CwdGone = "cwd_gone",
        /// It is no folder.
        CwdNotAFolder = "cwd_not_a_folder",
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
    pub enum NotOpened {
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
        /// The state folder takes nothing.
        StateUnwritable = "state_unwritable",
        /// The journal did not take the record of it.
        Unrecorded = "journal_unwritable",
        /// The file systems of its roots do not answer.
        Host = "file_system_overdue",
    }
}

words! {
    /// A bound that refused something, by its name in the configuration.
    pub enum Limit {
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

impl From<&CreateError> for TurnedAway {
    fn from(error: &CreateError) -> Self {
        match error {
            CreateError::Draining => Self::Draining,
            CreateError::SessionClosing => Self::SessionClosing,
            CreateError::Denied(_) => Self::Denied,
            CreateError::Unapproved(unapproved) => of_unapproved(unapproved),
            CreateError::Quota(_)
            | CreateError::AsksTooOften
            | CreateError::Unwatched(WatchError::TooMany { .. } | WatchError::System(_)) => Self::Quota,
            CreateError::Unrecorded(error) => of_unrecorded(error),
            CreateError::Keep(_) => Self::StateUnwritable,
            CreateError::Host(_) => Self::Host,
            CreateError::Withheld(_) => Self::Quarantined,
            CreateError::Sandbox(error) => of_sandbox(error),
            CreateError::Secret(_) => Self::SecretUnavailable,
            CreateError::Spawn(refused) => of_spawn(refused),
        }
    }
}

fn of_unapproved(unapproved: &Unapproved) -> TurnedAway {
    match unapproved {
        Unapproved::Required(..) | Unapproved::Superseded(..) | Unapproved::Changed(_) => {
            TurnedAway::ApprovalRequired
        }
        Unapproved::Denied(..) => TurnedAway::ApprovalDenied,
        Unapproved::Expired(..) => TurnedAway::ApprovalExpired,
        Unapproved::DeadlinePassed(..) => TurnedAway::Deadline,
        Unapproved::CallerGone(..) => TurnedAway::CallerGone,
        Unapproved::Full(_) => TurnedAway::Quota,
    }
}

fn of_unrecorded(Unrecorded(error): &Unrecorded) -> TurnedAway {
    match error {
        AppendError::Unwritable(_) | AppendError::Stopped => TurnedAway::JournalUnwritable,
        AppendError::TooLong { .. } => TurnedAway::JournalRecordTooLong,
        AppendError::Reserved | AppendError::Unencodable(_) => TurnedAway::JournalRecord,
    }
}

fn of_sandbox(error: &StartError) -> TurnedAway {
    match error {
        StartError::Launch(_) | StartError::Connect(_) | StartError::Silent | StartError::RootGone(_) => {
            TurnedAway::ConfinementUnavailable
        }
        StartError::Descriptors(_) => TurnedAway::LimitReached,
    }
}

fn of_spawn(refused: &SpawnRefused) -> TurnedAway {
    match refused {
        SpawnRefused::Failed(failure) | SpawnRefused::Changed { failure, .. } => {
            of_spawn_error(records::of_fault(failure.fault))
        }
        SpawnRefused::Control(ControlError::Lost) => TurnedAway::SandboxLost,
        SpawnRefused::Control(ControlError::TooLarge(_)) => TurnedAway::ArgumentListTooLong,
        SpawnRefused::Control(ControlError::Nonsense | ControlError::Silent) => TurnedAway::Supervisor,
        SpawnRefused::Ring(_) => TurnedAway::ConfinementUnavailable,
    }
}

fn of_spawn_error(error: SpawnError) -> TurnedAway {
    match error {
        SpawnError::CommandNotFound => TurnedAway::CommandNotFound,
        SpawnError::NotExecutable => TurnedAway::NotExecutable,
        SpawnError::PermissionDenied => TurnedAway::PermissionDenied,
        SpawnError::BadInterpreter => TurnedAway::BadInterpreter,
        SpawnError::CwdGone => TurnedAway::CwdGone,
        SpawnError::CwdNotAFolder => TurnedAway::CwdNotAFolder,
        SpawnError::ArgumentListTooLong => TurnedAway::ArgumentListTooLong,
        SpawnError::LimitReached => TurnedAway::LimitReached,
        SpawnError::SandboxLost => TurnedAway::SandboxLost,
        SpawnError::ProgramChanged => TurnedAway::ProgramChanged,
        SpawnError::SecretUnavailable => TurnedAway::SecretUnavailable,
        SpawnError::StateUnwritable => TurnedAway::StateUnwritable,
        SpawnError::ConfinementUnavailable | SpawnError::Unspecified => TurnedAway::ConfinementUnavailable,
    }
}

impl From<&OpeningError> for NotOpened {
    fn from(error: &OpeningError) -> Self {
        match error {
            OpeningError::Unrecorded(_) => Self::Unrecorded,
            OpeningError::Share(_) => Self::Quota,
            OpeningError::Open(error) => match error {
                OpenError::Denied(_) => Self::Denied,
                OpenError::Root(..) | OpenError::RootName(_) | OpenError::Governing(_) => Self::Root,
                OpenError::NoOwnerProcess => Self::OwnerUnknown,
                OpenError::TooMany(_) | OpenError::Descriptors(_) => Self::Quota,
                OpenError::Draining => Self::Draining,
                OpenError::Keep(_) => Self::StateUnwritable,
                OpenError::Host(_) => Self::Host,
            },
        }
    }
}

impl Limit {
    /// The bound that a request met, if it was one.
    pub(super) fn of(error: &CreateError) -> Option<Self> {
        match error {
            CreateError::Quota(QuotaReached { kind, scope, .. }) => Some(match (kind, scope) {
                (Kind::Live, Scope::Session) => Self::LiveOfSession,
                (Kind::Live, Scope::Principal) => Self::LiveOfPrincipal,
                (Kind::Retained, Scope::Session) => Self::RetainedOfSession,
                (Kind::Retained, Scope::Principal) => Self::RetainedOfPrincipal,
                (Kind::Bytes, Scope::Session) => Self::BytesOfSession,
                (Kind::Bytes, Scope::Principal) => Self::BytesOfPrincipal,
                (Kind::Journal { .. }, _) => Self::Journal,
                (Kind::Descriptors, _) => Self::Descriptors,
            }),
            CreateError::Unapproved(Unapproved::Full(Full::Principal(_))) => Some(Self::ApprovalsOfPrincipal),
            CreateError::Unapproved(Unapproved::Full(Full::Gateway(_))) => Some(Self::Approvals),
            CreateError::Draining
            | CreateError::SessionClosing
            | CreateError::Denied(_)
            | CreateError::Unapproved(_)
            | CreateError::Unrecorded(_)
            | CreateError::Keep(_)
            | CreateError::Host(_)
            | CreateError::AsksTooOften
            | CreateError::Withheld(_)
            | CreateError::Unwatched(_)
            | CreateError::Sandbox(_)
            | CreateError::Secret(_)
            | CreateError::Spawn(_) => None,
        }
    }
}
