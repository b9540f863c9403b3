//! The errors of operations on terminals and sessions, and the reason of each: the one mapping that error details, metrics and the journal
//! share.
//!
//! Every match is exhaustive, so that a new error has a reason or does not compile. The bound that a request met is found here, too.

use std::sync::Arc;

use crate::{
    approval::{Answer, ApprovalId, ApprovalLimitReached, ApprovalResolveError},
    journal::AppendError,
    link::LinkError,
    policy::{ApprovalQuestion, Denial, command::rule::Decision},
    pool::PoolError,
    reason::Reason,
    sandbox::{
        control::{
            requests::SpawnRefused,
            spawn_error::{SpawnFailure, SpawnFault},
            start::StartError,
        },
        screen_link::ScreenError,
    },
    session::OpenError,
    terminal::{
        quotas::{LimitName, MAX_QUEUED_LINES, QuotaReached},
        recorder::Unrecorded,
        secrets::command_secrets::SecretError,
        spec::TerminalId,
    },
    workspace::WatchError,
};

/// Creating a terminal failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// The gateway is going down.
    #[error("the gateway is draining")]
    Draining,
    /// The session is being closed.
    #[error("the session is being closed")]
    SessionClosing,
    /// Policy refuses it.
    #[error(transparent)]
    Denied(Denial),
    /// A rule asks for approval, and nobody approved.
    #[error(transparent)]
    Unapproved(#[from] ApprovalError),
    /// A cap is reached.
    #[error(transparent)]
    Quota(#[from] QuotaReached),
    /// The journal did not take the record of it.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
    /// It cannot be added to the terminal log of its session, and might be run again after a crash.
    #[error("cannot write the terminal log")]
    LogUnwritable(#[source] std::io::Error),
    /// A rule asks for approval, and this principal's refusals exceed the rate at which they are recorded.
    #[error("requests of this user are refused, or ask a person, more often than can be recorded")]
    RefusalRateExceeded,
    /// Its files could not be looked at in time.
    #[error("the request cannot be judged")]
    Filesystem(#[from] PoolError),
    /// The same request has a terminal already, in a sandbox that this gateway could not adopt.
    #[error("the request's terminal {0} is in a sandbox that could not be adopted")]
    Quarantined(TerminalId),
    /// Nobody would see what it leaves in its workspace.
    #[error("the workspace cannot be watched")]
    WorkspaceUnwatched(#[from] WatchError),
    /// There is no sandbox for it.
    #[error(transparent)]
    Sandbox(#[from] Arc<StartError>),
    /// A secret of it cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It could not be started in its sandbox.
    #[error(transparent)]
    Spawn(#[from] SpawnRefused),
}

impl CreateError {
    /// Whether it only failed because a caller did not stay: another one with the same request may do better.
    pub(in crate::terminal) fn is_caller_gone(&self) -> bool {
        matches!(
            self,
            Self::Unapproved(ApprovalError::CallerDisconnected(..) | ApprovalError::DeadlineExceeded(..))
        )
    }
}

/// The terminal has been released, or another call is releasing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the terminal is gone")]
pub(crate) struct TerminalReleased;

/// An operation on a terminal failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperationError {
    /// It is not there any more, or never started.
    #[error(transparent)]
    Released(#[from] TerminalReleased),
    /// Its command has ended.
    #[error("the command has ended")]
    Ended,
    /// Its sandbox did not answer.
    #[error(transparent)]
    Control(#[from] LinkError),
    /// Its stdin is closed.
    #[error("stdin is closed")]
    StdinClosed,
    /// It has pipes, and not a pseudo-terminal.
    #[error("the terminal has pipes and not a pseudo-terminal")]
    NoPty,
    /// It is no resumable run of an earlier gateway, its caller has come back already, or the time for that is over.
    #[error("no caller is awaited for this terminal")]
    RunNotAwaited,
    /// Input at an offset beyond what was given so far.
    #[error("the input before this offset has not been given")]
    InputGap,
    /// A line runs in the kept shell, and has its input.
    #[error("a line runs in the kept shell, and other input is refused until it is over")]
    LineRunning,
    /// The line that the input is for does not run.
    #[error("this line does not run in the shell")]
    LineOver,
    /// It is no kept shell.
    #[error("the terminal is no kept shell")]
    NotAKeptShell,
    /// The supervisor could not do it: errno(3).
    #[error("the supervisor answered errno {0}")]
    Errno(i32),
}

/// Why a port is not forwarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// The terminal's command does not run.
    #[error(transparent)]
    Terminal(#[from] OperationError),
    /// It cannot be written down.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
    /// The principal has as many open as it may.
    #[error("a principal has at most {0} forwarded connections at once")]
    TooMany(usize),
    /// The sandbox has no network of its own, or an old supervisor.
    #[error("the sandbox has the host's network, or was started by a gateway that could not forward")]
    Unavailable,
    /// Nothing accepts.
    #[error("nothing listens at port {port} of the sandbox's loopback")]
    Closed {
        /// The port.
        port: u16,
        /// What connect(2) said.
        #[source]
        cause: std::io::Error,
    },
}

/// A line was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunLineError {
    /// The shell cannot be asked or typed into.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The gate of its sandbox is off or lost, so that nothing would judge what earlier lines have made of names.
    #[error(
        "the shell's sandbox has no exec gate in force, and earlier lines can change what a later one means"
    )]
    NoGate,
    /// Another line has the shell, or something else runs in it.
    #[error(
        "the shell is busy: another line runs in it, or something else does; wait until it is over, or interrupt it"
    )]
    Busy,
    /// It switches the line editing of bash, which ends of that.
    #[error("a kept bash has no line editing (set -o vi, set -o emacs), and ends if a line switches it")]
    LineEditing,
    /// Too many lines wait.
    #[error("{MAX_QUEUED_LINES} lines wait for the shell, the most there may be")]
    QueueFull,
    /// Its output may hold secrets, among which marks cannot be found for certain.
    #[error("the terminal has secrets, and no line is run in it")]
    HasSecrets,
    /// Its supervisor is of an earlier build, and cannot say what runs in the foreground.
    #[error("the shell's sandbox was started by an earlier build")]
    EarlierBuild,
    /// The rules give the line what the shell does not have, by the names of the policy.
    #[error(
        "the rules give this line {}, which a running shell cannot be given: run it in a terminal of its own",
        .0.join(", ")
    )]
    OtherTerminal(Vec<&'static str>),
    /// It may not be run, or cannot be recorded.
    #[error(transparent)]
    Refused(#[from] CreateError),
}

/// Why a terminal's screen is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScreenAccessError {
    /// It has no pseudo-terminal.
    #[error("the terminal has pipes and not a pseudo-terminal")]
    NoPty,
    /// Its output may hold secrets, which a screen would show.
    #[error("the terminal has secrets, and its screen is not shown")]
    HasSecrets,
    /// There is none now.
    #[error("the terminal's screen is not available")]
    Unavailable,
    /// Its process failed.
    #[error(transparent)]
    Screen(#[from] ScreenError),
}

/// A request was not approved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApprovalError {
    /// A person must approve it first, and the caller does not wait.
    #[error("{0}: a person must approve it first, by the id {1}")]
    Required(Box<ApprovalQuestion>, ApprovalId),
    /// A person said no.
    #[error("{0}: {name} has denied it{comment}", name = approver(.2), comment = comment(.2))]
    Denied(Box<ApprovalQuestion>, ApprovalId, Arc<Answer>),
    /// Nobody answered in time.
    #[error("{0}: nobody approved it in time")]
    Expired(Box<ApprovalQuestion>, ApprovalId),
    /// The policy that asked is not in force any more.
    #[error("{0}: the policy was replaced while this waited for a person; ask again")]
    Superseded(Box<ApprovalQuestion>, ApprovalId),
    /// The request means something else than what was approved.
    #[error("{0}: what it would run has changed since a person approved it; ask again")]
    Changed(Box<ApprovalQuestion>),
    /// The caller's deadline came first.
    #[error("{0}: nobody approved it before the deadline")]
    DeadlineExceeded(Box<ApprovalQuestion>, ApprovalId),
    /// The caller has gone.
    #[error("{0}: the caller has gone")]
    CallerDisconnected(Box<ApprovalQuestion>, ApprovalId),
    /// Too many wait already.
    #[error(transparent)]
    LimitReached(#[from] ApprovalLimitReached),
}

fn approver(answer: &Answer) -> String {
    match answer.on_behalf_of.as_str() {
        "" => answer.approver.to_string(),
        person => format!("{} (for {person})", answer.approver),
    }
}

fn comment(answer: &Answer) -> String {
    match answer.comment.as_str() {
        "" => String::new(),
        comment => format!(": {comment}"),
    }
}

/// An answer to an approval request was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveApprovalError {
    /// There is nothing to answer, or not for this caller.
    #[error(transparent)]
    Resolve(#[from] ApprovalResolveError),
    /// The journal did not take it.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
}

/// Opening a session failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenSessionError {
    /// It may not be, or cannot be.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal did not take the record of it.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
    /// The principal's share of the journal is full.
    #[error(transparent)]
    JournalShare(#[from] QuotaReached),
}

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
            ResolveApprovalError::Resolve(ApprovalResolveError::Unknown) => Self::ApprovalNotFound,
            ResolveApprovalError::Resolve(ApprovalResolveError::NotAnApprover) => Self::NotAnApprover,
            ResolveApprovalError::Resolve(ApprovalResolveError::Over(_)) => Self::ApprovalNotPending,
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
            SpawnRefused::Gate(LinkError::Lost(_)) => Self::SandboxLost,
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

impl From<&LinkError> for Reason {
    /// The link is that to a supervisor, which a request was sent to.
    fn from(error: &LinkError) -> Self {
        match error {
            LinkError::Lost(_) => Self::SandboxLost,
            LinkError::TooLong(..) => Self::ArgumentListTooLong,
            LinkError::TimedOut(_) => Self::SupervisorTimedOut,
            LinkError::Connect(..)
            | LinkError::Version { .. }
            | LinkError::WrongSandbox(..)
            | LinkError::UnexpectedMessage(_)
            | LinkError::Receive(..)
            | LinkError::Unobserved(_) => Self::Supervisor,
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

impl LimitName {
    /// The bound that a request met, if it was one.
    pub(in crate::terminal) fn of(error: &CreateError) -> Option<Self> {
        match error {
            CreateError::Quota(reached) => Some(reached.limit),
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
