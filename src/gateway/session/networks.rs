//! The network namespaces that a session's sandboxes have in common where each of them runs one command: one for each profile, network and
//! confinement, as commands of those have one sandbox elsewhere.
//!
//! What an earlier gateway has launched goes on in the one that it has, and its supervisors hand that to this gateway.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{
    descriptors::{DescriptorQuota, DescriptorReservation},
    launch_context::LaunchContext,
    principal::Principal,
    sandboxes::SandboxKey,
};
use crate::sandbox::{
    handle::Sandbox,
    session_network::{DESCRIPTORS, SessionNetwork},
};

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
    use super::*;
    use crate::policy::{ProfileName, profile::Network};

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
