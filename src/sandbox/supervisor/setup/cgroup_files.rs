//! Shows the sandbox's own cgroups at `/sys/fs/cgroup`, read-only: programs size themselves by the limits that they find there (the
//! JVM, Go's automaxprocs, libuv).
//!
//! The root of each is the sandbox's cgroup, because it is the root of the cgroup namespace: what is above is not there. A host that
//! does not let them be mounted has programs without limits, as before.

use std::{
    ffi::CStr,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, fcntl::AT_FDCWD};

use super::{beneath::NO_SUID_NO_DEV, new_root::NewRoot};
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    sys::{
        file,
        mount::{self, Attributes, FsOption, MountScope},
    },
};

/// Where programs look.
const PLACE: &str = "/sys/fs/cgroup";

/// The controllers of version 1 by their mount options. One that is not here is not shown.
const CONTROLLERS: [&CStr; 13] = [
    c"cpu",
    c"cpuacct",
    c"cpuset",
    c"memory",
    c"blkio",
    c"pids",
    c"freezer",
    c"devices",
    c"net_cls",
    c"net_prio",
    c"perf_event",
    c"hugetlb",
    c"misc",
];

/// The JVM takes no limit from version 1 before it has found a mount of each of these, whatever is in it.
const AWAITED: [&str; 3] = ["cpu", "cpuacct", "cpuset"];
/// The file that is shown of such a hierarchy: in it the sandbox has no cgroup, and the others' are nobody's business. It says nothing.
const PLAIN_FILE: &CStr = c"cgroup.clone_children";

/// Shows the cgroups of the plan. Call this in their namespace.
pub(super) fn show(view: &NewRoot, directories: &[CgroupDirectory]) -> Result<(), Errno> {
    let has_limits = |wanted: Hierarchy| {
        directories.iter().any(|one| one.hierarchy == wanted && !one.controllers.is_empty())
    };
    let is_hybrid = has_limits(Hierarchy::V1);
    if has_limits(Hierarchy::V2) {
        let place = Path::new(PLACE).join(if is_hybrid { "unified" } else { "" });
        if let Ok(mount) = mount::make(c"cgroup2", &[], attributes()) {
            mount::attach(mount.as_fd(), view.directory(&place)?.as_fd(), c"")?;
        }
    }
    if is_hybrid {
        let text = file::read_at(AT_FDCWD, Path::new("/proc/self/cgroup"))?;
        for names in hierarchies(&String::from_utf8_lossy(&text)) {
            show_v1(view, directories, names)?;
        }
    }
    Ok(())
}

/// The controllers of each hierarchy of version 1, as /proc/PID/cgroup has them.
fn hierarchies(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.split(':').nth(1));
    names.filter(|names| !names.is_empty() && !names.starts_with("name="))
}

fn show_v1(view: &NewRoot, directories: &[CgroupDirectory], names: &str) -> Result<(), Errno> {
    let has = |wanted: &str| names.split(',').any(|name| name == wanted);
    let is_own = |one: &CgroupDirectory| {
        one.hierarchy == Hierarchy::V1 && one.controllers.iter().any(|name| has(name))
    };
    let is_own = directories.iter().any(is_own);
    if !is_own && !AWAITED.into_iter().any(has) {
        return Ok(());
    }
    let known = |name: &str| CONTROLLERS.into_iter().find(|known| known.to_bytes() == name.as_bytes());
    let Some(options) =
        names.split(',').map(|name| known(name).map(FsOption::Flag)).collect::<Option<Vec<_>>>()
    else {
        return Ok(());
    };
    // Another hierarchy of these controllers is not made: only the host's first cgroup namespace may.
    let Ok(hierarchy) = mount::make(c"cgroup", &options, attributes()) else { return Ok(()) };
    let place: PathBuf = Path::new(PLACE).join(names);
    if is_own {
        return mount::attach(hierarchy.as_fd(), view.directory(&place)?.as_fd(), c"");
    }
    // Before Linux 6.15 only an attached mount can be copied.
    let Ok(one) = mount::copy(hierarchy.as_fd(), PLAIN_FILE, MountScope::Single) else { return Ok(()) };
    mount::restrict(one.as_fd(), attributes(), MountScope::Single)?;
    let file = view.empty_file(&place.join("cgroup.clone_children"))?;
    mount::attach(one.as_fd(), file.as_fd(), c"")
}

fn attributes() -> Attributes {
    NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_1_are_those_with_controllers() {
        let text = "9:name=systemd:/\n4:memory:/a:b\n3:cpu,cpuacct:/\n0::/x\n";
        assert_eq!(hierarchies(text).collect::<Vec<_>>(), ["memory", "cpu,cpuacct"]);
    }
}
