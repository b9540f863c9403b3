//! The cgroups between a gateway's and its sandboxes': one for each principal, with the limits of all its sandboxes
//! together.
//!
//! A principal is identified by its user id. Its cgroup exists while it has a sandbox: it is made with the first
//! one and removed with the last. It holds no process of its own.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::cgroup::{
    Hierarchy,
    directory::{self, CgroupError, CgroupLimitValues},
};

/// The prefix of principals' cgroups; the user id follows.
const PREFIX: &str = "principal-";

/// The share of the host's memory and process ids that one principal may use by default, in percent.
const SHARE_PERCENT: u64 = 80;

/// The share that all principals of a gateway may use together, in percent. The rest is left to the host.
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
    /// Fills in absent limits as a share of this host's resources.
    pub(crate) fn on_this_host(self) -> CgroupLimitValues {
        let share = percent(SHARE_PERCENT);
        CgroupLimitValues {
            memory_bytes: self.memory_bytes.or_else(|| memory_bytes().map(&share)),
            swap_bytes: None,
            socket_bytes: Some(directory::SOCKET_BYTES),
            pids: self.pids.or_else(|| process_ids().map(&share)),
            cpu_millis: None,
            cpu_weight: Some(self.cpu_weight),
        }
    }
}

/// The limits of all principals of a gateway together.
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

/// `None` where the kernel does not report it.
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

/// The path of a principal's cgroup below the gateway's.
pub(crate) fn path(gateway: &Path, uid: u32) -> PathBuf {
    gateway.join(format!("{PREFIX}{uid}"))
}

/// Makes a principal's cgroup, sets its limits and enables controllers for sandboxes. An existing one is brought to
/// the same state.
pub(crate) fn make(
    path: &Path,
    hierarchy: Hierarchy,
    controllers: &[String],
    limits: &CgroupLimitValues,
) -> Result<ConfiguredCgroup, CgroupError> {
    // The gateway's, above it, is there as long as the gateway: one that were made again would not be locked.
    directory::make_below(path)?;
    // Read the inode before setting limits: if the cgroup is replaced meanwhile, the new one is not taken for
    // configured.
    let made = ConfiguredCgroup { inode: inode_of(path)?, limits: *limits };
    directory::set_limits(path, hierarchy, controllers, limits)?;
    if hierarchy == Hierarchy::V2 {
        directory::enable_controllers(path, controllers)?;
    }
    Ok(made)
}

/// A principal's cgroup that this gateway has configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConfiguredCgroup {
    /// The kernel never reuses a cgroup's inode number.
    inode: u64,
    limits: CgroupLimitValues,
}

impl ConfiguredCgroup {
    /// Whether the cgroup at this path is still this one, with these limits.
    pub(crate) fn is_current(&self, path: &Path, limits: &CgroupLimitValues) -> bool {
        self.limits == *limits && inode_of(path).is_ok_and(|number| number == self.inode)
    }
}

fn inode_of(path: &Path) -> Result<u64, CgroupError> {
    std::fs::metadata(path)
        .map(|directory| directory.ino())
        .map_err(|cause| CgroupError::Open { path: path.to_owned(), cause })
}

/// Removes a principal's empty cgroup after one of its sandboxes was removed.
pub(crate) fn remove_above(sandbox: &Path) {
    if let Some(above) = sandbox.parent().filter(|above| is_principal_directory(above)) {
        // The kernel refuses while another sandbox is in it.
        let _ = std::fs::remove_dir(above);
    }
}

/// Removes principals' cgroups that hold no sandbox.
pub(crate) fn remove_empty(gateway: &Path) {
    for principal in all(gateway) {
        let _ = std::fs::remove_dir(principal);
    }
}

/// The principals' cgroups below a gateway's.
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
