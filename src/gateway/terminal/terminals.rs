//! The terminals of a gateway: the parts that all of them share.
//!
//! What is done with terminals is in the files of its story, as methods of [`Terminals`]: `create`, `permit`, `approvals`, `run`, `end`,
//! `adopt`, `sessions`, `shells`. What needs one terminal only is a method of that terminal.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio_util::sync::CancellationToken;

use crate::{
    approval::ApprovalStore,
    policy::ActivePolicy,
    resolve::ProgramCache,
    session::LaunchContext,
    terminal::{
        connections::{
            attempt::ConnectBytes,
            connections::Connections,
            questions::{ConnectGrants, ConnectQuestions},
            signatures::Signatures,
        },
        control::Forwards,
        counters::TerminalCounters,
        execs::{questions::ExecQuestions, reports::GateReports},
        quotas::{QuotaTracker, Quotas},
        recorder::{RecordedReports, Recorder},
        registry::{Registry, Waiters},
        screens::{Keeping, Screens},
        secrets::redactor::KnownSecrets,
        terminal_log::TerminalLogs,
    },
    workspace::Workspaces,
};

/// The terminals of a gateway.
#[derive(Debug)]
pub(crate) struct Terminals {
    pub(super) launch_context: LaunchContext,
    pub(super) policy: Arc<ActivePolicy>,
    pub(super) program_cache: Arc<ProgramCache>,
    pub(super) known_secrets: Arc<KnownSecrets>,
    pub(super) approvals: Arc<ApprovalStore>,
    pub(super) quotas: Arc<QuotaTracker>,
    pub(super) logs: TerminalLogs,
    pub(super) workspaces: Workspaces,
    pub(super) recorder: Recorder,
    pub(super) counters: Arc<TerminalCounters>,
    pub(super) registry: Arc<Registry>,
    pub(super) screens: Arc<Screens>,
    forwards: Arc<Forwards>,
    draining: CancellationToken,
    waiters: Waiters,
}

impl Terminals {
    /// No terminals yet. What becomes of them is recorded by `recorder`.
    pub(crate) fn new(
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
        let quotas = QuotaTracker::new(quotas, launch_context.descriptors.clone());
        Arc::new(Self {
            workspaces: Workspaces::new((!launch_context.die_with_gateway).then_some(&*launch_context.state)),
            launch_context,
            logs,
            policy,
            program_cache: Arc::default(),
            known_secrets,
            approvals,
            quotas,
            recorder,
            counters,
            screens,
            forwards: Arc::default(),
            registry,
            draining: CancellationToken::new(),
            waiters: Waiters::default(),
        })
    }

    /// Lets no new terminal begin.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    /// Waits until no new one may begin.
    pub(super) async fn wait_draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether new terminals are refused.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// All terminals, by id, session and request.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What sessions have of their quotas.
    pub(crate) fn quotas(&self) -> &QuotaTracker {
        &self.quotas
    }

    /// The screens of the pseudo-terminals.
    pub(crate) fn screens(&self) -> &Screens {
        &self.screens
    }

    /// The connections to ports in sandboxes.
    pub(crate) fn forwards(&self) -> &Arc<Forwards> {
        &self.forwards
    }

    /// The callers who wait for a terminal.
    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// The counters of sessions, requests and terminals.
    pub(crate) fn counters(&self) -> &Arc<TerminalCounters> {
        &self.counters
    }

    /// Where sandboxes are built, and what has become of them.
    pub(crate) fn launch_context(&self) -> &LaunchContext {
        &self.launch_context
    }

    /// The questions that persons are asked.
    pub(crate) fn approvals(&self) -> &Arc<ApprovalStore> {
        &self.approvals
    }

    /// The recorder of what happens.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &ActivePolicy {
        &self.policy
    }
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type OnDropped<T> = Box<dyn FnOnce(T) -> Work<()> + Send>;

/// Runs `work` to its end whatever becomes of the caller; when the caller has gone by then, `on_dropped` gets the
/// result instead.
///
/// A caller may disconnect in the middle of a create or a release, which must be completed or undone all the same. While the
/// caller waits, the work runs on the caller's task at no cost: a task for each from its beginning would cost a switch each time.
/// When the caller drops it, the rest moves to its own task.
pub(super) fn run_to_completion<T, W, A>(
    work: W,
    on_dropped: impl FnOnce(T) -> A + Send + 'static,
) -> RunToCompletion<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    RunToCompletion {
        work: Some(Box::pin(work)),
        on_dropped: Some(Box::new(|result| Box::pin(on_dropped(result)))),
    }
}

/// See [`run_to_completion`].
pub(super) struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
    on_dropped: Option<OnDropped<T>>,
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("a future is not polled after it was ready");
        let result = work.as_mut().poll(context);
        if result.is_ready() {
            self.work = None;
        }
        result
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let (Some(work), Some(on_dropped)) = (self.work.take(), self.on_dropped.take()) else { return };
        // Outside of a runtime the gateway itself is ending, and its sandboxes with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { on_dropped(work.await).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn dropped_work_is_completed_and_its_result_goes_to_on_dropped() {
        let (go, gone) = oneshot::channel::<u32>();
        let (sender, receiver) = oneshot::channel();
        let mut work = Box::pin(run_to_completion(async { gone.await.unwrap() }, |result| async move {
            sender.send(result).unwrap();
        }));
        assert!(std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending())).await);
        drop(work);
        go.send(7).unwrap();
        assert_eq!(receiver.await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_is_waited_for_answers_its_caller_only() {
        let result = run_to_completion(async { 7 }, |_| async { panic!("nobody has gone") }).await;
        assert_eq!(result, 7);
    }
}
