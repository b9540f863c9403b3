//! The processes in a leaf and in the cgroups below it, and the removal of nested cgroups.
//!
//! A command cannot make a cgroup, but the host can make one below a leaf and move processes into it. Those are
//! still the terminal's processes. Nothing above the leaf is read, and no link is followed.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::{Mode, fstat},
    unistd::{UnlinkatFlags, read, unlinkat},
};

use super::leaf::{Leaf, Leaves};

/// Nested cgroups are followed to this depth below a leaf. Deeper ones are left to the end of the sandbox.
const MAX_DEPTH: u32 = 16;

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

impl Leaves {
    /// The thread groups of the leaf in every hierarchy, nested cgroups included, by their ids in our pid
    /// namespace, each once, at most `max`. A thread group whose main thread has exited is included while another
    /// thread lives; one that the host has moved in one hierarchy is found in the others.
    ///
    /// # Errors
    /// The errno of openat(2) or read(2), when the leaf can be read in no hierarchy. A nested cgroup that goes away
    /// meanwhile is empty.
    pub fn processes(&self, leaf: &Leaf, max: usize) -> Result<Vec<i32>, Errno> {
        let mut pids = Vec::new();
        let mut read = Err(Errno::ENOENT);
        for &index in &leaf.cgroups {
            let mut found = Vec::new();
            match self.processes_in(leaf, index, max, &mut found) {
                Ok(()) => read = Ok(()),
                Err(errno) if read.is_err() => read = Err(errno),
                Err(_) => {}
            }
            pids.append(&mut found);
        }
        read?;
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(max);
        Ok(pids)
    }

    fn processes_in(&self, leaf: &Leaf, index: usize, max: usize, found: &mut Vec<i32>) -> Result<(), Errno> {
        let top = self.open_cgroup(leaf, index)?;
        read_processes(&top, max, found)?;
        if has_nested(&top) {
            collect(top, max, MAX_DEPTH, found);
        }
        Ok(())
    }

    /// Removes empty cgroups below a leaf, deepest first. Returns whether there were any.
    pub(super) fn remove_nested(&self, leaf: &Leaf, index: usize) -> bool {
        match self.open_cgroup(leaf, index) {
            Ok(top) if has_nested(&top) => {
                remove_below(top, MAX_DEPTH);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// What this file says in each cgroup below a leaf.
    pub(super) fn nested_texts(&self, leaf: &Leaf, index: usize, file: &str) -> Vec<String> {
        let mut texts = Vec::new();
        if let Ok(top) = self.open_cgroup(leaf, index)
            && has_nested(&top)
        {
            collect_texts(top, file, MAX_DEPTH, &mut texts);
        }
        texts
    }

    fn open_cgroup(&self, leaf: &Leaf, index: usize) -> Result<OwnedFd, Errno> {
        openat(&self.directories[index].descriptor, leaf.name(), OFlag::O_RDONLY | DIRECTORY, Mode::empty())
    }
}

/// A directory of these file systems has two links, and one more for each directory in it.
fn has_nested(group: &OwnedFd) -> bool {
    fstat(group).is_ok_and(|status| status.st_nlink > 2)
}

fn collect(group: OwnedFd, max: usize, depth: u32, pids: &mut Vec<i32>) {
    for nested in nested(group) {
        if pids.len() >= max || depth == 0 {
            return;
        }
        // A cgroup that was removed meanwhile was empty.
        if read_processes(&nested.0, max, pids).is_ok() && has_nested(&nested.0) {
            collect(nested.0, max, depth - 1, pids);
        }
    }
}

fn collect_texts(group: OwnedFd, file: &str, depth: u32, texts: &mut Vec<String>) {
    for (nested, _) in nested(group) {
        if let Ok(opened) = openat(&nested, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            let mut buffer = [0; 4096];
            let count = read(&opened, &mut buffer).unwrap_or_default();
            texts.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        if depth > 0 && has_nested(&nested) {
            collect_texts(nested, file, depth - 1, texts);
        }
    }
}

fn remove_below(group: OwnedFd, depth: u32) {
    let Ok(parent) = group.try_clone() else { return };
    for (nested, name) in nested(group) {
        if depth > 0 && has_nested(&nested) {
            remove_below(nested, depth - 1);
        }
        // EBUSY: something lives in it. EACCES: its owner removes it, or the gateway with the sandbox.
        let _ = unlinkat(&parent, name.as_c_str(), UnlinkatFlags::RemoveDir);
    }
}

/// The cgroups in a cgroup, open.
fn nested(group: OwnedFd) -> Vec<(OwnedFd, CString)> {
    let Ok(parent) = group.try_clone() else { return Vec::new() };
    let Ok(mut entries) = Dir::from_fd(group) else { return Vec::new() };
    let names = entries.iter().flatten().filter(|entry| entry.file_type() == Some(Type::Directory));
    let names = names.map(|entry| entry.file_name().to_owned()).filter(|name| !is_dot_entry(name));
    let open = |name: CString| {
        let opened = openat(&parent, name.as_c_str(), OFlag::O_RDONLY | DIRECTORY, Mode::empty());
        opened.ok().map(|opened| (opened, name))
    };
    names.filter_map(open).collect()
}

fn is_dot_entry(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Opened for each reading: on v1 an open file keeps showing an old list.
fn read_processes(group: impl AsFd, max: usize, pids: &mut Vec<i32>) -> Result<(), Errno> {
    let file = openat(group, c"cgroup.procs", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while pids.len() < max {
        let count = read(&file, &mut buffer)?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = text.drain(..whole).collect::<Vec<u8>>();
        // 0 stands for a process outside of our namespace.
        pids.extend(parse_lines(&lines).filter(|pid| *pid > 0));
    }
    Ok(())
}

fn parse_lines(text: &[u8]) -> impl Iterator<Item = i32> {
    text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok())
}
