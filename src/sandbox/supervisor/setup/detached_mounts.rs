//! In the privileged launcher: the plan's directories as detached mounts whose ids are mapped.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
};

use nix::errno::Errno;

use super::{descriptors::PlanDescriptors, session_files, stage::StageError};
use crate::{
    proto::supervisor::{Identity, Mount, SandboxPlan, Stage, mount::Kind},
    sys::{
        mount::{self, MountScope},
        namespace::{self, IdPair},
    },
    wire::launch::ID_MAPPED_MOUNTS_FROM,
};

/// Turns each source that came by descriptor into a detached mount, with its owner's ids mapped to the command's, and makes
/// what the session's sandboxes will have in common: in the host's user namespace, so that each of their supervisors can write to it.
/// Only the host's root may do that, and only outside of the sandbox's user namespace.
pub fn detach_sources(
    plan: &SandboxPlan,
    ids: &Identity,
    descriptors: &mut PlanDescriptors,
) -> Result<(), StageError> {
    let mut given = std::mem::replace(&mut descriptors.binds, VecDeque::with_capacity(plan.mounts.len()));
    let mut maps: Vec<((u32, u32, bool), OwnedFd)> = Vec::new();
    for (index, planned) in plan.mounts.iter().enumerate().filter(|(_, mount)| is_source(mount, ids)) {
        let step = StageError::of_step(Stage::Mount, index);
        if !planned.from_descriptor {
            let owner = (ids.command_host_uid, ids.command_host_gid);
            descriptors.binds.push_back(session_files::make_tmpfs(planned, owner).map_err(&step)?);
            continue;
        }
        let source = given.pop_front().ok_or_else(StageError::malformed_plan)?;
        if planned.given {
            descriptors.binds.push_back(source);
            continue;
        }
        let detached = mount::copy(source.as_fd(), c"", scope_of(planned)).map_err(&step)?;
        // The host's mounts are usually shared, so the copy must leave their peer group.
        mount::leave_peer_group(detached.as_fd(), scope_of(planned)).map_err(&step)?;
        if planned.idmap {
            let owner = (planned.disk_uid, planned.disk_gid, planned.keep_owners);
            if !maps.iter().any(|(known, _)| *known == owner) {
                maps.push((
                    owner,
                    id_map_namespace(planned, ids).map_err(StageError::of(Stage::CloneNamespaces))?,
                ));
            }
            for (_, namespace) in maps.iter().filter(|(known, _)| *known == owner) {
                mount::map_ids(detached.as_fd(), namespace.as_fd())
                    .map_err(StageError::of_step(Stage::IdMap, index + ID_MAPPED_MOUNTS_FROM as usize))?;
            }
        }
        descriptors.binds.push_back(detached);
    }
    Ok(())
}

/// Whether set-up finds a descriptor for this mount.
pub(super) fn is_source(mount: &Mount, ids: &Identity) -> bool {
    let is_made = mount.kind() == Kind::Tmpfs && !mount.shared.is_empty();
    mount.from_descriptor || (ids.privileged && is_made)
}

fn id_map_namespace(mount: &Mount, ids: &Identity) -> Result<OwnedFd, Errno> {
    let own = IdPair { inside: mount.disk_uid, outside: ids.command_host_uid };
    let uids = match mount.keep_owners {
        false => namespace::map_lines(&[own]),
        true => namespace::map_lines_with_others(own),
    };
    let mut gids = vec![IdPair { inside: mount.disk_gid, outside: ids.command_host_gid }];
    let more = ids.groups.iter().filter(|group| group.disk_gid != mount.disk_gid);
    gids.extend(more.map(|group| IdPair { inside: group.disk_gid, outside: group.host_gid }));
    namespace::make_user_namespace(&uids, &namespace::map_lines(&gids))
}

/// Whether a planned mount takes the mounts below it along.
pub(super) fn scope_of(mount: &Mount) -> MountScope {
    if mount.recursive { MountScope::Recursive } else { MountScope::Single }
}
