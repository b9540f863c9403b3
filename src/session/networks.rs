//! The network namespaces that a session's sandboxes have in common where each of them runs one command: one for each profile, network and
//! confinement, as commands of those have one sandbox elsewhere.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{
    descriptors::DescriptorReservation, launch_context::LaunchContext, principal::Principal,
    sandboxes::SandboxKey,
};
use crate::sandbox::session_network::{DESCRIPTORS, SessionNetwork};

/// Those of a session. Then the oldest one is let go: what runs there goes on, and a new command meets it no more.
const MAX_NETWORKS: usize = 16;

/// A session's networks.
#[derive(Debug, Default)]
pub(super) struct SessionNetworks(Mutex<VecDeque<HeldNetwork>>);

#[derive(Debug)]
struct HeldNetwork {
    key: SandboxKey,
    network: Arc<SessionNetwork>,
    _descriptors: DescriptorReservation,
}

impl SessionNetworks {
    /// The one of these commands.
    pub(super) fn of(
        &self,
        context: &LaunchContext,
        principal: Principal,
        key: SandboxKey,
    ) -> Arc<SessionNetwork> {
        let mut held = self.0.lock().expect("no code panics while it holds the networks of a session");
        if let Some(known) = held.iter().find(|known| known.key == key) {
            return known.network.clone();
        }
        if held.len() >= MAX_NETWORKS {
            held.pop_front();
        }
        let network = Arc::<SessionNetwork>::default();
        let descriptors = context.descriptors.reserve_unchecked(principal, DESCRIPTORS);
        held.push_back(HeldNetwork { key, network: network.clone(), _descriptors: descriptors });
        network
    }
}
