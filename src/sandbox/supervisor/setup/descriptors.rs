//! The descriptors that come with a plan, told apart by what they are for.

use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc};

use super::stage::StageError;
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    proto::supervisor::{SandboxPlan, cgroup_directory},
};

/// The `tasks` file of a v1 cgroup. The launcher opens it, because it has the right to; the supervisor writes it.
/// If the launcher joined, the cgroup could not be removed before the launcher exits.
#[derive(Debug)]
pub struct V1JoinFd {
    pub(super) tasks: OwnedFd,
    /// The cgroup's index in the plan.
    pub(super) index: usize,
}

impl From<V1JoinFd> for OwnedFd {
    fn from(file: V1JoinFd) -> Self {
        file.tasks
    }
}

/// The plan's descriptors, by purpose.
#[derive(Debug)]
pub struct PlanDescriptors {
    /// The control listener.
    pub listener: OwnedFd,
    /// The file of its socket, if the sandbox is to know when that is unlinked.
    pub socket_file: Option<OwnedFd>,
    /// The socket on which the gate listens, if there is one.
    pub gate_listener: Option<OwnedFd>,
    /// The session's network namespace, and the user namespace to which it belongs if that is not the gateway's: empty where the sandbox
    /// shares none. In the launcher those that come with the plan, in the supervisor those that it keeps.
    pub session_network: Vec<OwnedFd>,
    /// The cgroups, in the plan's order.
    pub directories: Vec<CgroupDirectory>,
    /// The sources of binds with `from_descriptor`, in the plan's order. In a privileged launch they are replaced
    /// by detached mounts.
    pub binds: VecDeque<OwnedFd>,
    /// The lock on the host ids.
    pub claim: Option<OwnedFd>,
    /// The lock on the id that the commands of all sandboxes of the session have.
    pub session_claim: Option<Arc<OwnedFd>>,
    /// The v1 cgroups that the supervisor still has to join.
    pub v1_join_fds: Vec<V1JoinFd>,
    /// Listeners in the place of sockets of the host, in the plan's order.
    pub unix_listeners: Vec<OwnedFd>,
}

/// Whether the plan has a gate.
pub fn has_gate(plan: &SandboxPlan) -> bool {
    plan.gate.is_some_and(|gate| gate.enabled)
}

impl PlanDescriptors {
    /// Assigns the received descriptors to their purposes. Their number must be exactly what the plan says.
    pub fn from_plan(plan: &SandboxPlan, descriptors: Vec<OwnedFd>) -> Result<Self, StageError> {
        let mut rest = VecDeque::from(descriptors);
        let listener = rest.pop_front().ok_or_else(StageError::malformed_plan)?;
        let socket_file = match plan.without_gateway {
            Some(_) => Some(rest.pop_front().ok_or_else(StageError::malformed_plan)?),
            None => None,
        };
        let directories = plan
            .cgroups
            .iter()
            .map(|directory| {
                let hierarchy = match directory.hierarchy() {
                    cgroup_directory::Hierarchy::V2 => Hierarchy::V2,
                    cgroup_directory::Hierarchy::V1 => Hierarchy::V1,
                    cgroup_directory::Hierarchy::Unspecified => return Err(StageError::malformed_plan()),
                };
                let descriptor = rest.pop_front().ok_or_else(StageError::malformed_plan)?;
                Ok(CgroupDirectory { descriptor, hierarchy, controllers: directory.controllers.clone() })
            })
            .collect::<Result<_, _>>()?;
        let gate_listener = match has_gate(plan) {
            true => Some(rest.pop_front().ok_or_else(StageError::malformed_plan)?),
            false => None,
        };
        let shared = plan.session_network.map_or(0, |network| network.descriptors as usize);
        if shared > rest.len() {
            return Err(StageError::malformed_plan());
        }
        let session_network = rest.drain(..shared).collect();
        let count = plan.mounts.iter().filter(|mount| mount.from_descriptor).count();
        if rest.len() < count {
            return Err(StageError::malformed_plan());
        }
        let mut claims = rest.split_off(count);
        let sockets = plan.proxy.as_ref().map_or(0, |proxy| proxy.unix_sockets.len());
        if claims.len() < sockets {
            return Err(StageError::malformed_plan());
        }
        let unix_listeners = claims.split_off(claims.len() - sockets).into();
        let (claim, session_claim) = (claims.pop_front(), claims.pop_front().map(Arc::new));
        if claims.is_empty() {
            Ok(Self {
                listener,
                socket_file,
                gate_listener,
                session_network,
                directories,
                binds: rest,
                claim,
                session_claim,
                v1_join_fds: Vec::new(),
                unix_listeners,
            })
        } else {
            Err(StageError::malformed_plan())
        }
    }
}
