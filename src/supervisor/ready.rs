//! What set-up hands to the event loop.

use std::os::fd::OwnedFd;

use crate::{cgroup, proto::supervisor::EffectiveConfinement, sys::oom::OwnOomScore};

/// A sandbox that is fully set up: what set-up hands to the event loop.
#[derive(Debug)]
pub struct Ready {
    /// The sandbox's id, from the plan.
    pub sandbox_id: String,
    /// The listening control socket (a unix stream socket).
    pub listener: OwnedFd,
    /// The sandbox's cgroup directories; the v2 one first where there is one. Empty: no tree can be written.
    pub directories: Vec<cgroup::CgroupDirectory>,
    /// Who the commands become.
    pub identity: CommandIdentity,
    /// What is in force, read back from the kernel.
    pub effective_confinement: EffectiveConfinement,
    /// Its score when memory runs out, which commands are born with.
    pub oom_score: OwnOomScore,
    /// End with the control connection.
    pub die_with_gateway: bool,
    /// The name of the stage at which a fault is to be injected, in builds with failpoints.
    pub fail_at: Option<String>,
}

/// Who a command is, in ids of the supervisor's user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandIdentity {
    /// Change to these ids before exec.
    Change {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// The supervisor and its commands have the one id there is.
    Keep,
}
