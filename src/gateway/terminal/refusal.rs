//! Which error has which reason: the one mapping that error details, metrics and the journal share.
//!
//! Every match is exhaustive, so that a new error has a reason or does not compile. The names of limits are here, too.

use super::{
    audit::recorder::Unrecorded,
    errors::{
        ApprovalError, CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError,
        RunLineError, ScreenAccessError, TerminalReleased,
    },
    quotas::{QuotaKind, QuotaReached, QuotaScope},
};
use crate::{
    approval::{ApprovalLimitReached, ApprovalResolveError},
    counters::labels,
    journal::AppendError,
    policy::{Denial, command::rule::Decision},
    pool::PoolError,
    reason::Reason,
    sandbox::{
        control::ControlError,
        gate_link::GateError,
        requests::SpawnRefused,
        spawn_error::{SpawnFailure, SpawnFault},
        start::StartError,
    },
    session::OpenError,
    workspace::WatchError,
};

impl From<&CreateError> for Reason {
    fn from(error: &CreateError) -> Self {
        match error {
            CreateError::Draining => Self::Draining,
            CreateError::SessionClosing => Self::SessionNotFound,
            CreateError::Denied(denial) => denial.into(),
            CreateError::Unapproved(error) => error.into(),
            CreateError::Quota(_) | CreateError::RefusalRateExceeded => Self::Quota,
            CreateError::WorkspaceUnwatched(error) => error.into(),
            CreateError::Unrecorded(error) => error.into(),
            CreateError::LogUnwritable(_) => Self::StateUnwritable,
            CreateError::Filesystem(error) => error.into(),
            CreateError::Quarantined(_) => Self::TerminalQuarantined,
            CreateError::Sandbox(error) => error.as_ref().into(),
            CreateError::Secret(_) => Self::SecretUnavailable,
            CreateError::Spawn(error) => error.into(),
        }
    }
}

impl From<&OpenSessionError> for Reason {
    fn from(error: &OpenSessionError) -> Self {
        match error {
            OpenSessionError::Unrecorded(error) => error.into(),
            OpenSessionError::JournalShare(_) => Self::Quota,
            OpenSessionError::Open(error) => error.into(),
        }
    }
}

impl From<&OpenError> for Reason {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Denied(denial) => denial.into(),
            OpenError::Root(..)
            | OpenError::RootName(_)
            | OpenError::OtherSession { .. }
            | OpenError::RootReplaced(_)
            | OpenError::ForeignOwnerProcess
            | OpenError::Governing(_) => Self::BadField,
            OpenError::NoOwnerProcess => Self::OwnerProcessUnknown,
            OpenError::TooMany(_) | OpenError::Descriptors(_) => Self::Quota,
            OpenError::Draining => Self::Draining,
            OpenError::StateUnwritable(_) => Self::StateUnwritable,
            OpenError::Filesystem(error) => error.into(),
        }
    }
}

impl From<&ForwardError> for Reason {
    fn from(error: &ForwardError) -> Self {
        match error {
            ForwardError::Terminal(error) => error.into(),
            ForwardError::Unrecorded(error) => error.into(),
            ForwardError::TooMany(_) => Self::Quota,
            ForwardError::Unavailable => Self::ForwardUnavailable,
            ForwardError::Closed { .. } => Self::PortClosed,
        }
    }
}

impl From<&Denial> for Reason {
    fn from(denial: &Denial) -> Self {
        match denial.decision() {
            Decision::Ask => Self::ApprovalRequired,
            Decision::Deny | Decision::Allow => Self::PolicyDenied,
        }
    }
}

impl From<&ApprovalError> for Reason {
    fn from(error: &ApprovalError) -> Self {
        match error {
            ApprovalError::Required(..) | ApprovalError::Superseded(..) | ApprovalError::Changed(_) => {
                Self::ApprovalRequired
            }
            ApprovalError::Denied(..) => Self::ApprovalDenied,
            ApprovalError::Expired(..) => Self::ApprovalExpired,
            ApprovalError::DeadlineExceeded(..) => Self::Deadline,
            ApprovalError::CallerDisconnected(..) => Self::CallerGone,
            ApprovalError::LimitReached(_) => Self::Quota,
        }
    }
}

impl From<&ResolveApprovalError> for Reason {
    fn from(error: &ResolveApprovalError) -> Self {
        match error {
            ResolveApprovalError::Unrecorded(error) => error.into(),
            ResolveApprovalError::Resolve(ApprovalResolveError::NotFound) => Self::ApprovalNotFound,
            ResolveApprovalError::Resolve(ApprovalResolveError::NotAnApprover) => Self::NotAnApprover,
            ResolveApprovalError::Resolve(ApprovalResolveError::NotPending(_)) => Self::ApprovalNotPending,
        }
    }
}

impl From<&Unrecorded> for Reason {
    fn from(Unrecorded(error): &Unrecorded) -> Self {
        match error {
            AppendError::Unwritable(_) | AppendError::Stopped => Self::JournalUnwritable,
            AppendError::TooLong { .. } => Self::JournalRecordTooLong,
            AppendError::Reserved | AppendError::Unencodable(_) => Self::JournalRecord,
        }
    }
}

impl From<&PoolError> for Reason {
    fn from(error: &PoolError) -> Self {
        match error {
            PoolError::TimedOut(_) => Self::FileSystemOverdue,
            PoolError::Busy(_) => Self::Quota,
            PoolError::ThreadUnavailable => Self::NoThread,
        }
    }
}

impl From<&WatchError> for Reason {
    fn from(error: &WatchError) -> Self {
        match error {
            WatchError::TooMany { .. } | WatchError::System(_) => Self::Quota,
        }
    }
}

impl From<&StartError> for Reason {
    fn from(error: &StartError) -> Self {
        match error {
            StartError::Launch(_)
            | StartError::Connect(_)
            | StartError::TimedOut
            | StartError::KeptCaches(_)
            | StartError::KeptCachesWait(_)
            | StartError::Net(_)
            | StartError::Gate(_) => Self::ConfinementUnavailable,
            StartError::RootGone(_) => Self::RootGone,
            StartError::Descriptors(_) => Self::LimitReached,
        }
    }
}

impl From<&SpawnRefused> for Reason {
    fn from(error: &SpawnRefused) -> Self {
        match error {
            SpawnRefused::Failed(failure) | SpawnRefused::Changed { failure, .. } => failure.into(),
            SpawnRefused::Control(error) => error.into(),
            SpawnRefused::Gate(GateError::Lost) => Self::SandboxLost,
            SpawnRefused::Ring(_) | SpawnRefused::Gate(_) | SpawnRefused::NoPtys | SpawnRefused::NoUmask => {
                Self::ConfinementUnavailable
            }
        }
    }
}

impl From<&SpawnFailure> for Reason {
    fn from(failure: &SpawnFailure) -> Self {
        match failure.fault {
            SpawnFault::CommandNotFound => Self::CommandNotFound,
            SpawnFault::NotExecutable => Self::NotExecutable,
            SpawnFault::PermissionDenied => Self::PermissionDenied,
            SpawnFault::BadInterpreter => Self::BadInterpreter,
            SpawnFault::CwdGone => Self::CwdGone,
            SpawnFault::CwdNotADirectory => Self::CwdNotADirectory,
            SpawnFault::ArgumentListTooLong => Self::ArgumentListTooLong,
            SpawnFault::LimitReached => Self::LimitReached,
            SpawnFault::ProgramChanged => Self::ProgramChanged,
            SpawnFault::ConfinementUnavailable => Self::ConfinementUnavailable,
        }
    }
}

impl From<&ControlError> for Reason {
    fn from(error: &ControlError) -> Self {
        match error {
            ControlError::Lost => Self::SandboxLost,
            ControlError::TooLarge(_) => Self::ArgumentListTooLong,
            ControlError::UnexpectedMessage => Self::Supervisor,
            ControlError::TimedOut => Self::SupervisorTimedOut,
        }
    }
}

impl From<&ScreenAccessError> for Reason {
    fn from(error: &ScreenAccessError) -> Self {
        match error {
            ScreenAccessError::NoPty => Self::NoPty,
            ScreenAccessError::HasSecrets => Self::ScreenHasSecrets,
            ScreenAccessError::Unavailable | ScreenAccessError::Screen(_) => Self::ScreenUnavailable,
        }
    }
}

impl From<&OperationError> for Reason {
    fn from(error: &OperationError) -> Self {
        match error {
            OperationError::Released(TerminalReleased) => Self::TerminalNotFound,
            OperationError::Ended => Self::CommandEnded,
            OperationError::StdinClosed => Self::StdinClosed,
            OperationError::NoPty => Self::NoPty,
            OperationError::RunNotAwaited => Self::RunNotAwaited,
            OperationError::InputGap => Self::BadField,
            OperationError::LineRunning => Self::LineRunning,
            OperationError::LineOver => Self::LineOver,
            OperationError::NotAKeptShell => Self::NotAKeptShell,
            OperationError::Control(error) => error.into(),
            OperationError::Errno(_) => Self::Supervisor,
        }
    }
}

impl From<&RunLineError> for Reason {
    fn from(error: &RunLineError) -> Self {
        match error {
            RunLineError::Operation(error) => error.into(),
            RunLineError::NoGate => Self::NoExecGate,
            RunLineError::Busy => Self::ShellBusy,
            RunLineError::LineEditing => Self::BadField,
            RunLineError::QueueFull => Self::Quota,
            RunLineError::HasSecrets => Self::ShellHasSecrets,
            RunLineError::EarlierBuild => Self::ConfinementUnavailable,
            RunLineError::OtherTerminal(_) => Self::LineNeedsOtherTerminal,
            RunLineError::Refused(error) => error.into(),
        }
    }
}

labels! {
    /// A bound that refused something, by its name in the configuration.
    pub enum LimitName {
        /// `quotas.sessions_per_principal`.
        Sessions = "sessions_per_principal",
        /// `quotas.live_terminals_per_session`.
        LiveOfSession = "live_terminals_per_session",
        /// `quotas.live_terminals_per_principal`.
        LiveOfPrincipal = "live_terminals_per_principal",
        /// `quotas.retained_terminals_per_session`.
        RetainedOfSession = "retained_terminals_per_session",
        /// `quotas.retained_terminals_per_principal`.
        RetainedOfPrincipal = "retained_terminals_per_principal",
        /// `quotas.retained_bytes_per_session`.
        BytesOfSession = "retained_bytes_per_session",
        /// `quotas.retained_bytes_per_principal`.
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
