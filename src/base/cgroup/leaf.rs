//! The leaves of terminals: one cgroup for each, with its limits, usage, kill and removal.
//!
//! Works by descriptor below the sandbox's [`CgroupDirectory`]s. The v2 leaf is the one that is killed and that
//! must be empty in the end; v1 leaves are made only where a limit needs a controller of v1, or where there is no
//! v2. Nothing here blocks.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::{Mode, fstat, mkdirat},
    unistd::{UnlinkatFlags, read, unlinkat, write},
};

use super::{CgroupDirectory, Hierarchy};

/// Limits on one leaf; absent ones are not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeafLimits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of swap beyond the memory.
    pub swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
}

/// A kind of limit. Its number is the index that a failure reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LimitKind {
    /// Memory.
    Memory = 0,
    /// Swap.
    Swap = 1,
    /// Processes and threads.
    Pids = 2,
    /// Processor time.
    Cpu = 3,
}

impl LimitKind {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    fn controller(self) -> &'static str {
        match self {
            Self::Memory | Self::Swap => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Whether limits are required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitRequirement {
    /// A limit that cannot be set is a failure.
    Require,
    /// It is listed as unset.
    Prefer,
}

/// Why a leaf could not be made. Its parts are removed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeafError {
    /// The directory at this index among the sandbox's.
    #[error("make a leaf in directory {index}")]
    Directory {
        /// Which of the sandbox's directories.
        index: u32,
        /// Why.
        #[source]
        errno: Errno,
    },
    /// A limit that is required.
    #[error("set the {} limit of a leaf", .kind.name())]
    Limit {
        /// Which limit.
        kind: LimitKind,
        /// Why; `ENOTSUP` when no directory has the controller.
        #[source]
        errno: Errno,
    },
}

/// Whether a leaf is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The cgroup is removed, which the kernel allows only when it is empty.
    Removed,
    /// It still has processes.
    Busy,
}

/// A terminal's cgroups.
#[derive(Debug)]
pub struct Leaf {
    name: CString,
    /// The sandbox's cgroups, by index, in which this leaf has one; the killed one first.
    pub(super) cgroups: Vec<usize>,
    /// Limits as the kernel shows them: file name to value.
    pub limits: Vec<(String, String)>,
    /// Limits that could not be set.
    pub unset: Vec<LimitKind>,
    /// Whether a process was seen to be OOM-killed in it.
    pub(super) has_oom_kill: Cell<bool>,
}

/// The name of a terminal's leaf.
#[must_use]
pub fn name_of(terminal_id: &str) -> String {
    format!("t-{}", terminal_id.strip_prefix("term_").unwrap_or(terminal_id))
}

impl Leaf {
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }
}

/// The sandbox's cgroups, in which leaves are made.
#[derive(Debug)]
pub struct Leaves {
    pub(super) directories: Vec<CgroupDirectory>,
}

impl Leaves {
    /// Leaves will be made in these cgroups, the v2 one first.
    #[must_use]
    pub fn new(directories: Vec<CgroupDirectory>) -> Self {
        Self { directories }
    }

    /// Whether the sandbox has any cgroup.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.directories.is_empty()
    }

    /// Whether leaves are in v2, where processes can be cloned into them and killed at once.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.directories.first().is_some_and(|directory| directory.hierarchy == Hierarchy::V2)
    }

    /// Makes a leaf.
    pub fn make(
        &self,
        name: CString,
        limits: &LeafLimits,
        requirement: LimitRequirement,
    ) -> Result<Leaf, LeafError> {
        let mut leaf = Leaf {
            name,
            cgroups: Vec::new(),
            limits: Vec::new(),
            unset: Vec::new(),
            has_oom_kill: Cell::new(false),
        };
        match self.fill(&mut leaf, limits, requirement) {
            Ok(()) => Ok(leaf),
            Err(error) => {
                // It never held a process, so it is not busy.
                let _ = self.remove(&leaf);
                Err(error)
            }
        }
    }

    fn fill(
        &self,
        leaf: &mut Leaf,
        limits: &LeafLimits,
        requirement: LimitRequirement,
    ) -> Result<(), LeafError> {
        self.add_cgroup(leaf, 0)?;
        let wanted = [
            (LimitKind::Memory, limits.memory_bytes),
            (LimitKind::Swap, limits.swap_bytes),
            (LimitKind::Pids, limits.pids),
            (LimitKind::Cpu, limits.cpu_millis),
        ];
        for (kind, value) in wanted {
            let Some(value) = value else { continue };
            let result = self.set_limit(leaf, kind, value, limits);
            match (result, requirement) {
                (Ok(()), _) => {}
                (Err(LeafError::Limit { kind, .. }), LimitRequirement::Prefer) => leaf.unset.push(kind),
                (Err(LeafError::Directory { .. }), LimitRequirement::Prefer) => leaf.unset.push(kind),
                (Err(error), LimitRequirement::Require) => return Err(error),
            }
        }
        Ok(())
    }

    fn add_cgroup(&self, leaf: &mut Leaf, index: usize) -> Result<(), LeafError> {
        if leaf.cgroups.contains(&index) {
            return Ok(());
        }
        let directory = &self.directories[index];
        mkdirat(&directory.descriptor, leaf.name.as_c_str(), Mode::from_bits_truncate(0o755))
            .map_err(|errno| LeafError::Directory { index: index as u32, errno })?;
        leaf.cgroups.push(index);
        Ok(())
    }

    fn set_limit(
        &self,
        leaf: &mut Leaf,
        kind: LimitKind,
        value: u64,
        limits: &LeafLimits,
    ) -> Result<(), LeafError> {
        let failed = |errno| LeafError::Limit { kind, errno };
        let index = self.directory_with(kind.controller()).ok_or(failed(Errno::ENOTSUP))?;
        self.add_cgroup(leaf, index)?;
        let hierarchy = self.directories[index].hierarchy;
        // Thousandths of a processor: microseconds in each period of 100 ms.
        let cpu_quota = value.saturating_mul(100);
        let (file, content) = match (kind, hierarchy) {
            (LimitKind::Memory, Hierarchy::V2) => ("memory.max", value.to_string()),
            (LimitKind::Memory, Hierarchy::V1) => ("memory.limit_in_bytes", value.to_string()),
            (LimitKind::Swap, Hierarchy::V2) => ("memory.swap.max", value.to_string()),
            (LimitKind::Swap, Hierarchy::V1) => {
                // v1 counts both together.
                let memory = limits.memory_bytes.ok_or(failed(Errno::EINVAL))?;
                ("memory.memsw.limit_in_bytes", memory.saturating_add(value).to_string())
            }
            (LimitKind::Pids, _) => ("pids.max", value.to_string()),
            (LimitKind::Cpu, Hierarchy::V2) => ("cpu.max", format!("{cpu_quota} 100000")),
            (LimitKind::Cpu, Hierarchy::V1) => ("cpu.cfs_quota_us", cpu_quota.to_string()),
        };
        self.write(leaf, index, file, &content).map_err(failed)?;
        let read_back = self.read(leaf, index, file).map_err(failed)?;
        leaf.limits.push((file.to_owned(), read_back.trim().to_owned()));
        if (kind, hierarchy) == (LimitKind::Memory, Hierarchy::V2) {
            // Kill the whole command on OOM, not one process picked by the kernel.
            self.write(leaf, index, "memory.oom.group", "1").map_err(failed)?;
        }
        Ok(())
    }

    fn directory_with(&self, controller: &str) -> Option<usize> {
        self.directories
            .iter()
            .position(|directory| directory.controllers.iter().any(|one| one == controller))
    }

    /// The v2 leaf, for cloning a process into it; `None` on v1.
    ///
    /// # Errors
    /// The errno of openat(2).
    pub fn open_v2(&self, leaf: &Leaf) -> Result<Option<OwnedFd>, Errno> {
        if !self.is_v2() {
            return Ok(None);
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        openat(&self.directories[0].descriptor, leaf.name.as_c_str(), flags, Mode::empty()).map(Some)
    }

    /// The files into which a process writes `0` to join this leaf: those of every hierarchy, or of v1 only when it
    /// is cloned into the v2 leaf.
    ///
    /// # Errors
    /// The errno of openat(2).
    pub fn open_join_files(&self, leaf: &Leaf, born_inside: CloneIntoCgroup) -> Result<Vec<OwnedFd>, Errno> {
        let mut files = Vec::new();
        for &index in &leaf.cgroups {
            let file = match (self.directories[index].hierarchy, born_inside) {
                (Hierarchy::V2, CloneIntoCgroup::Yes) => continue,
                (Hierarchy::V2, CloneIntoCgroup::No) => "cgroup.procs",
                (Hierarchy::V1, _) => "tasks",
            };
            files.push(self.open(leaf, index, file, OFlag::O_WRONLY)?);
        }
        Ok(files)
    }

    /// Removes the leaf if it is empty.
    ///
    /// # Errors
    /// The errno of unlinkat(2) for anything but a busy group.
    pub fn remove(&self, leaf: &Leaf) -> Result<Removal, Errno> {
        for &index in &leaf.cgroups {
            let mut removed = self.remove_cgroup(leaf, index);
            if removed == Err(Errno::EBUSY) && self.remove_nested(leaf, index) {
                removed = self.remove_cgroup(leaf, index);
            }
            match removed {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(Errno::EBUSY) => return Ok(Removal::Busy),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Removal::Removed)
    }

    fn remove_cgroup(&self, leaf: &Leaf, index: usize) -> Result<(), Errno> {
        unlinkat(&self.directories[index].descriptor, leaf.name.as_c_str(), UnlinkatFlags::RemoveDir)
    }

    /// `cgroup.events`, which changes when the leaf becomes empty, for epoll's `EPOLLPRI`; `None` on v1.
    ///
    /// # Errors
    /// The errno of openat(2).
    pub fn open_events(&self, leaf: &Leaf) -> Result<Option<OwnedFd>, Errno> {
        if !self.is_v2() {
            return Ok(None);
        }
        self.open(leaf, 0, "cgroup.events", OFlag::O_RDONLY).map(Some)
    }

    /// Kills everything in the leaf, also what is being forked, except thread groups whose main thread has exited:
    /// the kernel signals only that thread (Linux 6.18). [`Self::processes`] finds those.
    ///
    /// # Errors
    /// `ENOTSUP` on v1, `ENOENT` on a kernel before 5.14; else the errno of write(2).
    pub fn kill(&self, leaf: &Leaf) -> Result<(), Errno> {
        if !self.is_v2() {
            return Err(Errno::ENOTSUP);
        }
        self.write(leaf, 0, "cgroup.kill", "1")
    }

    fn open(&self, leaf: &Leaf, index: usize, file: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        let mut path = Vec::with_capacity(64);
        path.extend_from_slice(leaf.name.as_bytes());
        path.push(b'/');
        path.extend_from_slice(file.as_bytes());
        openat(&self.directories[index].descriptor, path.as_slice(), flags | OFlag::O_CLOEXEC, Mode::empty())
    }

    fn write(&self, leaf: &Leaf, index: usize, file: &str, content: &str) -> Result<(), Errno> {
        let file = self.open(leaf, index, file, OFlag::O_WRONLY)?;
        write(&file, content.as_bytes()).map(drop)
    }

    pub(super) fn read(&self, leaf: &Leaf, index: usize, file: &str) -> Result<String, Errno> {
        let file = self.open(leaf, index, file, OFlag::O_RDONLY)?;
        let mut buffer = [0; 4096];
        let count = read(&file, &mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
    }
}

/// Whether a new process is cloned into its v2 cgroup, or joins it by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneIntoCgroup {
    /// By `CLONE_INTO_CGROUP`.
    Yes,
    /// It joins by writing `cgroup.procs`.
    No,
}

/// A command cannot make a cgroup, but the host can make one below a leaf and move processes into it. Those are
/// still the terminal's processes. Nothing above the leaf is read, and no link is followed.
///
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

/// The resource usage of a leaf. A number that the kernel does not provide is absent, never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode and in the kernel, in microseconds.
    pub cpu_us: Option<(u64, u64)>,
    /// Peak memory, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes read from and written to block devices.
    pub io_bytes: Option<(u64, u64)>,
    /// Whether a process was OOM-killed.
    pub memory_limit_hit: bool,
}

impl Leaves {
    /// The usage of the leaf so far.
    #[must_use]
    pub fn usage(&self, leaf: &Leaf) -> Usage {
        let mut usage = Usage::default();
        for &index in &leaf.cgroups {
            let directory = &self.directories[index];
            let has = |controller: &str| directory.controllers.iter().any(|one| one == controller);
            match directory.hierarchy {
                Hierarchy::V2 => {
                    // Every v2 group has this one, with or without the controller.
                    if let Ok(text) = self.read(leaf, index, "cpu.stat") {
                        usage.cpu_us = keyed(&text, "user_usec").zip(keyed(&text, "system_usec"));
                    }
                    if has("memory") {
                        usage.memory_peak_bytes = self.number(leaf, index, "memory.peak");
                        usage.memory_limit_hit |= self.has_oom_kill(leaf, index, "memory.events");
                    }
                    if has("io") {
                        usage.io_bytes = self.read(leaf, index, "io.stat").ok().map(|text| io_bytes(&text));
                    }
                }
                Hierarchy::V1 if has("memory") => {
                    usage.memory_peak_bytes = self.number(leaf, index, "memory.max_usage_in_bytes");
                    usage.memory_limit_hit |= self.has_oom_kill(leaf, index, "memory.oom_control");
                }
                Hierarchy::V1 => {}
            }
        }
        // A nested cgroup goes, with its count, as soon as it is empty.
        usage.memory_limit_hit |= leaf.has_oom_kill.get();
        leaf.has_oom_kill.set(usage.memory_limit_hit);
        usage
    }

    /// Whether a process was OOM-killed in the leaf or below it. Version 1, and version 2 with `memory_localevents`, count in the
    /// cgroup of the process alone (cgroups(7), `memory_events` of Linux).
    fn has_oom_kill(&self, leaf: &Leaf, index: usize, file: &str) -> bool {
        let is_counted = |text: &str| keyed(text, "oom_kill").is_some_and(|count| count > 0);
        is_counted(&self.read(leaf, index, file).unwrap_or_default())
            || self.nested_texts(leaf, index, file).iter().any(|text| is_counted(text))
    }

    fn number(&self, leaf: &Leaf, index: usize, file: &str) -> Option<u64> {
        self.read(leaf, index, file).ok()?.trim().parse().ok()
    }
}

/// The value after `key` in lines of "key value".
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key)?.1.trim().parse().ok())
}

/// The sums of `rbytes=` and `wbytes=` over all devices.
fn io_bytes(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
    };
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read_by_key() {
        let text = "usage_usec 30\nuser_usec 10\nsystem_usec 20\n";
        assert_eq!(keyed(text, "user_usec"), Some(10));
        assert_eq!(keyed(text, "usec"), None);
        assert_eq!(keyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(io_bytes("8:0 rbytes=5 wbytes=6 rios=1\n8:16 rbytes=10 wbytes=1\n"), (15, 7));
    }
}
