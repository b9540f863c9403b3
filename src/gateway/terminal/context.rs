//! The parts of a gateway that the use cases share.
//!
//! A use case that needs little takes single parts; one that needs most takes the context. The context does nothing itself.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    approval::ApprovalStore,
    policy::ActivePolicy,
    resolve::ProgramCache,
    session::{LaunchContext, SessionId},
    terminal::{
        audit::{recorded_reports::RecordedReports, recorder::Recorder},
        connections::{
            bytes::ConnectBytes, connections::Connections, grants::ConnectGrants,
            questions::ConnectQuestions, signatures::Signatures,
        },
        counters::TerminalCounters,
        execs::{questions::ExecQuestions, reports::GateReports},
        forward::Forwards,
        quotas::Quotas,
        screens::{Keeping, Screens},
        secrets::redactor::KnownSecrets,
        state::{
            quota_tracker::{QuotaTracker, QuotaUsage},
            registry::Registry,
            terminal_log::TerminalLogs,
            waiters::Waiters,
        },
    },
    workspace::Workspaces,
};

/// The parts that the use cases share.
#[derive(Debug)]
pub(in crate::terminal) struct TerminalContext {
    launch_context: LaunchContext,
    policy: Arc<ActivePolicy>,
    program_cache: Arc<ProgramCache>,
    known_secrets: Arc<KnownSecrets>,
    approvals: Arc<ApprovalStore>,
    quota_tracker: Arc<QuotaTracker>,
    logs: TerminalLogs,
    workspaces: Workspaces,
    recorder: Recorder,
    counters: Arc<TerminalCounters>,
    registry: Arc<Registry>,
    screens: Arc<Screens>,
    forwards: Arc<Forwards>,
    draining: CancellationToken,
    waiters: Waiters,
}

impl TerminalContext {
    /// A context without terminals. What becomes of the terminals is recorded by `recorder`.
    pub fn new(
        launch_context: LaunchContext,
        policy: Arc<ActivePolicy>,
        approvals: Arc<ApprovalStore>,
        quotas: Quotas,
        recorder: Recorder,
    ) -> Arc<Self> {
        let logs = if launch_context.die_with_gateway {
            TerminalLogs::disabled()
        } else {
            TerminalLogs::in_directory(&launch_context.state)
        };
        let known_secrets = Arc::<KnownSecrets>::default();
        let (registry, counters) = (Arc::<Registry>::default(), Arc::<TerminalCounters>::default());
        launch_context.nets.set_observer(Arc::new(Connections {
            registry: registry.clone(),
            recorder: recorder.clone(),
            policy: policy.clone(),
            counters: counters.clone(),
            questions: ConnectQuestions::new(
                approvals.clone(),
                recorder.clone(),
                policy.clone(),
                known_secrets.clone(),
            ),
            grants: ConnectGrants::default(),
            bytes: ConnectBytes::default(),
            known_secrets: known_secrets.clone(),
            authorities: launch_context.nets.authorities().clone(),
            pool: launch_context.pool.clone(),
            governing: launch_context.governing.clone(),
        }));
        launch_context.agents.set_observer(Arc::new(Signatures { recorder: recorder.clone() }));
        launch_context.gates.set_observer(Arc::new(GateReports {
            registry: registry.clone(),
            recorder: recorder.clone(),
            policy: policy.clone(),
            known_secrets: known_secrets.clone(),
            counters: counters.clone(),
            sandbox_counters: launch_context.counters.clone(),
            recorded_before: RecordedReports::new(recorder.clone()),
            questions: ExecQuestions::new(approvals.clone()),
        }));
        let keeping = if launch_context.die_with_gateway { Keeping::None } else { Keeping::All };
        let screens =
            Screens::new(launch_context.host.clone(), keeping, &launch_context.state, registry.clone());
        let quota_tracker = QuotaTracker::new(quotas, launch_context.descriptors.clone());
        Arc::new(Self {
            workspaces: Workspaces::new((!launch_context.die_with_gateway).then_some(&*launch_context.state)),
            launch_context,
            logs,
            policy,
            program_cache: Arc::default(),
            known_secrets,
            approvals,
            quota_tracker,
            recorder,
            counters,
            screens,
            forwards: Arc::default(),
            registry,
            draining: CancellationToken::new(),
            waiters: Waiters::default(),
        })
    }

    /// The screens of the terminals.
    pub(in crate::terminal) fn screens(&self) -> &Arc<Screens> {
        &self.screens
    }

    /// The connections to ports inside.
    pub(in crate::terminal) fn forwards(&self) -> &Arc<Forwards> {
        &self.forwards
    }

    /// Lets no new terminal begin.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Waits until no new one may begin.
    pub(in crate::terminal) async fn wait_draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether new ones may begin.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// What a session has.
    pub fn session_usage(&self, session: SessionId) -> QuotaUsage {
        self.quota_tracker.session_usage(session)
    }

    /// What all sessions have.
    pub fn total_usage(&self) -> QuotaUsage {
        self.quota_tracker.total_usage()
    }

    /// What has become of sessions, requests and terminals.
    pub fn counters(&self) -> &Arc<TerminalCounters> {
        &self.counters
    }

    /// Where sandboxes are built, and what has become of them.
    pub fn launch_context(&self) -> &LaunchContext {
        &self.launch_context
    }

    /// What persons are asked.
    pub fn approvals(&self) -> &Arc<ApprovalStore> {
        &self.approvals
    }

    pub(in crate::terminal) fn program_cache(&self) -> &Arc<ProgramCache> {
        &self.program_cache
    }

    pub(in crate::terminal) fn known_secrets(&self) -> &KnownSecrets {
        &self.known_secrets
    }

    /// The recorder of what happens.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The workspaces that commands write.
    pub(in crate::terminal) fn workspaces(&self) -> &Workspaces {
        &self.workspaces
    }

    pub(in crate::terminal) fn logs(&self) -> &TerminalLogs {
        &self.logs
    }

    pub(in crate::terminal) fn quota_tracker(&self) -> &Arc<QuotaTracker> {
        &self.quota_tracker
    }

    /// The policy that judges.
    pub fn policy(&self) -> &Arc<ActivePolicy> {
        &self.policy
    }

    /// All terminals.
    pub(in crate::terminal) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The callers who wait for a terminal.
    pub(in crate::terminal) fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}
