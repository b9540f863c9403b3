//! The supervisor's side of a gate's start: hands over the listener and the sandbox's namespaces.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::{errno::Errno, fcntl::OFlag};

use super::{confinement::nonce_of, stage::StageError};
use crate::{
    proto::supervisor::{GateSetup, SandboxPlan, Stage, ToGateProcess, to_gate_process::Message},
    supervisor::ready::SupervisedGate,
    sys::{fdpass, file, spawn::ExecNonce},
    wire::encode,
};

/// The names of the namespaces in `GateSetup`, in its order.
const NAMESPACES: [&str; 6] = ["user", "mnt", "ipc", "uts", "net", "cgroup"];

/// Steps of [`Stage::Gate`] on this side; those of the gate's own set-up come before them.
const FIRST_STEP: usize = 32;

/// What the supervisor holds for its gate during set-up.
pub(super) struct GateHandover {
    socket: OwnedFd,
    namespaces: Vec<OwnedFd>,
    dead_man: (OwnedFd, OwnedFd),
    nonce: ExecNonce,
}

impl GateHandover {
    /// To be called when all namespaces but the one of an ordinary user's commands are made, while the host's /proc is there.
    pub(super) fn open(plan: &SandboxPlan, socket: OwnedFd) -> Result<Self, StageError> {
        let step = |index: usize| StageError::of_step(Stage::Gate, FIRST_STEP + index);
        let open = |name: &&str| file::open_read(&Path::new("/proc/self/ns").join(name));
        let namespaces = NAMESPACES.iter().map(open).collect::<Result<_, _>>().map_err(step(0))?;
        let dead_man = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(step(1))?;
        let nonce = nonce_of(plan).ok_or(StageError::at(Stage::Gate, FIRST_STEP + 2, Errno::EINVAL))?;
        Ok(Self { socket, namespaces, dead_man, nonce })
    }

    /// What must stay open until then.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.namespaces.iter().chain([&self.socket, &self.dead_man.0, &self.dead_man.1])
    }

    /// Sends all of it. From here on only the gate has the listener.
    pub(super) fn send(self, listener: OwnedFd) -> Result<SupervisedGate, StageError> {
        let step = |index: usize| StageError::of_step(Stage::Gate, FIRST_STEP + index);
        let Self { socket, namespaces, dead_man: (read_end, write_end), nonce } = self;
        let message = ToGateProcess { message: Some(Message::Setup(GateSetup {})) };
        let descriptors: Vec<_> =
            [&listener, &read_end].into_iter().chain(&namespaces).map(AsFd::as_fd).collect();
        let frame = encode(&message, descriptors.len())
            .map_err(|_| StageError::at(Stage::Gate, FIRST_STEP + 3, Errno::EMSGSIZE))?;
        fdpass::send(socket.as_fd(), &frame, &descriptors).map_err(step(3))?;
        Ok(SupervisedGate { socket, dead_man: write_end, nonce })
    }
}
