//! The network namespaces that a session's sandboxes have in common where each of them runs one command: one for each profile, network and
//! confinement, as commands of those have one sandbox elsewhere.
//!
//! What an earlier gateway has launched goes on in the one that it has, and its supervisors hand that to this gateway.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{
    descriptors::DescriptorReservation, launch_context::LaunchContext, principal::Principal,
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
        let place = self.place(context, principal, key);
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
        let place = self.place(context, principal, key);
        {
            let mut adopted = place.lock_adopted();
            adopted.push(sandbox);
            adopted.sort_by(|one, other| one.id().cmp(other.id()));
        }
        async move { place.find().await }
    }

    fn place(&self, context: &LaunchContext, principal: Principal, key: SandboxKey) -> Arc<NetworkPlace> {
        let mut held = self.0.lock().expect("no code panics while it holds the networks of a session");
        if let Some(known) = held.iter().find(|known| known.key == key) {
            return known.place.clone();
        }
        if held.len() >= MAX_NETWORKS {
            held.pop_front();
        }
        let place = Arc::<NetworkPlace>::default();
        let descriptors = context.descriptors.reserve_unchecked(principal, DESCRIPTORS);
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
