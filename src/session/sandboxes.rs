//! The sandboxes of a session: one for each (profile, network), started when first needed. A command with secrets, and
//! each command of a profile with `isolation = "terminal"`, has one of its own, which ends with it.
//!
//! Those who need the same one at the same time share one launch. One that was lost is replaced by the next
//! who asks, never repaired.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::OnceCell;

use super::{DescriptorQuota, Session};
use crate::{
    policy::{
        ExecSpec, ProfileName,
        profile::{Isolation, Network},
    },
    pool::Pool,
    sandbox::{
        counters::SandboxCounters,
        governing::Governing,
        handle::{Sandbox, StartError},
        host::Host,
        sandbox_state::SandboxState,
        spec::{Root, SandboxAssignment, SandboxSpec, Sharing},
    },
};

/// Where sandboxes are built: this host, this gateway's state.
#[derive(Debug)]
pub struct LaunchContext {
    /// What the host offers.
    pub host: Arc<Host>,
    /// Where the file systems of callers are looked at.
    pub pool: Arc<Pool>,
    /// Where large requests are judged.
    pub large_request_pool: Pool,
    /// The gateway's state directory.
    pub state: PathBuf,
    /// What sessions and terminals hold of the gateway's descriptors.
    pub descriptors: Arc<DescriptorQuota>,
    /// What no sandbox may reach.
    pub governing: Arc<Governing>,
    /// Sandboxes end with the gateway's connection.
    pub die_with_gateway: bool,
    /// What has become of them.
    pub counters: Arc<SandboxCounters>,
}

/// When a sandbox was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxOrigin {
    /// For the one who asked.
    Started,
    /// It was up, or another one who asked at the same time has started it.
    Reused,
}

/// A profile that was changed by a reload is another: what runs goes on in the sandbox that it has.
type SandboxKey = (ProfileName, Network, u64);

/// One launch, and what came of it for all who wait for it.
type LaunchCell = OnceCell<Result<Arc<Sandbox>, Arc<StartError>>>;

/// A session's sandboxes.
#[derive(Debug, Default)]
pub struct Sandboxes {
    shared: Mutex<HashMap<SandboxKey, Arc<LaunchCell>>>,
    /// Found after a restart beside another one for the same orders: what runs there goes on, nothing new comes.
    extra: Mutex<Vec<Arc<Sandbox>>>,
}

impl Session {
    /// The sandbox that an order is to run in, started when there is none.
    pub async fn sandbox_for(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
    ) -> Result<(Arc<Sandbox>, Sharing, SandboxOrigin), Arc<StartError>> {
        if sharing_for(context, exec_spec) == Sharing::Exclusive {
            let sandbox =
                self.start_sandbox(context, exec_spec, Sharing::Exclusive).await.map_err(Arc::new)?;
            return Ok((sandbox, Sharing::Exclusive, SandboxOrigin::Started));
        }
        let mut origin = SandboxOrigin::Reused;
        let launch = async || {
            origin = SandboxOrigin::Started;
            self.start_sandbox(context, exec_spec, Sharing::Shared).await.map_err(Arc::new)
        };
        let sandbox = self.sandboxes.launch_cell(sandbox_key(exec_spec)).get_or_init(launch).await.clone()?;
        Ok((sandbox, Sharing::Shared, origin))
    }

    /// Whether the sandbox that an order is to run in is up. It may be lost the moment after.
    pub fn has_sandbox_for(&self, context: &LaunchContext, exec_spec: &ExecSpec) -> bool {
        sharing_for(context, exec_spec) == Sharing::Shared
            && self.sandboxes.launch_cell(sandbox_key(exec_spec)).get().is_some()
    }

    async fn start_sandbox(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
        sharing: Sharing,
    ) -> Result<Arc<Sandbox>, StartError> {
        let roots = self.clone_roots()?;
        let spec = SandboxSpec {
            id: format!("sbx_{}", ulid::Ulid::generate()),
            profile_name: exec_spec.profile_name().to_string(),
            profile: exec_spec.profile().clone(),
            roots,
            network: exec_spec.network(),
            owner: self.owner,
            groups: self.rights.groups.clone(),
            governing: context.governing.clone(),
            assignment: SandboxAssignment {
                session_id: self.id.to_string(),
                confinement: exec_spec.confinement(),
                sharing: sharing,
            },
            die_with_gateway: context.die_with_gateway,
            fail_at: fail_at(),
        };
        Sandbox::start(&context.host, &context.state, spec, &context.counters).await
    }

    fn clone_roots(&self) -> Result<Vec<Root>, StartError> {
        if let Some(lost) = self.lost_roots.first() {
            return Err(StartError::RootGone(lost.as_path().to_owned()));
        }
        let clone = |root: &Root| {
            let descriptor = root.descriptor.try_clone().map_err(StartError::Descriptors)?;
            Ok(Root { path: root.path.clone(), descriptor })
        };
        self.root_descriptors.iter().map(clone).collect()
    }
}

fn sharing_for(context: &LaunchContext, exec_spec: &ExecSpec) -> Sharing {
    // Commands of one sandbox have one id, so that each can read the others' environment and memory.
    let has_secrets = !exec_spec.secrets().is_empty();
    let asked_for = exec_spec.profile().isolation == Isolation::Terminal;
    // Without a tree kill by cgroup, the end of a sandbox's first process is the tree kill.
    match has_secrets || asked_for || !context.host.kills_trees_by_cgroup(&context.state) {
        true => Sharing::Exclusive,
        false => Sharing::Shared,
    }
}

fn sandbox_key(exec_spec: &ExecSpec) -> SandboxKey {
    (exec_spec.profile_name().clone(), exec_spec.network(), exec_spec.confinement())
}

/// The stage of set-up that is to fail, by its name in the supervisor's protocol.
#[cfg(feature = "failpoints")]
fn fail_at() -> Option<String> {
    std::env::var("PROVOST_FAIL_AT").ok()
}

/// None: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
fn fail_at() -> Option<String> {
    None
}

impl Sandboxes {
    /// The launch to wait for. One that has failed, or whose sandbox was lost, is nobody's any more.
    fn launch_cell(&self, key: SandboxKey) -> Arc<LaunchCell> {
        let mut shared = self.lock();
        let cell = shared.entry(key).or_default();
        let is_usable = |launched: &Result<Arc<Sandbox>, _>| launched.as_ref().is_ok_and(|it| it.is_up());
        if cell.get().is_some_and(|launched| !is_usable(launched)) {
            *cell = Arc::default();
        }
        cell.clone()
    }

    /// Takes in a shared sandbox that another gateway has launched.
    pub fn adopt(&self, facts: &SandboxState, sandbox: Arc<Sandbox>) {
        let key = (facts.profile.clone(), facts.network, facts.assignment.confinement);
        match self.lock().entry(key) {
            Entry::Vacant(place) => {
                place.insert(Arc::new(OnceCell::new_with(Some(Ok(sandbox)))));
            }
            Entry::Occupied(_) => self.lock_extra().push(sandbox),
        }
    }

    /// Ends all of them. Returns when nothing of them is left.
    pub async fn shut_down(&self, grace: Duration) {
        let cells: Vec<_> = self.lock().drain().map(|(_, cell)| cell).collect();
        let extra = std::mem::take(&mut *self.lock_extra());
        let mut ending = tokio::task::JoinSet::new();
        for sandbox in cells.iter().filter_map(|cell| cell.get()?.clone().ok()).chain(extra) {
            ending.spawn(async move { sandbox.shut_down(grace).await });
        }
        ending.join_all().await;
    }

    /// Kills all of them: their terminals are lost.
    pub async fn kill(&self) {
        let shared: Vec<_> = self.lock().values().filter_map(|cell| cell.get()?.clone().ok()).collect();
        let extra = self.lock_extra().clone();
        let mut killing = tokio::task::JoinSet::new();
        for sandbox in shared.into_iter().chain(extra) {
            killing.spawn(async move { sandbox.kill().await });
        }
        killing.join_all().await;
    }

    fn lock_extra(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Sandbox>>> {
        self.extra.lock().expect("no code panics while it holds the list of sandboxes")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SandboxKey, Arc<LaunchCell>>> {
        self.shared.lock().expect("no code panics while it holds the table of sandboxes")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_a_launch_fail_with_it_and_the_next_tries_again() {
        let sandboxes = Sandboxes::default();
        let policy = crate::policy::PolicySet::compiled_in();
        let name = policy.profile(None).unwrap().0.clone();
        let launches = AtomicU32::new(0);
        let launch = async || {
            launches.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(Arc::new(StartError::TimedOut))
        };
        let cells: Vec<_> =
            (0..10).map(|_| sandboxes.launch_cell((name.clone(), Network::None, 0))).collect();
        let results = futures_util::future::join_all(cells.iter().map(|cell| cell.get_or_init(launch))).await;
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Err(error) if matches!(**error, StartError::TimedOut)))
        );
        assert_eq!(launches.load(Ordering::Relaxed), 1);
        assert!(sandboxes.launch_cell((name, Network::None, 0)).get().is_none());
    }
}
