//! Makes the audit records of terminals, approvals, sessions and workspaces. Pure: writes nothing, waits for nothing.
//!
//! No record holds a variable's value, input or output. The journal's types limit what a caller wrote.

use std::time::Duration;

use crate::{
    approval::{
        Answer, Approval, ApprovalId, ApprovalLimitReached, ApprovalRequest, ApprovalStatus, ApproverDecision,
    },
    byte_text,
    journal::{
        Adopted, ApprovalExpired, ApprovalRequested, ApprovalResolved, BypassReport, BypassReported,
        CacheKept, CommandLocation, DecisionRecord, ExitOutcome, ExitRecord, JudgedCommands, KillRequested,
        ObservedDecision, PtyRecord, QuotaRefused, ReceiptRecord, Record, RecordedCommand, RecordedVerdict,
        SessionClosed, SessionOpened, ShortfallRecord, SignalRecord, SpawnFailed, SpawnRecord, StartedRecord,
        UsageRecord, WorkspaceChange,
    },
    policy::{self, AbsPath, CommandSpec, Denial, EvaluationTrace, ExecSpec, Permit, Request, command::rule},
    proto::v1::{self, Network, Outcome, outcome},
    reason::Reason,
    sandbox::{
        control::{handle::Sandbox, requests::SpawnRefused, spawn_error::stage_name, start::StartError},
        launch::LaunchError,
    },
    session::{KeptReport, Principal, Session, SessionId},
    signal,
    terminal::{
        secrets::command_secrets::SecretError,
        spec::{CommandForm, TerminalId, TerminalSpec},
    },
    workspace::{ChangeAction, DangerousChange, WatchError},
};

/// A terminal, its session and its principal, by name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    /// The terminal.
    pub terminal: TerminalId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// The principal that owns both.
    pub principal: Principal,
}

/// A request that was allowed. Its terminal is added when there is one.
pub(crate) fn allowed(
    session: &Session,
    request: &Request,
    permit: &Permit,
    trace: &EvaluationTrace,
) -> DecisionRecord {
    DecisionRecord {
        rule: permit.rule().map(str::to_owned),
        ..decision(session, request, RecordedVerdict::Allow, permit.generation(), trace)
    }
}

/// A request that was denied, or that a person is to decide about.
pub(crate) fn denied(
    session: &Session,
    request: &Request,
    denial: &Denial,
    generation: u64,
    trace: &EvaluationTrace,
) -> DecisionRecord {
    DecisionRecord {
        rule: Some(denial.rule()),
        reason: denial.to_string(),
        ..decision(session, request, verdict_of(denial.decision()), generation, trace)
    }
}

/// Names the approval that a decision follows, and leaves the command to the record of the question.
pub(crate) fn with_approval(
    mut decision: DecisionRecord,
    approval: Option<ApprovalId>,
    asked_in: Option<u64>,
) -> DecisionRecord {
    if let Some(approval) = approval {
        decision.approval = Some(approval.to_string());
        // An approval is for a request of one digest, and so for the same text.
        if let (RecordedVerdict::Allow, Some(asked_in)) = (decision.verdict, asked_in) {
            decision.command_in = Some(CommandLocation::Record(asked_in));
            (decision.command, decision.judged) = Default::default();
        }
    }
    decision
}

/// The record that has the text of a decision which is written just before another record.
pub(crate) fn command_in(decision: &DecisionRecord) -> CommandLocation {
    decision.command_in.unwrap_or(CommandLocation::PRECEDING)
}

fn decision(
    session: &Session,
    request: &Request,
    verdict: RecordedVerdict,
    generation: u64,
    trace: &EvaluationTrace,
) -> DecisionRecord {
    let observed = trace
        .observed
        .iter()
        .map(|(rule, decision)| ObservedDecision { rule: rule.clone(), verdict: verdict_of(*decision) });
    DecisionRecord {
        principal: session.principal.to_string(),
        session: session.id.to_string(),
        front_end: session.front_end.clone(),
        terminal: None,
        request_digest: trace.digest.map(|digest| digest.to_string()),
        verdict,
        rule: None,
        generation,
        reason: String::new(),
        command: match &request.command {
            CommandSpec::Argv { command, args } => RecordedCommand::new(
                std::iter::once(command).chain(args).map(|word| byte_text::to_bytes(word)),
            ),
            CommandSpec::ShellLine(line) => RecordedCommand::new([byte_text::to_bytes(line)]),
        },
        command_in: None,
        judged: JudgedCommands::new(trace.commands.iter().map(|command| byte_text::to_bytes(command))),
        observed: observed.collect(),
        approval: None,
        cwd: request.cwd.shown(),
    }
}

fn verdict_of(decision: rule::Decision) -> RecordedVerdict {
    match decision {
        rule::Decision::Allow => RecordedVerdict::Allow,
        rule::Decision::Deny => RecordedVerdict::Deny,
        rule::Decision::Ask => RecordedVerdict::Ask,
    }
}

/// What a cap refused: of this session, or a session.
pub(crate) fn quota_refused(
    principal: Principal,
    session: Option<SessionId>,
    limit: &str,
    bound: u64,
) -> Record {
    Record::QuotaRefused(QuotaRefused {
        principal: principal.to_string(),
        session: session.map(|session| session.to_string()),
        limit: limit.to_owned(),
        bound,
    })
}

/// A command that is about to be started in a sandbox. What it is, its decision says.
pub(crate) fn spawn(
    subject: Subject,
    terminal_spec: &TerminalSpec,
    exec_spec: &ExecSpec,
    sandbox: &Sandbox,
    command_in: CommandLocation,
) -> Record {
    let before = match terminal_spec.form {
        CommandForm::Program => 0,
        CommandForm::ShellLine => exec_spec.argv().len().saturating_sub(1),
    };
    Record::Spawn(SpawnRecord {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        sandbox: sandbox.id().to_owned(),
        profile: exec_spec.profile_name().to_string(),
        request_digest: terminal_spec.digest.to_string(),
        generation: terminal_spec.generation,
        command: RecordedCommand::new(&exec_spec.argv()[..before]),
        command_in: Some(command_in),
    })
}

/// A command that runs.
pub(crate) fn started(subject: Subject, pid: u32, receipt: v1::Receipt) -> Record {
    let network = network_name(receipt.network()).to_owned();
    Record::Started(StartedRecord {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        pid,
        receipt: ReceiptRecord {
            sandbox: receipt.sandbox_id,
            profile: receipt.profile,
            namespaces: receipt.namespaces,
            host_uid: receipt.host_uid,
            host_gid: receipt.host_gid,
            no_new_privs: receipt.no_new_privs,
            capabilities: receipt.capabilities.into_iter().collect(),
            seccomp_mode: receipt.seccomp_mode,
            seccomp_filters: receipt.seccomp_filters,
            landlock_abi: receipt.landlock_abi,
            gate: receipt.gate,
            network,
            network_exposure: receipt.network_exposure,
            limits: receipt.limits.into_iter().collect(),
            cgroup: receipt.cgroup,
            shortfalls: receipt.shortfalls,
            pty: receipt.pty.map(|size| PtyRecord { columns: size.columns, rows: size.rows }),
        },
    })
}

/// A command that a gateway before this one has started.
pub(crate) fn adopted(subject: Subject, sandbox_id: &str, pid: u32) -> Record {
    Record::Adopted(Adopted {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        sandbox: sandbox_id.to_owned(),
        pid,
    })
}

/// A command that could not have its secrets.
pub(crate) fn secret_failed(subject: Subject, error: &SecretError) -> Record {
    spawn_failed(subject, Reason::SecretUnavailable, "secret".to_owned(), error.fault.errno(), error)
}

/// A command whose sandbox could not be had.
pub(crate) fn sandbox_failed(subject: Subject, error: &StartError) -> Record {
    let (stage, errno) = match error {
        StartError::Launch(LaunchError::Stage { stage, errno, .. }) => {
            (stage_name(*stage), Some(*errno as i32))
        }
        StartError::Launch(_) => ("launch".to_owned(), None),
        StartError::Connect(_) => ("connect".to_owned(), None),
        StartError::RootGone(_) => ("root".to_owned(), None),
        StartError::KeptCaches(error) => ("kept_caches".to_owned(), error.errno().map(|errno| errno as i32)),
        StartError::KeptCachesWait(_) => ("kept_caches".to_owned(), None),
        StartError::Gate(_) => ("gate".to_owned(), None),
        StartError::Net(_) => ("net".to_owned(), None),
        StartError::Descriptors(error) => ("launch".to_owned(), error.raw_os_error()),
    };
    spawn_failed(subject, error.into(), stage, errno, error)
}

/// A command whose workspace nobody would watch.
pub(crate) fn watch_failed(subject: Subject, error: &WatchError) -> Record {
    spawn_failed(subject, error.into(), "workspace".to_owned(), None, error)
}

/// A command that could not be added to the terminal log of its session.
pub(crate) fn log_failed(subject: Subject, error: &std::io::Error) -> Record {
    spawn_failed(subject, Reason::StateUnwritable, "terminal_log".to_owned(), error.raw_os_error(), error)
}

/// A command that its sandbox did not start.
pub(crate) fn exec_failed(subject: Subject, refused: &SpawnRefused) -> Record {
    let (stage, errno) = match refused {
        SpawnRefused::Failed(failure) | SpawnRefused::Changed { failure, .. } => {
            (stage_name(failure.stage), Some(failure.errno))
        }
        SpawnRefused::Control(_) => ("control".to_owned(), None),
        SpawnRefused::Ring(_) => ("output_ring".to_owned(), None),
        SpawnRefused::NoPtys => ("pty".to_owned(), None),
        SpawnRefused::NoUmask => ("umask".to_owned(), None),
        SpawnRefused::Gate(_) => ("gate".to_owned(), None),
    };
    spawn_failed(subject, refused.into(), stage, errno, refused)
}

fn spawn_failed(
    subject: Subject,
    reason: Reason,
    stage: String,
    errno: Option<i32>,
    error: &dyn std::error::Error,
) -> Record {
    Record::SpawnFailed(SpawnFailed {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        reason: reason.code().to_owned(),
        stage,
        errno,
        problem: error.to_string(),
    })
}

/// What asked for the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// Its owner said so.
    Kill,
    /// Its owner releases it while it runs.
    Release,
    /// Its session or the gateway ends.
    Shutdown,
}

/// The end of a command was asked for.
pub(crate) fn kill_requested(subject: Subject, reason: KillReason, grace: Option<Duration>) -> Record {
    let principal = subject.principal.to_string();
    let (by, cause) = match reason {
        KillReason::Kill => (Some(principal.clone()), "kill"),
        KillReason::Release => (Some(principal.clone()), "release"),
        KillReason::Shutdown => (None, "session_closed"),
    };
    Record::KillRequested(KillRequested {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal,
        by,
        cause: cause.to_owned(),
        grace_ms: grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// A signal was asked for.
pub(crate) fn signal_sent(subject: Subject, number: i32) -> Record {
    Record::Signal(SignalRecord {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        signal: signal::name(number),
    })
}

/// A command has ended.
pub(crate) fn exit(subject: Subject, outcome: &Outcome) -> Record {
    let usage = outcome.usage.as_ref();
    let micros = |time: Option<&prost_types::Duration>| {
        time.map_or(0, |time| {
            time.seconds.unsigned_abs() * 1_000_000 + u64::from(time.nanos.unsigned_abs() / 1_000)
        })
    };
    Record::Exit(ExitRecord {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        outcome: match &outcome.end {
            Some(outcome::End::ExitCode(code)) => ExitOutcome::Exited { code: *code },
            Some(outcome::End::Signal(signal)) => ExitOutcome::Signalled { signal: signal.clone() },
            None => ExitOutcome::Lost,
        },
        cause: outcome.cause().as_str_name().trim_start_matches("EXIT_CAUSE_").to_ascii_lowercase(),
        usage: UsageRecord {
            wall_us: micros(usage.and_then(|usage| usage.wall.as_ref())),
            cpu_user_us: micros(usage.and_then(|usage| usage.cpu_user.as_ref())),
            cpu_system_us: micros(usage.and_then(|usage| usage.cpu_system.as_ref())),
            memory_peak_bytes: usage.map_or(0, |usage: &v1::Usage| usage.memory_peak_bytes),
            io_read_bytes: usage.and_then(|usage| usage.io_read_bytes),
            io_write_bytes: usage.and_then(|usage| usage.io_write_bytes),
        },
        survivors: outcome.survivors,
        stragglers_killed: outcome.stragglers_killed,
        ended_processes: outcome.ended_processes,
        ended_commands: outcome.ended_commands.clone(),
    })
}

fn network_name(network: Network) -> &'static str {
    match network {
        Network::Unspecified => "",
        Network::None => "none",
        Network::Host => "host",
        Network::Proxy => "proxy",
    }
}

/// A person is about to be asked.
pub(in crate::terminal) fn approval_requested(request: &ApprovalRequest, expiry: Duration) -> Record {
    let question = &request.action.question;
    Record::ApprovalRequested(ApprovalRequested {
        approval: request.id.to_string(),
        principal: request.action.principal.to_string(),
        session: request.action.session.to_string(),
        request_digest: question.digest.to_string(),
        generation: question.generation,
        rule: question.rule.clone(),
        expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
    })
}

/// An answer is about to count.
pub(in crate::terminal) fn approval_resolved(request: &ApprovalRequest, answer: &Answer) -> Record {
    Record::ApprovalResolved(ApprovalResolved {
        approval: request.id.to_string(),
        principal: request.action.principal.to_string(),
        session: request.action.session.to_string(),
        verdict: match answer.decision {
            ApproverDecision::Approve => RecordedVerdict::Allow,
            ApproverDecision::Deny => RecordedVerdict::Deny,
        },
        approver: answer.approver.to_string(),
        on_behalf_of: Some(answer.on_behalf_of.clone()).filter(|person| !person.is_empty()),
        comment: answer.comment.clone(),
    })
}

/// A question is over, or an approval is void. `None`: the answer, or its use, has its own record.
pub(in crate::terminal) fn approval_ended(approval: &Approval) -> Option<Record> {
    let cause = match approval.state {
        ApprovalStatus::Expired => "time",
        ApprovalStatus::Superseded => "reload",
        ApprovalStatus::Withdrawn => "withdrawn",
        ApprovalStatus::Pending
        | ApprovalStatus::Approved
        | ApprovalStatus::Used
        | ApprovalStatus::Denied => return None,
    };
    let action = &approval.request.action;
    Some(Record::ApprovalExpired(ApprovalExpired {
        approval: approval.id().to_string(),
        principal: action.principal.to_string(),
        session: action.session.to_string(),
        cause: cause.to_owned(),
    }))
}

/// A question was written and could not be put.
pub(in crate::terminal) fn approval_not_submitted(session: &Session, id: ApprovalId) -> Record {
    Record::ApprovalExpired(ApprovalExpired {
        approval: id.to_string(),
        principal: session.principal.to_string(),
        session: session.id.to_string(),
        cause: "no_room".to_owned(),
    })
}

/// There is no room for another question.
pub(in crate::terminal) fn approval_limit_reached(
    session: &Session,
    reached: &ApprovalLimitReached,
) -> Record {
    quota_refused(session.principal, Some(session.id), reached.name(), reached.max().into())
}

/// A session was opened.
pub(crate) fn session_opened(session: &Session) -> Record {
    Record::SessionOpened(SessionOpened {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        roots: session.writable_roots().map(AbsPath::shown).collect(),
        read_only_roots: session.read_only_roots().map(AbsPath::shown).collect(),
        profile: session.profile.clone(),
        labels: session.labels.clone(),
        front_end: session.front_end.clone(),
    })
}

/// A caller reports a command that bypassed the gateway.
pub(crate) fn bypass_reported(session: &Session, report: BypassReport) -> Record {
    let (session, principal) = (session.id.to_string(), session.principal.to_string());
    Record::BypassReported(BypassReported { session, principal, report })
}

/// What became of a kept cache when its session had ended.
pub(crate) fn cache_kept(session: &Session, report: &KeptReport) -> Record {
    let (kept, problem) = match &report.outcome {
        Ok(kept) => (Some(kept), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Record::CacheKept(CacheKept {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        cache: report.place.display().to_string(),
        files: kept.map(|kept| kept.files),
        bytes: kept.map(|kept| kept.used_bytes),
        left_out: kept.map_or(0, |kept| kept.left_out),
        problem,
    })
}

/// Nothing is left of a session.
pub(crate) fn session_closed(session: &Session, cause: &str) -> Record {
    Record::SessionClosed(SessionClosed {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        cause: cause.to_owned(),
    })
}

/// What a sandbox was to have and has not.
pub(crate) fn shortfalls(session: &Session, profile: &policy::ProfileName, sandbox: &Sandbox) -> Vec<Record> {
    let of = |shortfall: &crate::sandbox::spec::Shortfall| {
        Record::Shortfall(ShortfallRecord {
            session: Some(session.id.to_string()),
            principal: Some(session.principal.to_string()),
            sandbox: Some(sandbox.id().to_owned()),
            profile: Some(profile.to_string()),
            protection: shortfall.protection.clone().into_owned(),
            reason: shortfall.reason.clone(),
        })
    };
    sandbox.shortfalls().iter().map(of).collect()
}

/// Something in a workspace has changed while a command ran, and something was done about it.
pub(crate) fn workspace_change(subject: Subject, change: &DangerousChange) -> Record {
    let (action, failure) = match &change.action {
        ChangeAction::Restored => ("restored", None),
        ChangeAction::Quarantined => ("quarantined", None),
        ChangeAction::Reported => ("reported", None),
        ChangeAction::Failed(reason) => ("failed", Some(reason.clone())),
    };
    Record::WorkspaceChange(WorkspaceChange {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        path: crate::printable::path(&change.path),
        what: change.what.clone(),
        action: action.to_owned(),
        failure,
        sha256: change.sha256.clone(),
    })
}

/// Some of a workspace was not looked at while a command ran.
pub(crate) fn workspace_shortfall(
    subject: Subject,
    sandbox_id: Option<String>,
    profile: &policy::ProfileName,
    reason: &str,
) -> Record {
    Record::Shortfall(ShortfallRecord {
        session: Some(subject.session.to_string()),
        principal: Some(subject.principal.to_string()),
        sandbox: sandbox_id,
        profile: Some(profile.to_string()),
        protection: "workspace".to_owned(),
        reason: reason.to_owned(),
    })
}
