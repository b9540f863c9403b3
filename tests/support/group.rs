//! A cgroup of its own for each gateway under test, so that what is left behind can be told from what other
//! tests are doing at the same time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// One directory in each hierarchy that can be written; by default none, for what stays in the group of this process.
#[derive(Debug, Default)]
pub struct TestGroup {
    directories: Vec<PathBuf>,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl TestGroup {
    /// Makes the directories below the ones that this process is in, under a name that no gateway takes for its own. None on a host without writable trees.
    pub fn new() -> Self {
        let name = format!("test-of-provost-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directories = own_directories()
            .into_iter()
            .map(|at| at.join(&name))
            .filter(|directory| fs::create_dir(directory).is_ok())
            .collect();
        Self { directories }
    }

    /// The directories, the unified hierarchy's first where there is one.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Gives the group in the unified hierarchy to a user, as a service manager does.
    pub(crate) fn delegate(&self, user: u32) {
        for directory in self.directories.iter().filter(|directory| !directory.join("tasks").exists()) {
            for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
                let path = if file.is_empty() { directory.clone() } else { directory.join(file) };
                std::os::unix::fs::chown(path, Some(user), Some(user)).expect("root can give a group away");
            }
        }
    }

    /// Lines for sh(1) that move the shell into the group. v1 by `tasks`, which is cheap for a single thread.
    pub fn entry_script(&self) -> String {
        self.directories
            .iter()
            .map(|directory| {
                let file = if directory.join("tasks").exists() { "tasks" } else { "cgroup.procs" };
                format!("echo 0 > '{}' || exit 99\n", directory.join(file).display())
            })
            .collect()
    }

    /// Whether a process may enter it now: a group of version 2 that hands domain controllers down takes none (cgroups(7), "no internal
    /// processes"). A service manager starts the next gateway in a leaf.
    pub(crate) fn can_be_entered(&self) -> bool {
        let controllers = |directory: &PathBuf| {
            fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default()
        };
        self.directories.iter().all(|directory| controllers(directory).trim().is_empty())
    }

    /// Ids of all processes in the group and below, in any hierarchy, each once.
    pub fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.directories.iter().flat_map(|directory| processes_below(directory)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// All cgroups below the group, but for the leaf in which the gateway itself sits where it hands controllers
    /// down: nobody can remove the group that he is in.
    pub fn groups(&self) -> Vec<PathBuf> {
        let mut all = self.all_groups();
        all.retain(|group| !group.ends_with("provost-gateway"));
        all
    }

    fn all_groups(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for directory in &self.directories {
            walk(directory, &mut all);
        }
        all
    }

    /// Kills what is in the group and removes it; for the end of a test that has failed.
    pub fn destroy(&self) {
        for pid in self.processes() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::SIGKILL);
        }
        for _ in 0..200 {
            for group in self.all_groups().iter().rev().chain(&self.directories) {
                let _ = fs::remove_dir(group);
            }
            if self.directories.iter().all(|directory| !directory.exists()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// This process's directory in every mounted hierarchy that can be written. On pure v2, where a group with processes such
/// as this one cannot give controllers to those below, the nearest one above that does.
fn own_directories() -> Vec<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in membership.lines().rev() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        // Named hierarchies (systemd's) carry no limits; a group of cpuset takes nobody in before it is configured.
        if controllers.starts_with("name=") || controllers.contains("cpuset") {
            continue;
        }
        for mount in mounts.lines() {
            let Some((before, after)) = mount.split_once(" - ") else { continue };
            let fields: Vec<&str> = before.split(' ').collect();
            let kinds: Vec<&str> = after.split(' ').collect();
            let fits = match (kinds.first().copied(), controllers) {
                (Some("cgroup2"), "") => true,
                (Some("cgroup"), c) if !c.is_empty() => {
                    kinds.get(2).is_some_and(|o| c.split(',').all(|c| o.split(',').any(|o| o == c)))
                }
                _ => false,
            };
            if !fits || fields.len() < 5 {
                continue;
            }
            let below = path.strip_prefix(fields[3].trim_end_matches('/')).unwrap_or(path);
            let directory = Path::new(fields[4]).join(below.trim_start_matches('/'));
            if directory.join("cgroup.procs").exists() {
                let mount = Path::new(fields[4]);
                found.push(
                    directory
                        .ancestors()
                        .take_while(|at| at.starts_with(mount))
                        .find(hands_down)
                        .unwrap_or(&directory)
                        .to_owned(),
                );
                break;
            }
        }
    }
    found
}

/// Whether a directory gives those below it what limits need, and lets this process move others into them.
fn hands_down(directory: &&Path) -> bool {
    let enabled = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    ["memory", "pids"].iter().all(|wanted| enabled.split_whitespace().any(|name| name == *wanted))
        && fs::OpenOptions::new().write(true).open(directory.join("cgroup.procs")).is_ok()
}

fn walk(directory: &Path, all: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            all.push(entry.path());
            walk(&entry.path(), all);
        }
    }
}

fn processes_below(directory: &Path) -> Vec<u32> {
    let mut groups = vec![directory.to_owned()];
    walk(directory, &mut groups);
    groups
        .iter()
        .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())
        .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>())
        .filter(|&pid| pid != 0)
        .collect()
}
