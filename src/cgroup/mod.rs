//! Control groups: where the hierarchies are, the sandbox's directories, the leaves of terminals.
//!
//! Everything below a [`Directory`] is done through its descriptor, because the supervisor has left the mount
//! in which the hierarchies can be named by path.

pub mod directory;
pub mod hierarchy;
pub mod kill;
pub mod leaf;
pub mod limits;
pub mod subtree;
pub mod usage;

use std::os::fd::OwnedFd;

/// The kind of hierarchy that a directory lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// The unified hierarchy (cgroup2), with or without controllers.
    V2,
    /// A hierarchy of cgroup v1.
    V1,
}

/// A sandbox's directory in one hierarchy, owned by its supervisor.
#[derive(Debug)]
pub struct CgroupDirectory {
    /// The open directory.
    pub descriptor: OwnedFd,
    /// Which kind of hierarchy.
    pub hierarchy: Hierarchy,
    /// The controllers that leaves below it can have, by the kernel's names ("memory", "pids", "cpu", ...).
    pub controllers: Vec<String>,
}
