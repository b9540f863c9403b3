//! The record of a sandbox in its directory, written before any of its processes is started.
//!
//! A later gateway reads from it which session and which cgroups the sandbox belongs to. Terminals are not
//! recorded: the supervisor knows them.

use std::{io, path::Path};

use prost::Message;

use crate::{
    kept_cache::LayerName,
    policy::{
        ProfileName,
        profile::{Filesystem, Network},
    },
    proto::{
        state::{SandboxRecord, ShortfallRecord},
        supervisor::{Identity, SandboxPlan, mount::Kind},
    },
    sandbox::{
        cgroup::SandboxCgroup,
        host::ptys::MAX_PTYS_PER_SANDBOX,
        protections::Protections,
        spec::{SandboxAssignment, Sharing, Shortfall},
    },
    statefile::{self, StatefileError},
};

/// The file's name in the sandbox's directory.
const NAME: &str = "record";

/// The recorded state of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct SandboxState {
    /// The sandbox.
    pub id: String,
    /// The session and profile that it serves.
    pub assignment: SandboxAssignment,
    /// The profile of its terminals.
    pub profile: ProfileName,
    /// The network of its terminals.
    pub network: Network,
    /// Its ids.
    pub identity: Identity,
    /// What was preferred and could not be had.
    pub shortfalls: Vec<Shortfall>,
    /// Its groups.
    pub cgroup: SandboxCgroup,
    /// How many pseudo-terminals it may have.
    pub ptys: u32,
    /// Whether it has a gate.
    pub gated: bool,
    /// The caches that it began with as earlier sessions have left them, relative to the home.
    pub kept_caches: Vec<String>,
    /// What it does not see of the host's directories, though it lies in them.
    pub covered: Vec<String>,
    /// What its commands cannot change.
    pub protections: Protections,
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxStateError {
    /// The file cannot be used.
    #[error("its record")]
    Record(#[from] StatefileError),
    /// It describes another sandbox, or is incomplete.
    #[error("its record is about another sandbox, or lacks what every sandbox has")]
    WrongSandbox,
}

/// Writes the record.
pub(crate) fn write(
    directory: &Path,
    profile: &str,
    network: Network,
    holder: &SandboxAssignment,
    shortfalls: &[Shortfall],
    plan: &SandboxPlan,
) -> io::Result<()> {
    // The filter with its nonce is for the supervisor only.
    let plan = SandboxPlan { seccomp: None, ..plan.clone() };
    let shortfall = |one: &Shortfall| ShortfallRecord {
        protection: one.protection.clone().into_owned(),
        reason: one.reason.clone(),
    };
    let written = SandboxRecord {
        session_id: holder.session_id.clone(),
        profile: profile.to_owned(),
        network: network.name().to_owned(),
        confinement_hash: holder.confinement,
        is_exclusive: holder.sharing == Sharing::Exclusive,
        shortfalls: shortfalls.iter().map(shortfall).collect(),
        plan: plan.encode_to_vec().into(),
    };
    statefile::write(&directory.join(NAME), &written)
}

/// Reads the record in a sandbox's directory.
///
/// # Errors
/// [`SandboxStateError`].
pub(crate) fn read(directory: &Path) -> Result<SandboxState, SandboxStateError> {
    let written: SandboxRecord = statefile::read(&directory.join(NAME))?;
    let plan = SandboxPlan::decode(&written.plan[..]).map_err(|_| SandboxStateError::WrongSandbox)?;
    let is_its_own = directory.file_name().is_some_and(|name| name == &*plan.sandbox_id);
    let (Some(identity), Some(network), true) =
        (plan.identity.clone(), Network::from_name(&written.network), is_its_own)
    else {
        return Err(SandboxStateError::WrongSandbox);
    };
    let sharing = if written.is_exclusive { Sharing::Exclusive } else { Sharing::Shared };
    Ok(SandboxState {
        cgroup: SandboxCgroup::from_plan(&plan),
        ptys: ptys(&plan),
        kept_caches: kept_caches(&plan),
        covered: covered(&plan),
        // As the shipped profile has it: the record has no profile.
        protections: Protections::of_plan(&plan.mounts, &Filesystem::default()),
        gated: plan.gate.is_some_and(|gate| gate.enabled),
        id: plan.sandbox_id,
        assignment: SandboxAssignment {
            session_id: written.session_id,
            confinement: written.confinement_hash,
            sharing,
        },
        profile: ProfileName::from_recorded(&written.profile),
        network,
        identity,
        shortfalls: written.shortfalls.into_iter().map(shortfall).collect(),
    })
}

/// The caches of a plan that outlive the session.
pub(crate) fn kept_caches(plan: &SandboxPlan) -> Vec<String> {
    let names = plan.mounts.iter().filter_map(|mount| LayerName::parse_overlay_name(&mount.shared));
    names.map(|name| name.place.to_string_lossy().into_owned()).collect()
}

/// What a plan covers: a path, and what it is. Older gateways do not say what it is.
pub(crate) fn covered(plan: &SandboxPlan) -> Vec<String> {
    let covers = plan.mounts.iter().filter(|mount| mount.kind() == Kind::Cover);
    covers.map(|cover| format!("{} ({})", cover.target, cover.source)).collect()
}

/// Sandboxes of older gateways may have the maximum.
fn ptys(plan: &SandboxPlan) -> u32 {
    plan.mounts
        .iter()
        .find(|mount| mount.kind() == Kind::Dev)
        .map_or(0, |dev| dev.ptys.unwrap_or(MAX_PTYS_PER_SANDBOX))
}

fn shortfall(written: ShortfallRecord) -> Shortfall {
    Shortfall { protection: written.protection.into(), reason: written.reason }
}
