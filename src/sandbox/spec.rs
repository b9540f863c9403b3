//! What a sandbox is to be: the request to launch one, complete and parsed.
//!
//! Only types. Which profile, which roots and which network was decided before.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc};

use crate::policy::profile::{Network, Profile};

/// A sandbox to launch.
#[derive(Debug)]
pub struct SandboxSpec {
    /// `sbx_` and a ulid. Names its folders and cgroups.
    pub id: String,
    /// The profile's name, for reports.
    pub profile_name: String,
    /// How it is confined.
    pub profile: Arc<Profile>,
    /// The session's roots, opened by [`super::roots::open`].
    pub roots: Vec<Root>,
    /// Its network.
    pub network: Network,
    /// Whose files the roots hold.
    pub owner: Owner,
    /// Whether it ends with the control connection (an embedded gateway's), or waits for the next one.
    pub die_with_gateway: bool,
    /// A stage at which to fail, in builds with failpoints; see `Stage` for the names.
    pub fail_at: Option<String>,
}

/// A folder of the host that the sandbox shows at the same place.
#[derive(Debug)]
pub struct Root {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Open with `O_PATH` since it was checked.
    pub descriptor: OwnedFd,
}

/// A principal by ids of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// A protection that was preferred and could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Which one, by its name in [`super::host::Host::protections`].
    pub protection: &'static str,
    /// Why not, for people.
    pub why: String,
}
