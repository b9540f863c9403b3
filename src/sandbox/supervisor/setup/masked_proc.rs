//! /proc of a sandbox: read-only, and without the files that are about the whole machine.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{errno::Errno, fcntl::AT_FDCWD};

use super::beneath::{NO_SUID_NO_DEV, fs_option, open_beneath};
use crate::sys::mount::{self, Attributes, MountScope};

/// Mounts a new proc twice: at `place`, read-only, for the commands; and detached and writable, for the supervisor until
/// the last write of set-up. Returns the second.
pub(super) fn mount_at(place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC);
    let proc = mount::make(c"proc", &[fs_option(c"hidepid", "invisible")], attributes)?;
    mount::attach(proc.as_fd(), place, c"")?;
    let writable = mount::copy(proc.as_fd(), c"", MountScope::Single)?;
    mount::restrict(proc.as_fd(), Attributes::READ_ONLY, MountScope::Single)?;
    let mut cover = None;
    for name in MASKED_PROC_FILES {
        mask_file(proc.as_fd(), Path::new(name), &mut cover)?;
    }
    let mut empty = None;
    for name in MASKED_PROC_DIRECTORIES {
        mask_directory(proc.as_fd(), Path::new(name), &mut empty)?;
    }
    Ok(writable)
}

/// Files of /proc that are about the whole machine and that no namespace limits: keys, kernel addresses, modules,
/// memory, timers, locks, and the kernel's command line (which may hold passwords). Files that programs read to
/// size themselves stay visible (cpuinfo, meminfo, stat, loadavg, uptime).
const MASKED_PROC_FILES: [&str; 29] = [
    "keys",
    "key-users",
    "kallsyms",
    "modules",
    "timer_list",
    "sched_debug",
    "schedstat",
    "slabinfo",
    "allocinfo",
    "vmallocinfo",
    "pagetypeinfo",
    "latency_stats",
    "locks",
    "kmsg",
    "kcore",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "sysrq-trigger",
    "iomem",
    "ioports",
    "interrupts",
    "bootconfig",
    "cmdline",
    "buddyinfo",
    "zoneinfo",
    "softirqs",
    "diskstats",
    "consoles",
];

/// Directories of /proc about the whole machine: devices, interrupts, file systems that others have mounted.
const MASKED_PROC_DIRECTORIES: [&str; 8] = ["acpi", "asound", "bus", "driver", "fs", "ide", "irq", "scsi"];

/// Mounts the null device over a file of /proc, if this kernel has it. `cover` is the first such mount, of which
/// the others are copies.
fn mask_file(proc: BorrowedFd<'_>, name: &Path, cover: &mut Option<OwnedFd>) -> Result<(), Errno> {
    // Resolved through the mount that was just attached.
    let file = match open_beneath(proc, name) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let null = match cover {
        Some(cover) => mount::copy(cover.as_fd(), c"", MountScope::Single)?,
        None => {
            let null = mount::copy(AT_FDCWD, c"/dev/null", MountScope::Single)?;
            let attributes = Attributes::NO_SET_ID.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
            mount::restrict(null.as_fd(), attributes, MountScope::Single)?;
            null
        }
    };
    mount::attach(null.as_fd(), file.as_fd(), c"")?;
    // Only an attached mount can be copied (open_tree(2)).
    cover.get_or_insert(null);
    Ok(())
}

/// Mounts an empty directory over one of /proc, if this kernel has it. `empty` is the first such mount.
fn mask_directory(proc: BorrowedFd<'_>, name: &Path, empty: &mut Option<OwnedFd>) -> Result<(), Errno> {
    let directory = match open_beneath(proc, name) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let laid = match empty {
        Some(empty) => mount::copy(empty.as_fd(), c"", MountScope::Single)?,
        None => {
            let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
            mount::make(c"tmpfs", &[fs_option(c"mode", "0555"), fs_option(c"nr_inodes", "1")], attributes)?
        }
    };
    mount::attach(laid.as_fd(), directory.as_fd(), c"")?;
    empty.get_or_insert(laid);
    Ok(())
}
