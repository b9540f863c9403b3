//! A copy of what the kernel says of the processors that sandboxes have (`/sys/devices/system/cpu`), in which programs look for their
//! number, their cores and their caches: `lscpu`, and what sizes itself by them.
//!
//! Only what stays as it is: no counters, frequencies or states, by which one could see what others do. Processors on which the
//! gateway may not run are left out. It is written once, and each sandbox shows it.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};

/// Where the host has its processors, and sandboxes have the copy.
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The most processors of which a copy is made; of more there is none, and programs do without.
const PROCESSORS_MAX: usize = 512;
/// The caches of one processor.
const CACHES_MAX: usize = 8;
/// How a directory of copies is named in the state directory; behind it stand the processors and the boot.
const PREFIX: &str = "processors-";

/// How the directory of a gateway is named that lives for one command.
const EMBEDDED: &[u8] = b"run-";
/// The longest name of a directory: limits.h.
const NAME_MAX_BYTES: usize = 255;

/// What is copied as it is.
const TOPOLOGY: [&str; 4] = ["core_id", "physical_package_id", "die_id", "cluster_id"];
const CACHE: [&str; 7] =
    ["level", "type", "size", "id", "coherency_line_size", "number_of_sets", "ways_of_associativity"];
/// Sets of processors, each as a list and as a mask.
const SIBLINGS: [(&str, &str); 4] = [
    ("core_cpus_list", "core_cpus"),
    ("thread_siblings_list", "thread_siblings"),
    ("core_siblings_list", "core_siblings"),
    ("package_cpus_list", "package_cpus"),
];
const SHARED: (&str, &str) = ("shared_cpu_list", "shared_cpu_map");

/// The copy in this state directory, made if it is not there.
///
/// # Errors
/// It cannot be made, or the host says nothing of its processors.
pub(crate) fn copy(state: &Path) -> io::Result<PathBuf> {
    let processors = own_processors()?;
    if processors.is_empty() || processors.len() > PROCESSORS_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let name = format!("{PREFIX}{}-{}", list(&processors), boot.trim());
    // A list of many single ones.
    let name = name.get(..NAME_MAX_BYTES).unwrap_or(&name);
    let home = home_of(state);
    let place = home.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    remove_others(home, name);
    let staged = home.join(format!(".{PREFIX}{}", std::process::id()));
    let made = write(Path::new(PROCESSORS), &staged, &processors).and_then(|()| fs::rename(&staged, &place));
    if made.is_err() {
        // Best effort: it takes some kilobytes.
        let _ = fs::remove_dir_all(&staged);
    }
    // Another gateway of this user may have been faster.
    if place.is_dir() { Ok(place) } else { made.map(|()| place) }
}

/// Where the copy lies: that of a gateway which lives for one command lies next to its directory, for the next one.
fn home_of(state: &Path) -> &Path {
    let own = state
        .parent()
        .filter(|own| own.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(EMBEDDED)));
    let is_private = |above: &&Path| {
        let user = nix::unistd::geteuid().as_raw();
        above.metadata().is_ok_and(|found| found.uid() == user && found.mode() & 0o022 == 0)
    };
    own.and_then(Path::parent).filter(is_private).unwrap_or(state)
}

/// Removes copies of another boot, or of another set of processors: no sandbox is left of the one, and few of the other.
fn remove_others(state: &Path, name: &str) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let is_copy = found.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if is_copy && found != name {
            // Best effort: it takes some kilobytes.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn own_processors() -> io::Result<BTreeSet<u32>> {
    let affinity = sched_getaffinity(Pid::from_raw(0))?;
    let all = 0..CpuSet::count();
    let has = all.filter(|number| affinity.is_set(*number).unwrap_or(false));
    Ok(has.filter_map(|number| u32::try_from(number).ok()).collect())
}

fn write(from: &Path, to: &Path, processors: &BTreeSet<u32>) -> io::Result<()> {
    let make = |directory: &Path| {
        fs::create_dir(directory)?;
        // Whatever the gateway's umask is, commands read it.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
    };
    make(to)?;
    let own = format!("{}\n", list(processors));
    for (name, text) in [("online", own.as_str()), ("present", &own), ("possible", &own), ("offline", "\n")] {
        put(&to.join(name), text)?;
    }
    copy_file(from, to, "kernel_max")?;
    for number in processors {
        let name = format!("cpu{number}");
        let (from, to_one) = (from.join(&name), to.join(&name));
        make(&to_one)?;
        let (topology, caches) = (to_one.join("topology"), to_one.join("cache"));
        make(&topology)?;
        for name in TOPOLOGY {
            copy_file(&from.join("topology"), &topology, name)?;
        }
        for siblings in SIBLINGS {
            copy_set(&from.join("topology"), &topology, siblings, processors)?;
        }
        make(&caches)?;
        for index in (0..CACHES_MAX).map(|index| format!("index{index}")) {
            let from = from.join("cache").join(&index);
            let Some(shared) = read_set(&from, SHARED.0) else { break };
            match shared.intersection(processors).next() {
                Some(first) if first != number => {
                    symlink(format!("../../cpu{first}/cache/{index}"), caches.join(&index))?;
                }
                _ => {
                    let place = caches.join(&index);
                    make(&place)?;
                    for name in CACHE {
                        copy_file(&from, &place, name)?;
                    }
                    copy_set(&from, &place, SHARED, processors)?;
                }
            }
        }
    }
    Ok(())
}

/// What this kernel does not say is left out.
fn copy_file(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    match fs::read(from.join(name)) {
        Ok(content) => put(&to.join(name), content),
        Err(_) => Ok(()),
    }
}

fn copy_set(from: &Path, to: &Path, (as_list, as_mask): (&str, &str), own: &BTreeSet<u32>) -> io::Result<()> {
    let Some(set) = read_set(from, as_list) else { return Ok(()) };
    let set = set.intersection(own).copied().collect();
    put(&to.join(as_list), format!("{}\n", list(&set)))?;
    put(&to.join(as_mask), format!("{}\n", mask(&set)))
}

fn put(file: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(file, content)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o444))
}

fn read_set(directory: &Path, name: &str) -> Option<BTreeSet<u32>> {
    parse(fs::read_to_string(directory.join(name)).ok()?.trim())
}

/// A set such as `0-3,8`.
fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let mut set = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? > u16::MAX.into() {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

fn list(set: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range =
        |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

/// As the kernel writes masks: words of 32 bits in hexadecimal, the highest first.
fn mask(set: &BTreeSet<u32>) -> String {
    let words = set.last().map_or(1, |last| last / 32 + 1);
    let word = |at: u32| {
        (0..32).filter(|bit| set.contains(&(at * 32 + bit))).fold(0_u32, |word, bit| word | 1 << bit)
    };
    let texts = (0..words).rev().map(|at| format!("{:08x}", word(at)));
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_the_kernel_writes_them() {
        for text in ["0", "0-3", "0-3,8", "1,3,5-6", "63-65"] {
            assert_eq!(list(&parse(text).unwrap()), text);
        }
        assert_eq!(mask(&parse("0-3,8").unwrap()), "0000010f");
        assert_eq!(mask(&parse("32-33").unwrap()), "00000003,00000000");
        for bad in ["x", "3-1", "0-4294967295", "1-"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_copy_has_the_processors_of_this_process_and_nothing_that_changes() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join("processors-of-an-earlier-boot")).unwrap();
        let Ok(place) = copy(state.path()) else { return };
        assert_eq!(copy(state.path()).unwrap(), place);
        let own = own_processors().unwrap();
        assert_eq!(read_set(&place, "online"), Some(own.clone()));
        let first = own.first().unwrap();
        assert!(place.join(format!("cpu{first}/topology/core_id")).is_file());
        for changing in ["cpufreq", "cpuidle", "thermal_throttle", "power", "uevent"] {
            assert!(!place.join(format!("cpu{first}/{changing}")).exists() && !place.join(changing).exists());
        }
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1);
        let embedded = state.path().join("run-1/state");
        fs::create_dir_all(&embedded).unwrap();
        assert_eq!(copy(&embedded).unwrap(), place, "the next one has it");
    }
}
