//! Limits on a sandbox or a principal, with the controllers that its cgroup in one hierarchy has.
//!
//! The names and formats of the files in v1 and v2 are left to cgroups-rs; which limits are set, and what a missing
//! file means, is decided here. Limits of single terminals are set in [`super::leaf`].

use std::path::Path;

use cgroups_rs::{MaxValue, cpu::CpuController, error::Error, memory::MemController, pid::PidController};

use super::{Hierarchy, directory::CgroupError};

/// Limits on a cgroup; absent ones are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimitValues {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of swap beyond the memory.
    pub swap_bytes: Option<u64>,
    /// Bytes in network sockets, where version 1 counts them apart; the memory when that is less.
    pub socket_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
    /// The share against sibling cgroups, from 1 to 10,000; the kernel's default is 100.
    pub cpu_weight: Option<u64>,
}

/// The period over which processor time is counted: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The most that the network sockets of a sandbox, and those of a principal, may hold in version 1, out of what the host has
/// for all (`net.ipv4.tcp_mem`).
pub const SOCKET_BYTES: u64 = 256 << 20;

/// Sets the limits that this cgroup's controllers support, and returns the names of those that were set.
///
/// # Errors
/// [`CgroupError::Limit`].
pub fn set(
    path: &Path,
    hierarchy: Hierarchy,
    controllers: &[String],
    limits: &CgroupLimitValues,
) -> Result<Vec<&'static str>, CgroupError> {
    let v2 = hierarchy == Hierarchy::V2;
    let has = |name: &str| controllers.iter().any(|one| one == name);
    let mut done = Vec::new();
    let mut put = |limit: &'static str, value: u64, result: Result<(), Error>| {
        done.push(limit);
        result.map_err(|cause| CgroupError::Limit { path: path.to_owned(), limit, value, cause })
    };
    if has("memory") {
        let memory = MemController::new(path.to_owned(), v2);
        if let Some(bytes) = limits.memory_bytes {
            put("memory_bytes", bytes, memory.set_limit(signed(bytes)))?;
        }
        if let Some(swap) = swap_value(path, v2, limits) {
            put("swap_bytes", swap, memory.set_memswap_limit(signed(swap)))?;
        }
    }
    if let (Some(sockets), Some(memory), true, false) =
        (limits.socket_bytes, limits.memory_bytes, has("memory"), v2)
    {
        limit_sockets(path, memory.min(sockets))?;
    }
    if let (Some(pids), true) = (limits.pids, has("pids")) {
        let controller = PidController::new(path.to_owned(), v2);
        put("pids", pids, controller.set_pid_max(MaxValue::Value(signed(pids))))?;
    }
    if let (Some(millis), true) = (limits.cpu_millis, has("cpu")) {
        let controller = CpuController::new(path.to_owned(), v2);
        let quota_us = signed(millis.saturating_mul(CPU_PERIOD_US / 1000));
        put("cpu_millis", millis, controller.set_cfs_quota_and_period(Some(quota_us), Some(CPU_PERIOD_US)))?;
    }
    if let (Some(weight), true) = (limits.cpu_weight, has("cpu")) {
        // Version 1 counts in shares, of which 1,024 are the default.
        let shares = if v2 { weight } else { (weight * 1024 / 100).max(2) };
        put("cpu_weight", weight, CpuController::new(path.to_owned(), v2).set_shares(shares))?;
    }
    Ok(done)
}

/// Version 2 counts the memory of network sockets as memory; version 1 has a file of its own for it, where the kernel has
/// one.
fn limit_sockets(path: &Path, bytes: u64) -> Result<(), CgroupError> {
    let file = path.join("memory.kmem.tcp.limit_in_bytes");
    if !file.exists() {
        return Ok(());
    }
    let value = bytes.to_string();
    std::fs::write(&file, &value).map_err(|cause| CgroupError::Set { path: file, value, cause })
}

/// What the swap file wants: swap alone in version 2, memory and swap together in version 1. `None` where the kernel
/// does not account for swap, so that there is none to limit, or where version 1 has no limit on memory to add to.
fn swap_value(path: &Path, v2: bool, limits: &CgroupLimitValues) -> Option<u64> {
    let swap = limits.swap_bytes?;
    let file = if v2 { "memory.swap.max" } else { "memory.memsw.limit_in_bytes" };
    if !path.join(file).exists() {
        return None;
    }
    if v2 { Some(swap) } else { limits.memory_bytes.map(|memory| memory.saturating_add(swap)) }
}

/// The crate counts with a sign, -1 meaning no limit. The highest number means no less to the kernel.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
