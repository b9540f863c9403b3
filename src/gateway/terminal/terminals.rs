//! The terminals of a gateway, as the API and the gateway use them. Each method calls a use case with the parts that it
//! needs.

mod control;
mod lifecycle;

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

use crate::{
    approval::{Answer, Approval, ApprovalId, ApprovalStore},
    policy::{ActivePolicy, explain::Explanation},
    pool::PoolError,
    session::{LaunchContext, Principal, SessionId},
    terminal::{
        audit::recorder::Recorder,
        context::TerminalContext,
        counters::TerminalCounters,
        errors::{CreateError, OperationError, ResolveApprovalError},
        evaluation, explain,
        id::TerminalId,
        new_request::NewRequest,
        quotas::Quotas,
        resolve_approval,
        state::{quota_tracker::QuotaUsage, terminal::Terminal, waiters::Waiters},
    },
};

/// The terminals of a gateway.
#[derive(Debug)]
pub struct Terminals {
    context: Arc<TerminalContext>,
}

impl Terminals {
    /// No terminals yet. What becomes of them is recorded by `recorder`.
    pub fn new(
        launch_context: LaunchContext,
        policy: Arc<ActivePolicy>,
        approvals: Arc<ApprovalStore>,
        quotas: Quotas,
        recorder: Recorder,
    ) -> Arc<Self> {
        let context = TerminalContext::new(launch_context, policy, approvals, quotas, recorder);
        Arc::new(Self { context })
    }

    /// The caller's terminal of that id, of that session when one is named. `None` for a malformed, unknown,
    /// released or foreign one, without a difference.
    pub fn find(&self, principal: Principal, id: &str, session: &str) -> Option<Arc<Terminal>> {
        self.context.registry().find(principal, id, session)
    }

    /// The primary terminal of a session: the chosen one, else the oldest pseudo-terminal that is not released.
    pub fn primary(&self, session: SessionId) -> Option<TerminalId> {
        self.context.registry().primary(session)
    }

    /// Told after each change of any session's primary terminal.
    pub fn primary_changes(&self) -> watch::Receiver<()> {
        self.context.registry().primary_changes()
    }

    /// Makes a terminal the primary one of its session.
    ///
    /// # Errors
    /// It has pipes.
    pub fn set_primary(&self, terminal: &Terminal) -> Result<(), OperationError> {
        if terminal.pty_size().is_none() {
            return Err(OperationError::NoPty);
        }
        self.context.registry().set_primary(terminal);
        Ok(())
    }

    /// The caller's terminals, oldest first; of one session when it is named.
    pub fn list(&self, principal: Principal, session: Option<SessionId>) -> Vec<Arc<Terminal>> {
        self.context.registry().list(principal, session)
    }

    /// As [`Self::list`], those after one that was listed before.
    pub fn list_after(
        &self,
        principal: Principal,
        session: Option<SessionId>,
        after: Option<TerminalId>,
    ) -> Vec<Arc<Terminal>> {
        self.context.registry().list_after(principal, session, after)
    }

    /// Terminals whose state has changed, from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Terminal>> {
        self.context.registry().changes()
    }

    /// Creates a terminal, or finds the one that the same request created. A caller that goes away meanwhile has
    /// either the one terminal of its request id, or none.
    pub async fn create(&self, new: NewRequest) -> Result<Arc<Terminal>, Arc<CreateError>> {
        self.context.create(new).await
    }

    /// Explains what policy would decide about a request.
    ///
    /// # Errors
    /// When the file systems of the caller do not answer.
    pub async fn explain(&self, new: &NewRequest) -> Result<Explanation, PoolError> {
        let launch_context = self.context.launch_context();
        explain::explain(self.context.policy(), self.context.program_cache(), launch_context, new).await
    }

    /// Does what a large request asks for, one at a time of each user, and gives the memory that it took back to the system.
    ///
    /// # Errors
    /// [`PoolError`].
    pub async fn on_large_request_pool<T: Send + 'static>(
        &self,
        uid: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        evaluation::on_large_request_pool(self.context.launch_context(), uid, work).await
    }

    /// Answers a question. Of many who answer, one succeeds. An approval counts when it is in the journal; a denial
    /// counts in any case. Once begun, it is done even when the caller goes away.
    pub async fn resolve(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ResolveApprovalError> {
        resolve_approval::resolve(self.context.approvals(), self.context.recorder(), id, answer).await
    }

    /// The callers who wait for a terminal.
    pub fn waiters(&self) -> &Waiters {
        self.context.waiters()
    }

    /// What a session has of its quotas.
    pub fn session_usage(&self, session: SessionId) -> QuotaUsage {
        self.context.session_usage(session)
    }

    /// What all sessions have of their quotas.
    pub fn total_usage(&self) -> QuotaUsage {
        self.context.total_usage()
    }

    /// The counters of sessions, requests and terminals.
    pub fn counters(&self) -> &Arc<TerminalCounters> {
        self.context.counters()
    }

    /// Where sandboxes are built, and what has become of them.
    pub fn launch_context(&self) -> &LaunchContext {
        self.context.launch_context()
    }

    /// The questions that persons are asked.
    pub fn approvals(&self) -> &Arc<ApprovalStore> {
        self.context.approvals()
    }

    /// The recorder of what happens.
    pub fn recorder(&self) -> &Recorder {
        self.context.recorder()
    }

    /// The policy in force.
    pub fn policy(&self) -> &ActivePolicy {
        self.context.policy()
    }
}
