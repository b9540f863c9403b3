//! The level of the cgroup trees between a gateway and its sandboxes: one directory for each principal, with the bounds of
//! all its sandboxes together.
//!
//! A principal is known here by its user id alone. The directory is there while a sandbox of the principal is: whoever
//! makes a sandbox makes it, whoever removes the last one removes it. It holds no process.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::cgroup::{
    Hierarchy,
    directory::{self, CgroupError},
    limits::{self, CgroupLimitValues},
};

/// How the names of principals' directories begin; the user id follows.
const PREFIX: &str = "principal-";

/// Of a host's memory and of its process ids, what one principal may have where nothing else is configured, in percent.
const SHARE_PERCENT: u64 = 80;

/// What all principals of a gateway have together, in percent: two at their bounds leave the host something.
const ALL_PERCENT: u64 = 90;

/// Bounds on what all sandboxes of one principal use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrincipalLimits {
    /// Bytes of memory; absent: 80 % of the host's.
    pub memory_bytes: Option<u64>,
    /// Processes and threads; absent: 80 % of what the host can have.
    pub pids: Option<u64>,
    /// Its share of the processors against other principals', as the kernel's `cpu.weight`: 1 to 10,000.
    pub cpu_weight: u64,
}

impl Default for PrincipalLimits {
    fn default() -> Self {
        Self { memory_bytes: None, pids: None, cpu_weight: 100 }
    }
}

impl PrincipalLimits {
    /// With numbers of this host for what is absent.
    pub(crate) fn on_this_host(self) -> CgroupLimitValues {
        let share = percent(SHARE_PERCENT);
        CgroupLimitValues {
            memory_bytes: self.memory_bytes.or_else(|| memory_bytes().map(&share)),
            swap_bytes: None,
            socket_bytes: Some(limits::SOCKET_BYTES),
            pids: self.pids.or_else(|| process_ids().map(&share)),
            cpu_millis: None,
            cpu_weight: Some(self.cpu_weight),
        }
    }
}

/// Of all principals of a gateway together.
pub(crate) fn gateway_limits() -> CgroupLimitValues {
    let share = percent(ALL_PERCENT);
    CgroupLimitValues {
        memory_bytes: memory_bytes().map(&share),
        pids: process_ids().map(&share),
        ..CgroupLimitValues::default()
    }
}

fn percent(part: u64) -> impl Fn(u64) -> u64 {
    move |whole| whole / 100 * part
}

/// `None` where the kernel does not say: then the host has no number to take a share of.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn process_ids() -> Option<u64> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let bounds = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    bounds.into_iter().filter_map(number).min()
}

/// The directory of a principal below a gateway's.
pub(crate) fn path(gateway: &Path, uid: u32) -> PathBuf {
    gateway.join(format!("{PREFIX}{uid}"))
}

/// Makes the directory, sets its bounds and lets controllers through to sandboxes. One that is there is brought to the same
/// state, so that it does not matter who was first.
pub(crate) fn make(
    path: &Path,
    hierarchy: Hierarchy,
    controllers: &[String],
    limits: &CgroupLimitValues,
) -> Result<ConfiguredCgroup, CgroupError> {
    directory::make(path)?;
    // Before its bounds are set: of one that is replaced meanwhile, nobody says that it has them.
    let made = ConfiguredCgroup { inode: inode_of(path)?, limits: *limits };
    limits::set(path, hierarchy, controllers, limits)?;
    if hierarchy == Hierarchy::V2 {
        directory::enable_controllers(path, controllers)?;
    }
    Ok(made)
}

/// A principal's directory that was brought to its state by this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConfiguredCgroup {
    /// Its inode: the kernel gives none of a cgroup's twice.
    inode: u64,
    limits: CgroupLimitValues,
}

impl ConfiguredCgroup {
    /// Whether this is the directory that is there, with these bounds.
    pub(crate) fn is_current(&self, path: &Path, limits: &CgroupLimitValues) -> bool {
        self.limits == *limits && inode_of(path).is_ok_and(|number| number == self.inode)
    }
}

fn inode_of(path: &Path) -> Result<u64, CgroupError> {
    std::fs::metadata(path)
        .map(|directory| directory.ino())
        .map_err(|cause| CgroupError::Open { path: path.to_owned(), cause })
}

/// Removes the directory above a sandbox's that has been removed, if it is a principal's and nothing else is in it.
pub(crate) fn remove_above(sandbox: &Path) {
    if let Some(above) = sandbox.parent().filter(|above| is_principal_directory(above)) {
        // The kernel refuses for as long as another sandbox is in it.
        let _ = std::fs::remove_dir(above);
    }
}

/// Removes those below a gateway's directory in which no sandbox is.
pub(crate) fn remove_empty(gateway: &Path) {
    for principal in all(gateway) {
        let _ = std::fs::remove_dir(principal);
    }
}

/// The directories of principals below a gateway's.
pub(crate) fn all(gateway: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(gateway) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| is_principal_directory(path)).collect()
}

fn is_principal_directory(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|uid| uid.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_after_the_prefix_names_a_principal() {
        assert!(is_principal_directory(&path(Path::new("/sys/fs/cgroup/provost-1-2"), 1000)));
        for other in ["/principal-", "/principal-x", "/principal-1/sbx_1", "/provost-1", "/principal--1"] {
            assert!(!is_principal_directory(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn what_is_not_configured_is_a_share_of_the_host() {
        let limits = PrincipalLimits { pids: Some(7), ..PrincipalLimits::default() }.on_this_host();
        let whole = memory_bytes().unwrap();
        let memory = limits.memory_bytes.unwrap();
        assert!(memory > whole / 2 && memory < whole, "{memory} of {whole}");
        assert_eq!((limits.pids, limits.cpu_weight), (Some(7), Some(100)));
    }
}
