//! The groups of the host that are mapped into a sandbox in addition to its owner's own.
//!
//! Without a mapping for a file's group the kernel lets no command write the file. Mapped are the groups of the
//! roots, and of their direct entries that belong to the owner or to one of the owner's groups, such as a directory
//! that a service may read. Deeper entries are not read. Commands get no more rights than the owner has.

use std::{ffi::CString, os::fd::AsFd};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag},
    sys::stat::{FileStat, Mode, fstat, fstatat},
};

use crate::{
    proto::supervisor::MappedGroup,
    sandbox::{roots::Root, spec::SandboxSpec},
};

/// The most additional groups. Files of further groups cannot be written.
const MAX_GROUPS: usize = 16;
/// The most entries of a root that are read.
const MAX_ENTRIES: usize = 512;

/// The groups that the files in the sandbox's roots need.
pub(super) fn groups_of_roots(spec: &SandboxSpec) -> Result<Vec<MappedGroup>, Errno> {
    let mut found = Vec::new();
    // For the host's root, commands act as each root directory's own owner and group.
    if spec.owner.uid == 0 {
        return Ok(found);
    }
    for root in &spec.roots {
        add(&mut found, spec, fstat(&root.descriptor)?.st_gid);
    }
    for root in &spec.roots {
        for entry in entries(root) {
            if entry.st_uid == spec.owner.uid || spec.groups.contains(&entry.st_gid) {
                add(&mut found, spec, entry.st_gid);
            }
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<MappedGroup>, spec: &SandboxSpec, disk_gid: u32) {
    let is_known = disk_gid == spec.owner.gid || found.iter().any(|group| group.disk_gid == disk_gid);
    if !is_known && found.len() < MAX_GROUPS {
        let member = spec.groups.contains(&disk_gid);
        found.push(MappedGroup { disk_gid, member, ..MappedGroup::default() });
    }
}

/// The direct entries of a root. For an unreadable root there are none.
fn entries(root: &Root) -> Vec<FileStat> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut directory) = Dir::openat(root.descriptor.as_fd(), ".", flags, Mode::empty()) else {
        return Vec::new();
    };
    let names: Vec<_> =
        directory.iter().flatten().take(MAX_ENTRIES).map(|entry| entry.file_name().to_owned()).collect();
    let look =
        |name: &CString| fstatat(root.descriptor.as_fd(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok();
    names.iter().filter_map(look).collect()
}
