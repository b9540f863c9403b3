//! Who a sandbox's processes are, on the host and inside, by the kind of gateway: as root, as an ordinary user with subordinate ids
//! or without.

use std::{os::fd::OwnedFd, sync::Arc};

use crate::{
    policy::profile::{IdentityRule, Profile},
    proto::supervisor::{GatePlan, Identity, MappedGroup},
    sandbox::{
        host::{Host, host_ids::HostIdClaim, subordinate_ids::SubordinateIds},
        launch::{commands_id::RootsOwner, error::LaunchError},
        spec::{SessionFilesUse, SharedHostId},
    },
};

/// The group, in a sandbox, of files whose group is not mapped.
const NOGROUP: u32 = 65_534;
/// Groups whose id has another meaning in a sandbox are mapped to ids from here on.
const RENAMED_GROUPS_FROM: u32 = 60_000;

/// Who a sandbox's processes are on the host, and what keeps others from having the same ids.
pub(super) struct AssignedIdentity {
    pub(super) identity: Identity,
    pub(super) claim: Option<OwnedFd>,
    pub(super) session_claim: Option<Arc<OwnedFd>>,
}

/// Claims the ids of one sandbox. The commands are `owner`, if there is one.
pub(super) fn assign_identity(
    host: &Host,
    profile: &Profile,
    mut groups: Vec<MappedGroup>,
    gate: &GatePlan,
    files: &SessionFilesUse,
    owner: Option<RootsOwner>,
) -> Result<AssignedIdentity, LaunchError> {
    let rule = &profile.identity;
    let common = Identity {
        command_user_name: rule.user.clone(),
        home: rule.home.to_string_lossy().into_owned(),
        ..Identity::default()
    };
    // Root itself is in no range of ids: its commands are what an ordinary user's are.
    if host.is_privileged() && owner.is_none_or(|owner| owner.uid != host.own_ids().0) {
        if owner.is_some() {
            // As itself it has its own groups, and no other.
            groups.retain(|group| group.member);
        }
        let count = groups.len() + usize::from(gate.enabled);
        let HostIdClaim { supervisor, command, more, lock } = host.ids().claim(count)?;
        let shared = if owner.is_some() { None } else { shared_command_id(host, files)? };
        let command = shared.as_ref().map_or(command, |shared| shared.id);
        let (command_host_uid, command_host_gid) =
            owner.map_or((command, command), |owner| (owner.uid, owner.gid));
        for (index, (group, host_gid)) in groups.iter_mut().zip(&more).enumerate() {
            // The same id as on the host, unless it has another meaning in a sandbox.
            let has_meaning = [0, rule.gid, NOGROUP].contains(&group.disk_gid);
            group.inside_gid = if has_meaning { RENAMED_GROUPS_FROM + index as u32 } else { group.disk_gid };
            group.host_gid = if owner.is_some() { group.disk_gid } else { *host_gid };
        }
        let gate_host_id = more.get(groups.len()).copied().unwrap_or_default();
        let gate_id = if gate.enabled { unused_id(rule, &groups) } else { 0 };
        let identity = Identity {
            privileged: true,
            supervisor_host_uid: supervisor,
            supervisor_host_gid: supervisor,
            command_host_uid,
            command_host_gid,
            command_uid: rule.uid,
            command_gid: rule.gid,
            groups,
            gate_host_uid: gate_host_id,
            gate_host_gid: gate_host_id,
            gate_uid: gate_id,
            gate_gid: gate_id,
            separate_ids: true,
            ..common
        };
        let session_claim = shared.map(|shared| shared.lock);
        return Ok(AssignedIdentity { identity, claim: Some(lock), session_claim });
    }
    Ok(AssignedIdentity {
        identity: users_identity(host, rule, gate, common),
        claim: None,
        session_claim: None,
    })
}

/// The id that the commands have in all sandboxes of the session that share one.
fn shared_command_id(host: &Host, files: &SessionFilesUse) -> Result<Option<SharedHostId>, LaunchError> {
    match files {
        SessionFilesUse::Own => Ok(None),
        SessionFilesUse::Given(files) => Ok(files.command_id.clone()),
        SessionFilesUse::First => {
            let HostIdClaim { command, lock, .. } = host.ids().claim(0)?;
            Ok(Some(SharedHostId { id: command, lock: Arc::new(lock) }))
        }
    }
}

/// The ids of an ordinary user's sandbox: the commands are the user, and so is the supervisor without subordinate ids.
fn users_identity(host: &Host, rule: &IdentityRule, gate: &GatePlan, common: Identity) -> Identity {
    let (host_uid, host_gid) = host.own_ids();
    // In a sandbox the id 0 is the supervisor's, whatever the user has on the host.
    let uid = if host_uid == 0 { rule.uid } else { host_uid };
    let gid = if host_gid == 0 { rule.gid } else { host_gid };
    let own = Identity {
        privileged: false,
        supervisor_host_uid: host_uid,
        supervisor_host_gid: host_gid,
        command_host_uid: host_uid,
        command_host_gid: host_gid,
        command_uid: uid,
        command_gid: gid,
        ..common
    };
    let Some(SubordinateIds { supervisor, gate: gates }) = host.subordinate_ids() else { return own };
    // Any two ids but root's and the commands'.
    let inside = if gate.enabled { (0..NOGROUP).rev().find(|id| ![uid, gid].contains(id)) } else { None };
    let gates = if gate.enabled { gates } else { (0, 0) };
    Identity {
        supervisor_host_uid: supervisor.0,
        supervisor_host_gid: supervisor.1,
        gate_host_uid: gates.0,
        gate_host_gid: gates.1,
        gate_uid: inside.unwrap_or_default(),
        gate_gid: inside.unwrap_or_default(),
        separate_ids: true,
        ..own
    }
}

/// An id that means nothing else in the sandbox.
fn unused_id(rule: &IdentityRule, groups: &[MappedGroup]) -> u32 {
    let is_used =
        |id: u32| [rule.uid, rule.gid].contains(&id) || groups.iter().any(|group| group.inside_gid == id);
    (0..NOGROUP).rev().find(|id| !is_used(*id)).unwrap_or(NOGROUP)
}
