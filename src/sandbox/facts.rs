//! What is known of a sandbox besides what its supervisor says, written down before anything of it is started.
//!
//! Whoever finds the folder reads from it whose the sandbox is and which groups are its own. Says nothing of
//! terminals: those their supervisor knows.

use std::{io, path::Path};

use prost::Message;

use super::{
    cgroup::SandboxCgroup,
    spec::{Holder, Shortfall, Tenancy},
    terminals::PTYS,
};
use crate::{
    policy::{ProfileName, profile::Network},
    proto::{
        state::{SandboxRecord, ShortfallRecord},
        supervisor::{Identity, SandboxPlan, mount::Kind},
    },
    record::{self, ReadError},
};

/// The file's name in the sandbox's folder.
const NAME: &str = "record";

/// A sandbox's facts, as they were written down.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The sandbox.
    pub id: String,
    /// Whose it is.
    pub holder: Holder,
    /// Of its terminals.
    pub profile: ProfileName,
    /// Of its terminals.
    pub network: Network,
    /// Its ids.
    pub identity: Identity,
    /// What was preferred and could not be had.
    pub shortfalls: Vec<Shortfall>,
    /// Its groups.
    pub cgroup: SandboxCgroup,
    /// How many pseudo-terminals it may have.
    pub ptys: u32,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The file cannot be used.
    #[error("its record")]
    Record(#[from] ReadError),
    /// It is about something else.
    #[error("its record is about another sandbox, or lacks what every sandbox has")]
    Other,
}

/// Writes the facts down.
pub(super) fn write(
    folder: &Path,
    profile: &str,
    network: Network,
    holder: &Holder,
    shortfalls: &[Shortfall],
    plan: &SandboxPlan,
) -> io::Result<()> {
    let shortfall = |one: &Shortfall| ShortfallRecord {
        protection: one.protection.clone().into_owned(),
        why: one.why.clone(),
    };
    let written = SandboxRecord {
        session_id: holder.session_id.clone(),
        profile: profile.to_owned(),
        network: network.name().to_owned(),
        confinement: holder.confinement,
        sole: holder.tenancy == Tenancy::Sole,
        shortfalls: shortfalls.iter().map(shortfall).collect(),
        plan: plan.encode_to_vec().into(),
    };
    record::write(&folder.join(NAME), &written)
}

/// Reads the facts of the sandbox in a folder.
///
/// # Errors
/// [`FactsError`].
pub fn read(folder: &Path) -> Result<Facts, FactsError> {
    let written: SandboxRecord = record::read(&folder.join(NAME))?;
    let plan = SandboxPlan::decode(&written.plan[..]).map_err(|_| FactsError::Other)?;
    let is_its_own = folder.file_name().is_some_and(|name| name == &*plan.sandbox_id);
    let (Some(identity), Some(network), true) =
        (plan.identity.clone(), Network::named(&written.network), is_its_own)
    else {
        return Err(FactsError::Other);
    };
    let tenancy = if written.sole { Tenancy::Sole } else { Tenancy::Shared };
    Ok(Facts {
        cgroup: SandboxCgroup::recorded(&plan),
        ptys: ptys(&plan),
        id: plan.sandbox_id,
        holder: Holder { session_id: written.session_id, confinement: written.confinement, tenancy },
        profile: ProfileName::recorded(&written.profile),
        network,
        identity,
        shortfalls: written.shortfalls.into_iter().map(shortfall).collect(),
    })
}

/// Every sandbox of an older gateway may have as many as one sandbox may.
fn ptys(plan: &SandboxPlan) -> u32 {
    plan.mounts.iter().find(|mount| mount.kind() == Kind::Dev).map_or(0, |dev| dev.ptys.unwrap_or(PTYS))
}

fn shortfall(written: ShortfallRecord) -> Shortfall {
    Shortfall { protection: written.protection.into(), why: written.why }
}
