//! The launcher's part of a gate: clones it into the supervisor's cgroup when the supervisor is ready, and waits until it is.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sched::CloneFlags,
    sys::{
        socket::{AddressFamily, SockFlag, SockType, socketpair},
        stat::Mode,
    },
    unistd::Pid,
};

use super::{
    outcome,
    setup::{self, PlanDescriptors, StageError},
};
use crate::{
    cgroup::Hierarchy,
    gate::{self, GateStart, SetupFailure},
    proto::supervisor::{Identity, SandboxPlan, Stage},
    sys::namespace::{self, Cloned, Parent},
};

/// Steps of [`Stage::Gate`] in the launcher; those of the supervisor come before them.
const FIRST_STEP: usize = 64;

fn step(index: usize) -> impl Fn(Errno) -> StageError {
    StageError::of_step(Stage::Gate, FIRST_STEP + index)
}

/// Both ends of the socket between supervisor and gate, if the plan has a gate: the supervisor's first.
pub(super) fn sockets(plan: &SandboxPlan) -> Result<Option<(OwnedFd, OwnedFd)>, StageError> {
    let pair = || socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
    setup::has_gate(plan).then(pair).transpose().map_err(step(0))
}

/// A gate that is not started yet.
pub(super) struct GateLaunch {
    socket: OwnedFd,
    listener: OwnedFd,
    /// The v2 cgroup of the supervisor.
    cgroup: Option<OwnedFd>,
    /// Files of v1 cgroups.
    join: Vec<OwnedFd>,
}

/// A gate that runs.
#[derive(Debug)]
pub(super) struct StartedGate {
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
}

impl GateLaunch {
    /// To be called when the supervisor is in its leaf.
    pub(super) fn prepare(socket: OwnedFd, descriptors: &mut PlanDescriptors) -> Result<Self, StageError> {
        let listener = descriptors.gate_listener.take().ok_or_else(StageError::malformed_plan)?;
        let mut cgroup = None;
        for directory in &descriptors.directories {
            if directory.hierarchy == Hierarchy::V2 {
                let leaf =
                    if directory.controllers.is_empty() { "." } else { setup::cgroups::SUPERVISOR_LEAF };
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                cgroup = Some(openat(&directory.descriptor, leaf, flags, Mode::empty()).map_err(step(1))?);
            }
        }
        let join = setup::cgroups::open_v1_join_fds(descriptors)?.into_iter().map(OwnedFd::from).collect();
        Ok(Self { socket, listener, cgroup, join })
    }

    /// In the launcher: the gate, when it is set up. In the gate: does not return.
    pub(super) fn start(mut self, plan: &SandboxPlan, ids: &Identity) -> Result<StartedGate, StageError> {
        let (ready, report) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(step(2))?;
        let parent = Parent::CallersParent;
        let into = self.cgroup.as_ref().map(AsFd::as_fd);
        let cloned = match namespace::clone_into(CloneFlags::empty(), into, parent) {
            // Linux before 5.7, or a filter.
            Err(Errno::E2BIG | Errno::EINVAL) => {
                self.join_v2_by_itself()?;
                namespace::clone_into(CloneFlags::empty(), None, parent)
            }
            cloned => cloned,
        };
        match cloned.map_err(step(3))? {
            Cloned::Child => gate::run(GateStart {
                sandbox_id: &plan.sandbox_id,
                identity: ids,
                has_cgroups: !plan.cgroups.is_empty(),
                socket: self.socket,
                listener: self.listener,
                join: self.join,
                report,
                encode: encode_outcome,
            }),
            Cloned::Parent { pid, pidfd } => {
                drop((report, self));
                match outcome::wait_until_ready(&ready) {
                    Ok(()) => Ok(StartedGate { pid, process: pidfd }),
                    Err(failure) => {
                        // The gateway reaps it: it is its child.
                        let _ = namespace::kill_pidfd(pidfd.as_fd());
                        Err(failure)
                    }
                }
            }
        }
    }

    fn join_v2_by_itself(&mut self) -> Result<(), StageError> {
        if let Some(cgroup) = &self.cgroup {
            let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            let processes = Path::new("cgroup.procs");
            self.join.push(openat(cgroup, processes, flags, Mode::empty()).map_err(step(4))?);
        }
        Ok(())
    }
}

fn encode_outcome(outcome: Result<(), SetupFailure>) -> [u8; StageError::BYTES] {
    match outcome {
        Ok(()) => StageError::encode_success(),
        Err(SetupFailure { index, errno }) => StageError::at(Stage::Gate, index, errno).encode(),
    }
}
