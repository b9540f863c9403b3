//! Who commands are where the ids of a root's files cannot be mapped to an id of the sandbox's own: its owner.
//!
//! A gateway of root maps them where the file systems can. On others (overlayfs, ramfs) commands act as the owner of the roots
//! itself; so they do where root may not map ids at all, and can then only be root, without any capability.

use std::os::fd::{AsFd, OwnedFd};

use nix::{
    sys::stat::{FileStat, fstat},
    unistd::{Uid, User},
};

use crate::{
    policy::profile::Access,
    proto::supervisor::{Mount, mount::Kind},
    sandbox::{
        host::Host,
        launch::error::{LaunchError, no_id_mapping},
        roots::{Root, RootRole},
        spec::{Owner, SandboxSpec, Shortfall},
    },
};

/// The owner of roots whose ids cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RootsOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Whom commands have to be. `None`: the ids of all roots that they write to can be mapped, or are the gateway's own.
///
/// # Errors
/// [`LaunchError`]: commands would have to be several users, or one that they cannot be.
pub(super) fn roots_owner(
    host: &Host,
    spec: &SandboxSpec,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<Option<RootsOwner>, LaunchError> {
    let writes = |root: &&Root| {
        !matches!(root.role, RootRole::ReadOnly | RootRole::Volume)
            && spec.profile.filesystem.workspace == Access::Write
    };
    let look = |root: &Root| fstat(&root.descriptor).map_err(LaunchError::Root);
    let written: Vec<(&Root, FileStat)> = spec
        .roots
        .iter()
        .filter(writes)
        .map(|root| Ok((root, look(root)?)))
        .collect::<Result<_, LaunchError>>()?;
    if !host.is_privileged() {
        let (uid, _) = host.own_ids();
        let Some(lacks) = host.lacks_of_root() else { return Ok(None) };
        if let Some((root, found)) = written.iter().find(|(_, found)| found.st_uid != uid) {
            return Err(LaunchError::ForeignRoot { path: root.path.clone(), owner: found.st_uid, lacks });
        }
        shortfalls.push(Shortfall {
            protection: "identity".into(),
            reason: format!("commands run as uid {uid}, without capabilities: this process lacks {lacks}"),
        });
        return Ok(None);
    }
    for (root, found) in &written {
        if host.maps_ids(root.descriptor.as_fd()).map_err(LaunchError::Root)? {
            continue;
        }
        // For the host's root, commands act as each root directory's own owner; here they cannot be several.
        let owner = match spec.owner {
            Owner { uid: 0, .. } => RootsOwner { uid: found.st_uid, gid: group_of(found) },
            Owner { uid, gid } => RootsOwner { uid, gid },
        };
        if written.iter().any(|(_, other)| other.st_uid != owner.uid) {
            return Err(no_id_mapping(&root.path));
        }
        let reason = format!("{}: commands run as uid {}, its owner", no_id_mapping(&root.path), owner.uid);
        shortfalls.push(Shortfall { protection: "id-mapped-mounts".into(), reason });
        return Ok(Some(owner));
    }
    Ok(None)
}

/// Leaves out volumes that commands could not be the owner of: they are covered then, and keep nothing from running.
pub(super) fn leave_out_foreign_volumes(
    host: &Host,
    owner: Option<RootsOwner>,
    spec: &mut SandboxSpec,
) -> Result<(), LaunchError> {
    let is_shared = spec.profile.filesystem.shared_workspaces;
    let mut kept = Vec::with_capacity(spec.roots.len());
    for root in std::mem::take(&mut spec.roots) {
        let is_kept = root.role != RootRole::Volume || {
            let found = fstat(&root.descriptor).map_err(LaunchError::Root)?.st_uid;
            let is_callers = spec.owner.uid == 0 || found == spec.owner.uid || is_shared;
            let is_writable = match owner {
                Some(owner) => found == owner.uid,
                None if host.is_privileged() => {
                    host.maps_ids(root.descriptor.as_fd()).map_err(LaunchError::Root)?
                }
                None => host.lacks_of_root().is_none() || found == host.own_ids().0,
            };
            is_callers && is_writable
        };
        if is_kept {
            kept.push(root);
        }
    }
    spec.roots = kept;
    Ok(())
}

/// The owner's own group: a directory may have the group of the one above, in which its owner is no member.
fn group_of(directory: &FileStat) -> u32 {
    let known = User::from_uid(Uid::from_raw(directory.st_uid)).ok().flatten();
    known.map_or(directory.st_gid, |user| user.gid.as_raw())
}

/// Shows with its own ids what is on a file system that cannot map them and is only read, or belongs to whom the commands are.
pub(super) fn leave_unmapped(
    host: &Host,
    owner: Option<RootsOwner>,
    mounts: &mut [Mount],
    sources: &[OwnedFd],
) -> Result<(), LaunchError> {
    let with_source = mounts.iter_mut().filter(|mount| mount.from_descriptor);
    for (mount, source) in with_source.zip(sources).filter(|(mount, _)| mount.idmap) {
        let is_only_read = mount.read_only || matches!(mount.kind(), Kind::Overlay | Kind::Layer);
        let is_commands_own = owner.is_some_and(|owner| owner.uid == mount.disk_uid);
        if (is_only_read || is_commands_own) && !host.maps_ids(source.as_fd()).map_err(LaunchError::Root)? {
            mount.idmap = false;
        }
    }
    Ok(())
}
