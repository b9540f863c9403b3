//! The descriptors that come with a plan, told apart by what they are for.

use std::{collections::VecDeque, os::fd::OwnedFd};

use super::stage::StageError;
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    proto::supervisor::{SandboxPlan, cgroup_directory},
};

/// A v1 directory's list of threads, open for the supervisor to put itself in. It is opened by the launcher, whose right
/// it is, and written by the supervisor: a launcher that had joined would keep the directory from being removed until it has
/// ended itself.
#[derive(Debug)]
pub struct V1JoinFd {
    pub(super) tasks: OwnedFd,
    /// Of the directory, in the plan's order.
    pub(super) index: usize,
}

/// The plan's descriptors, by what they are for.
#[derive(Debug)]
pub struct PlanDescriptors {
    /// The control listener.
    pub listener: OwnedFd,
    /// The cgroup directories, in the plan's order.
    pub directories: Vec<CgroupDirectory>,
    /// What the binds with `from_descriptor` show, in the plan's order: first the sources, later their mounts.
    pub binds: VecDeque<OwnedFd>,
    /// The claim on the host ids.
    pub claim: Option<OwnedFd>,
    /// Its places in v1 directories, from when the launcher has opened them to when the supervisor has taken them.
    pub v1_join_fds: Vec<V1JoinFd>,
}

impl PlanDescriptors {
    /// Tells them apart: as many of each as the plan says, no more and no fewer.
    pub fn from_plan(plan: &SandboxPlan, descriptors: Vec<OwnedFd>) -> Result<Self, StageError> {
        let mut rest = VecDeque::from(descriptors);
        let listener = rest.pop_front().ok_or_else(StageError::malformed_plan)?;
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
        let count = plan.mounts.iter().filter(|mount| mount.from_descriptor).count();
        if rest.len() < count {
            return Err(StageError::malformed_plan());
        }
        let mut claims = rest.split_off(count);
        let claim = claims.pop_front();
        if claims.is_empty() {
            Ok(Self { listener, directories, binds: rest, claim, v1_join_fds: Vec::new() })
        } else {
            Err(StageError::malformed_plan())
        }
    }
}
