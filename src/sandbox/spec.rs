//! What a sandbox is to be: the request to launch one, complete and parsed.
//!
//! Only types. Which profile, which roots and which network was decided before.

use std::{borrow::Cow, sync::Arc};

use crate::{
    policy::profile::{Network, Profile},
    sandbox::roots::governing::Governing,
};

pub use crate::sandbox::roots::Root;

/// A sandbox to launch.
#[derive(Debug)]
pub struct SandboxSpec {
    /// `sbx_` and a ulid. Names its directories and cgroups.
    pub id: String,
    /// The profile's name, for reports.
    pub profile_name: String,
    /// How it is confined.
    pub profile: Arc<Profile>,
    /// The session's roots, opened by [`crate::sandbox::roots::open()`].
    pub roots: Vec<Root>,
    /// Its network.
    pub network: Network,
    /// Whose files the roots hold.
    pub owner: Owner,
    /// The owner's other groups.
    pub groups: Arc<[u32]>,
    /// What none of it may reach.
    pub governing: Arc<Governing>,
    /// Whose it is.
    pub assignment: SandboxAssignment,
    /// Whether it ends with the control connection (an embedded gateway's), or waits for the next one.
    pub die_with_gateway: bool,
    /// A stage at which to fail, in builds with failpoints; see `Stage` for the names.
    pub fail_at: Option<String>,
}

/// Whose a sandbox is, for the gateway that finds it after this one.
#[derive(Debug, Clone, Default)]
pub struct SandboxAssignment {
    /// The session.
    pub session_id: String,
    /// Of the profile as it is now: a changed one of the same name is another.
    pub confinement: u64,
    /// Who else uses it.
    pub sharing: Sharing,
}

/// Whose a sandbox is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Of all terminals of the session with that profile and network.
    #[default]
    Shared,
    /// Of one terminal, and ends with it.
    Exclusive,
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
    /// Which one, by its name in [`crate::sandbox::probe::protections`].
    pub protection: Cow<'static, str>,
    /// Why not, for people.
    pub reason: String,
}
