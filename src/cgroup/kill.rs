//! Kills a whole cgroup by its path, without the supervisor.
//!
//! A process is held by pidfd before its membership is checked again, so no other process is killed.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::directory::{self, CgroupError};
use crate::sys::pidfd::Pidfd;

/// Processes held at once between two readings of the members.
const SIGNAL_BATCH: usize = 64;

/// Kills everything in a cgroup and below it: by `cgroup.kill` if there is one, and then each remaining thread
/// group, because `cgroup.kill` misses those whose main thread has exited (Linux 6.18). Succeeds if the cgroup is
/// gone.
///
/// # Errors
/// [`CgroupError::Set`] when `cgroup.kill` cannot be written for another reason than that it is not there.
pub fn kill_tree(group: &Path) -> Result<(), CgroupError> {
    let by_cgroup = match directory::kill(group) {
        Err(CgroupError::Set { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        killed => killed,
    };
    for one in with_descendants(group) {
        kill_each(&one);
    }
    by_cgroup
}

/// How many processes are in a cgroup and below it.
#[must_use]
pub fn count(group: &Path) -> usize {
    with_descendants(group).iter().map(|one| directory::processes(one).map_or(0, |all| all.len())).sum()
}

fn kill_each(group: &Path) {
    // A cgroup that cannot be read is gone, or the caller tries again.
    let Ok(processes) = directory::processes(group) else { return };
    for some in processes.chunks(SIGNAL_BATCH) {
        let held: Vec<_> =
            some.iter().filter_map(|pid| Some((*pid, Pidfd::open(pid.cast_signed()).ok()?))).collect();
        let still = directory::processes(group).unwrap_or_default();
        for (pid, process) in held {
            // 0 stands for a process outside of our namespace.
            if pid > 0 && still.contains(&pid) {
                // ESRCH: gone by itself.
                let _ = process.signal(libc::SIGKILL);
            }
        }
    }
}

/// A cgroup and those below it.
fn with_descendants(group: &Path) -> Vec<PathBuf> {
    let mut all = vec![group.to_owned()];
    let mut next = 0;
    while let Some(one) = all.get(next) {
        let entries = std::fs::read_dir(one).into_iter().flatten().flatten();
        let nested: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        all.extend(nested);
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_in_a_group_and_below_it_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let [group, nested] = [directory.path().to_owned(), directory.path().join("a/b")];
        assert_eq!(count(&group), 0, "what cannot be read holds nothing that is known");
        std::fs::create_dir_all(&nested).unwrap();
        std::fs::write(group.join("cgroup.procs"), "11\n12\n").unwrap();
        std::fs::write(nested.join("cgroup.procs"), "13\n").unwrap();
        assert_eq!(count(&group), 3);
        assert_eq!(count(&nested), 1);
    }
}
