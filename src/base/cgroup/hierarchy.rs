//! Finds the mounted cgroup hierarchies, and the cgroup of each that this process was started in.
//!
//! Provost works below that cgroup only. Reads, and changes nothing.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::Hierarchy;
use crate::sys::file;

/// The leaf that a gateway moves itself to, so that its own cgroup can enable controllers.
pub const GATEWAY_LEAF: &str = "provost-gateway";

/// v1 controllers that sandboxes use.
const WANTED_V1: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// v2 controllers that leaves use.
pub const WANTED_V2: [&str; 4] = ["memory", "pids", "cpu", "io"];

/// This process's own cgroup in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCgroup {
    /// Its directory.
    pub path: PathBuf,
    /// Which kind of hierarchy.
    pub hierarchy: Hierarchy,
    /// In v1 the wanted controllers of the hierarchy; in v2 those available to the cgroup.
    pub controllers: Vec<String>,
}

/// Finds the own cgroups: the v2 one first if it is mounted, then those of v1 with a wanted controller.
///
/// # Errors
/// The errno of reading `/proc/self/cgroup` or `/proc/self/mountinfo`.
pub fn find_own() -> Result<Vec<OwnCgroup>, Errno> {
    let groups = parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
    Ok(first_of_each(groups, complete))
}

/// As [`find_own`], with the cgroup of this name in every hierarchy that has it, instead of this process's own.
/// Empty when no hierarchy has it.
///
/// # Errors
/// As [`find_own`].
pub fn find_named(group: &Path) -> Result<Vec<OwnCgroup>, Errno> {
    let (membership, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
    let named = parse(&renamed(&membership, group), &mounts);
    if !named.iter().any(|one| one.path.is_dir()) {
        return Ok(Vec::new());
    }
    let own = parse(&membership, &mounts);
    let of = |named: OwnCgroup| match named.path.is_dir() {
        true => Some(named),
        false => own
            .iter()
            .find(|own| own.hierarchy == named.hierarchy && own.controllers == named.controllers)
            .cloned(),
    };
    Ok(first_of_each(named, |named| of(named).and_then(complete)))
}

/// Directories that a search looks into, and how deep: far more than a host has.
const SEARCHED_DIRECTORIES_MAX: usize = 100_000;
const SEARCHED_DEPTH_MAX: usize = 16;

/// The cgroups of this name, wherever they are, in every hierarchy. For names that nothing else has.
///
/// # Errors
/// As [`find_own`].
pub fn search(name: &OsStr) -> Result<Vec<OwnCgroup>, Errno> {
    let mut found = Vec::new();
    let mut left = SEARCHED_DIRECTORIES_MAX;
    for root in find_named(Path::new("/"))? {
        let mut searched = vec![(root.path.clone(), 0)];
        while let Some((directory, depth)) = searched.pop()
            && left > 0
        {
            left -= 1;
            // One that is removed meanwhile has nothing.
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if entry.file_name() == name {
                    found.push(OwnCgroup { path: entry.path(), ..root.clone() });
                } else if depth < SEARCHED_DEPTH_MAX {
                    searched.push((entry.path(), depth + 1));
                }
            }
        }
    }
    Ok(found)
}

fn read(name: &str) -> Result<String, Errno> {
    file::read_at(nix::fcntl::AT_FDCWD, Path::new(name))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines of `/proc/self/cgroup` of a process in that cgroup.
fn renamed(membership: &str, group: &Path) -> String {
    let line = |line: &str| {
        let (hierarchy, _) = line.rsplit_once(":/")?;
        Some(format!("{hierarchy}:{}\n", group.display()))
    };
    membership.lines().filter_map(line).collect()
}

/// Adds what the cgroup's own files say; `None` when its directory is not visible.
fn complete(mut group: OwnCgroup) -> Option<OwnCgroup> {
    if group.path.file_name().is_some_and(|name| name == GATEWAY_LEAF) {
        group.path.pop();
    }
    if !group.path.is_dir() {
        return None;
    }
    if group.hierarchy == Hierarchy::V2 {
        let available = std::fs::read_to_string(group.path.join("cgroup.controllers")).unwrap_or_default();
        group.controllers =
            available.split_whitespace().filter(|name| WANTED_V2.contains(name)).map(str::to_owned).collect();
    }
    Some(group)
}

/// A hierarchy may be mounted at several places: below the root of a build's chroot, for example. Of each hierarchy the first mount
/// that `seen` sees anything of.
fn first_of_each(groups: Vec<OwnCgroup>, seen: impl Fn(OwnCgroup) -> Option<OwnCgroup>) -> Vec<OwnCgroup> {
    let mut found: Vec<(Vec<String>, OwnCgroup)> = Vec::new();
    for group in groups {
        let mounted = group.controllers.clone();
        let is_same =
            |(of, one): &(Vec<String>, OwnCgroup)| one.hierarchy == group.hierarchy && *of == mounted;
        if !found.iter().any(is_same)
            && let Some(group) = seen(group)
        {
            found.push((mounted, group));
        }
    }
    found.into_iter().map(|(_, group)| group).collect()
}

/// The cgroups of all mounts, version 2 first.
fn parse(membership: &str, mounts: &str) -> Vec<OwnCgroup> {
    let mut found: Vec<OwnCgroup> = mounts.lines().filter_map(|line| own_in(line, membership)).collect();
    found.sort_by_key(|group| group.hierarchy == Hierarchy::V1);
    found
}

/// A line of mountinfo (proc_pid_mountinfo(5)) together with the line of the same hierarchy in `/proc/self/cgroup`.
fn own_in(mount: &str, membership: &str) -> Option<OwnCgroup> {
    let (place, kind) = mount.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (unescape(place.next()?), unescape(place.next()?));
    let mut kind = kind.split(' ');
    let hierarchy = match kind.next()? {
        "cgroup2" => Hierarchy::V2,
        "cgroup" => Hierarchy::V1,
        _ => return None,
    };
    let options: Vec<&str> = kind.nth(1)?.split(',').collect();
    let controllers: Vec<String> = match hierarchy {
        Hierarchy::V2 => Vec::new(),
        Hierarchy::V1 => {
            let wanted: Vec<_> =
                WANTED_V1.iter().filter(|name| options.contains(name)).map(|&name| name.to_owned()).collect();
            if wanted.is_empty() {
                return None;
            }
            wanted
        }
    };
    let group = membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let same = match hierarchy {
            Hierarchy::V2 => names.is_empty(),
            Hierarchy::V1 => names.split(',').any(|name| controllers.iter().any(|one| one == name)),
        };
        same.then_some(path)
    })?;
    // In a container the mount may show only a part of the hierarchy.
    let below = Path::new(group).strip_prefix(&root).ok()?;
    // Joining an empty path would append a slash.
    let path = PathBuf::from(point).join(below).components().collect();
    Some(OwnCgroup { path, hierarchy, controllers })
}

/// mountinfo escapes blanks as octal numbers.
fn unescape(field: &str) -> String {
    ["\\040 ", "\\011\t", "\\012\n", "\\134\\"]
        .iter()
        .fold(field.to_owned(), |text, pair| text.replace(&pair[..4], &pair[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const HYBRID_MEMBERSHIP: &str = "\
9:name=systemd:/
4:memory:/jobs/a
2:cpu,cpuacct:/
0::/user
";

    #[test]
    fn a_hybrid_host_has_v2_first_and_each_wanted_v1_hierarchy() {
        let found = parse(HYBRID_MEMBERSHIP, HYBRID_MOUNTS);
        let seen: Vec<_> = found.iter().map(|one| (one.path.to_str().unwrap(), one.hierarchy)).collect();
        assert_eq!(
            seen,
            [
                ("/sys/fs/cgroup/unified/user", Hierarchy::V2),
                ("/sys/fs/cgroup/cpu,cpuacct", Hierarchy::V1),
                ("/sys/fs/cgroup/memory/jobs/a", Hierarchy::V1),
            ]
        );
        assert_eq!(found[1].controllers, ["cpu", "cpuacct"]);
    }

    #[test]
    fn another_group_s_name_takes_the_place_of_the_own_one_s_in_every_hierarchy() {
        let membership = renamed(HYBRID_MEMBERSHIP, Path::new("/held"));
        assert_eq!(membership, "9:name=systemd:/held\n4:memory:/held\n2:cpu,cpuacct:/held\n0::/held\n");
        let found = parse(&membership, HYBRID_MOUNTS);
        assert_eq!(found[0].path, Path::new("/sys/fs/cgroup/unified/held"));
        assert_eq!(found[2].path, Path::new("/sys/fs/cgroup/memory/held"));
    }

    #[test]
    fn of_a_hierarchy_that_is_mounted_more_than_once_the_first_mount_that_can_be_seen_counts() {
        let chroots = HYBRID_MOUNTS.replace("/sys/fs/cgroup", "/chroot/sys/fs/cgroup");
        let own = |mounts: &str, hidden: &str| {
            let seen = |group: OwnCgroup| (!group.path.starts_with(hidden)).then_some(group);
            first_of_each(parse(HYBRID_MEMBERSHIP, mounts), seen)
        };
        let once = own(HYBRID_MOUNTS, "/none");
        assert_eq!(once.len(), 3);
        assert_eq!(own(&(HYBRID_MOUNTS.to_owned() + &chroots), "/none"), once);
        assert_eq!(own(&(chroots + HYBRID_MOUNTS), "/chroot"), once);
    }

    #[test]
    fn a_mount_of_a_part_is_taken_from_its_root() {
        let mounts = "40 31 0:37 /pods/x /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(parse("0::/pods/x/y\n", mounts)[0].path, Path::new("/sys/fs/cgroup/y"));
        assert_eq!(parse("0::/elsewhere\n", mounts), []);
    }
}
