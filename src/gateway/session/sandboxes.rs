//! The shared sandboxes of a session, each started when first needed, and the network namespaces that its sandboxes have in common where
//! each of them runs one command: one for each profile, network and confinement.
//!
//! Callers that need the same sandbox at the same time share one launch. A sandbox that was lost is replaced by the next caller that needs
//! it, and never repaired. What an earlier gateway has launched goes on in the network namespace that it has, and its supervisors hand that
//! to this gateway.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::OnceCell;

use super::{
    LaunchContext,
    descriptors::{DescriptorQuota, DescriptorReservation},
    principal::Principal,
};
use crate::{
    policy::{ExecSpec, ProfileName, profile::Network},
    sandbox::{
        control::{handle::Sandbox, start::StartError},
        sandbox_state::SandboxState,
        session_network::{DESCRIPTORS, SessionNetwork},
    },
};

/// A profile that was changed by a reload is another: what runs goes on in the sandbox that it has.
pub(super) type SandboxKey = (ProfileName, Network, u64);

/// One launch, and what came of it for all who wait for it.
pub(super) type LaunchCell = OnceCell<Result<Arc<Sandbox>, Arc<StartError>>>;

/// A session's sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Sandboxes {
    shared: Mutex<HashMap<SandboxKey, Arc<LaunchCell>>>,
    /// What runs there goes on, and nothing new comes: found after a restart in addition to another one for the same
    /// commands, or without their gates.
    extra: Mutex<Vec<Arc<Sandbox>>>,
}

pub(super) fn sandbox_key(exec_spec: &ExecSpec) -> SandboxKey {
    (exec_spec.profile_name().clone(), exec_spec.network(), exec_spec.confinement())
}

/// The key of a sandbox that another gateway has launched.
pub(super) fn key_of(state: &SandboxState) -> SandboxKey {
    (state.profile.clone(), state.network, state.assignment.confinement)
}

impl Sandboxes {
    /// The launch to wait for. One that has failed, or whose sandbox was lost, is nobody's any more.
    pub(super) fn launch_cell(&self, key: SandboxKey) -> Arc<LaunchCell> {
        let mut shared = self.lock();
        let cell = shared.entry(key).or_default();
        match cell.get() {
            None => {}
            Some(Ok(sandbox)) if sandbox.takes_commands() => {}
            Some(launched) => {
                if let Ok(sandbox) = launched
                    && sandbox.is_up()
                {
                    self.lock_extra().push(sandbox.clone());
                }
                *cell = Arc::default();
            }
        }
        cell.clone()
    }

    /// Adds a shared sandbox that another gateway has launched.
    pub(crate) fn adopt(&self, state: &SandboxState, sandbox: Arc<Sandbox>) {
        match self.lock().entry(key_of(state)) {
            Entry::Vacant(place) => {
                place.insert(Arc::new(OnceCell::new_with(Some(Ok(sandbox)))));
            }
            Entry::Occupied(_) => self.lock_extra().push(sandbox),
        }
    }

    /// Ends all of them. Returns when nothing of them is left.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        let cells: Vec<_> = self.lock().drain().map(|(_, cell)| cell).collect();
        let extra = std::mem::take(&mut *self.lock_extra());
        let mut ending = tokio::task::JoinSet::new();
        for sandbox in cells.iter().filter_map(|cell| cell.get()?.clone().ok()).chain(extra) {
            ending.spawn(async move { sandbox.shut_down(grace).await });
        }
        ending.join_all().await;
    }

    /// Kills all of them: their terminals are lost.
    pub(crate) async fn kill(&self) {
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

/// Those of a session. Then the oldest one is let go: what runs there goes on, and a new command meets it no more.
const MAX_NETWORKS: usize = 16;

/// A session's networks.
#[derive(Debug, Default)]
pub(super) struct SessionNetworks(Mutex<VecDeque<HeldNetwork>>);

#[derive(Debug)]
struct HeldNetwork {
    key: SandboxKey,
    place: Arc<NetworkPlace>,
    _descriptors: DescriptorReservation,
}

/// A network, or where it can be had.
#[derive(Debug, Default)]
struct NetworkPlace {
    network: Arc<SessionNetwork>,
    /// Held while it is asked for: nobody makes a second one meanwhile.
    turn: tokio::sync::Mutex<()>,
    /// Sandboxes of the gateway before, which have not been asked yet.
    adopted: Mutex<Vec<Arc<Sandbox>>>,
}

impl SessionNetworks {
    /// The one of these commands.
    pub(super) async fn of(
        &self,
        context: &LaunchContext,
        principal: Principal,
        key: SandboxKey,
    ) -> Arc<SessionNetwork> {
        let place = self.place(&context.descriptors, principal, key);
        place.find().await;
        place.network.clone()
    }

    /// A sandbox of the gateway before has one. Resolves when the session has it, too.
    pub(super) fn adopt(
        &self,
        context: &LaunchContext,
        principal: Principal,
        key: SandboxKey,
        sandbox: Arc<Sandbox>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let place = self.place(&context.descriptors, principal, key);
        {
            let mut adopted = place.lock_adopted();
            adopted.push(sandbox);
            adopted.sort_by(|one, other| one.id().cmp(other.id()));
        }
        async move { place.find().await }
    }

    fn place(
        &self,
        quota: &Arc<DescriptorQuota>,
        principal: Principal,
        key: SandboxKey,
    ) -> Arc<NetworkPlace> {
        let mut held = self.0.lock().expect("no code panics while it holds the networks of a session");
        if let Some(known) = held.iter().find(|known| known.key == key) {
            return known.place.clone();
        }
        if held.len() >= MAX_NETWORKS {
            held.pop_front();
        }
        let place = Arc::<NetworkPlace>::default();
        let descriptors = quota.reserve_unchecked(principal, DESCRIPTORS);
        held.push_back(HeldNetwork { key, place: place.clone(), _descriptors: descriptors });
        place
    }
}

impl NetworkPlace {
    /// Asks the sandboxes of the gateway before, until one has it. Where they have several, the newest one's counts.
    async fn find(&self) {
        let _turn = self.turn.lock().await;
        while !self.network.is_made() {
            let next = self.lock_adopted().pop();
            let Some(sandbox) = next else { return };
            match sandbox.session_network().await {
                Ok(descriptors) => self.network.found(descriptors),
                Err(error) => {
                    tracing::error!(sandbox.id = %sandbox.id(), %error, "its session's network is not known");
                }
            }
        }
        self.lock_adopted().clear();
    }

    fn lock_adopted(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Sandbox>>> {
        self.adopted.lock().expect("no code panics while it holds the list of adopted sandboxes")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::policy::{ProfileName, profile::Network};

    #[tokio::test]
    async fn all_who_wait_for_a_launch_fail_with_it_and_the_next_tries_again() {
        let sandboxes = Sandboxes::default();
        let policy = crate::policy::PolicySet::compiled_in();
        let name = policy.profile(None).unwrap().0.clone();
        let launches = AtomicU32::new(0);
        let launch = async || {
            launches.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(Arc::new(StartError::RootGone("/x".into())))
        };
        let cells: Vec<_> =
            (0..10).map(|_| sandboxes.launch_cell((name.clone(), Network::None, 0))).collect();
        let results = futures_util::future::join_all(cells.iter().map(|cell| cell.get_or_init(launch))).await;
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Err(error) if matches!(**error, StartError::RootGone(_))))
        );
        assert_eq!(launches.load(Ordering::Relaxed), 1);
        assert!(sandboxes.launch_cell((name, Network::None, 0)).get().is_none());
    }

    #[test]
    fn commands_of_one_kind_have_one_network_and_beyond_the_most_the_oldest_is_let_go() {
        let (networks, quota) = (SessionNetworks::default(), DescriptorQuota::new(0, 400));
        let principal = Principal { uid: 1 };
        let of = |profile: &str, network, confinement| {
            networks.place(&quota, principal, (ProfileName::from_recorded(profile), network, confinement))
        };
        let all: Vec<_> = (0..14).map(|confinement| of("one", Network::None, confinement)).collect();
        let others = [of("two", Network::None, 0), of("one", Network::Proxy, 0)];
        let all: Vec<_> = all.into_iter().chain(others).collect();
        assert_eq!(all.len(), MAX_NETWORKS);
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| !Arc::ptr_eq(one, other)), "{index}");
        }
        assert!(Arc::ptr_eq(&of("one", Network::None, 0), &all[0]));
        assert!(Arc::ptr_eq(&of("one", Network::Proxy, 0), &all[15]));
        let further = of("three", Network::None, 0);
        assert!(Arc::ptr_eq(&of("three", Network::None, 0), &further));
        assert!(Arc::ptr_eq(&of("one", Network::None, 1), &all[1]), "only one was let go");
        assert!(!Arc::ptr_eq(&of("one", Network::None, 0), &all[0]), "it was the oldest");
        // What was let go is not counted any more.
        let left = 100 - DESCRIPTORS * MAX_NETWORKS as u64;
        assert!(quota.reserve(principal, left + 1).is_err());
        assert!(quota.reserve(principal, left).is_ok());
    }
}
