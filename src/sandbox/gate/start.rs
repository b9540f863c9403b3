//! What a gate is started with, and what its set-up answers.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::proto::supervisor::Identity;

/// What the launcher gives to the gate.
#[derive(Debug)]
pub struct GateStart<'a> {
    /// The sandbox.
    pub sandbox_id: &'a str,
    /// Its ids.
    pub identity: &'a Identity,
    /// Whether each of its terminals has a cgroup. Otherwise there is one terminal.
    pub has_cgroups: bool,
    /// The socket to the supervisor.
    pub socket: OwnedFd,
    /// The socket on which gateways connect.
    pub listener: OwnedFd,
    /// Files of cgroups, open for writing, to be joined by writing `0`.
    pub join: Vec<OwnedFd>,
    /// For the outcome of the set-up.
    pub report: OwnedFd,
    /// How the outcome is written.
    pub encode: fn(Result<(), SetupFailure>) -> [u8; 12],
}

/// A step of the set-up that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetupFailure {
    /// Its number.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}
