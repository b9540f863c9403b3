//! Control groups: the hierarchies, the cgroups of sandboxes, the leaves of terminals.
//!
//! The supervisor works on a [`CgroupDirectory`] through its descriptor, because its mount namespace has no path to
//! the hierarchies.

pub mod directory;
pub mod hierarchy;
pub mod kill;
pub mod leaf;

use std::os::fd::OwnedFd;

/// The version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// The unified hierarchy (cgroup2), with or without controllers.
    V2,
    /// A hierarchy of cgroup v1.
    V1,
}

/// A sandbox's cgroup in one hierarchy, owned by its supervisor.
#[derive(Debug)]
pub struct CgroupDirectory {
    /// The open directory.
    pub descriptor: OwnedFd,
    /// Which kind of hierarchy.
    pub hierarchy: Hierarchy,
    /// The controllers that its leaves can have, by the kernel's names ("memory", "pids", "cpu", ...).
    pub controllers: Vec<String>,
}
