//! Kills and signals the processes of a cgroup, and no other: by its path, without the supervisor, or those that the supervisor lists.
//!
//! A pid may be reused after it was listed. A process that is listed again after its pidfd was opened is the one that the pidfd
//! holds, or it is dead.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
};

use super::directory::{self, CgroupError};
use crate::sys::pidfd::Pidfd;

/// Kills everything in a cgroup and below it: by `cgroup.kill` if there is one, and then each remaining thread
/// group, because `cgroup.kill` misses those whose main thread has exited (Linux 6.18). Succeeds if the cgroup is
/// gone.
///
/// # Errors
/// [`CgroupError::Set`] when `cgroup.kill` cannot be written for another reason than that it is not there.
pub fn kill_cgroup(group: &Path) -> Result<(), CgroupError> {
    let by_cgroup = match directory::kill(group) {
        Err(CgroupError::Set { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        killed => killed,
    };
    for one in with_descendants(group) {
        // A cgroup that cannot be read is gone, or the caller tries again.
        kill_members(|| {
            let pids = directory::processes(&one).unwrap_or_default();
            pids.into_iter().map(u32::cast_signed).collect()
        });
    }
    by_cgroup
}

/// How many processes are in a cgroup and below it.
#[must_use]
pub fn count(group: &Path) -> usize {
    with_descendants(group).iter().map(|one| directory::processes(one).map_or(0, |all| all.len())).sum()
}

/// Kills each of the members by its pidfd. What is forked meanwhile is left to the next call.
pub fn kill_members(mut members: impl FnMut() -> Vec<i32>) {
    let listed = members();
    for_each_member(&listed, members, |_, process| {
        // ESRCH: gone by itself.
        let _ = process.signal(libc::SIGKILL);
    });
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

/// Processes held at once between two readings of the members.
const BATCH: usize = 64;

/// Holds each process by a pidfd, a batch at a time, and acts on those that are still members then. One that cannot be opened is gone, or the
/// caller tries again; 0, which stands for a process outside of our namespace, is none that can be opened.
pub fn for_each_member(
    pids: &[i32],
    mut members: impl FnMut() -> Vec<i32>,
    mut act: impl FnMut(i32, &Pidfd),
) {
    for some in pids.chunks(BATCH) {
        let held: Vec<_> = some.iter().filter_map(|pid| Some((*pid, Pidfd::open(*pid).ok()?))).collect();
        let still: HashSet<i32> = members().into_iter().collect();
        for (pid, process) in held {
            if still.contains(&pid) {
                act(pid, &process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Child, Command},
    };

    use super::*;

    #[test]
    fn each_process_in_a_tree_is_killed_where_the_kernel_kills_no_group() {
        let directory = tempfile::tempdir().unwrap();
        let [group, nested] = [directory.path().join("group"), directory.path().join("group/a/b")];
        kill_cgroup(&group).expect("a group that is gone has nothing to kill");
        std::fs::create_dir_all(&nested).unwrap();
        let [mut above, mut below, mut outside] = sleepers();
        std::fs::write(group.join("cgroup.procs"), format!("0\n{}\n", above.id())).unwrap();
        std::fs::write(nested.join("cgroup.procs"), format!("{}\n", below.id())).unwrap();
        std::fs::write(directory.path().join("cgroup.procs"), format!("{}\n", outside.id())).unwrap();
        kill_cgroup(&group).unwrap();
        assert_eq!([signal_of(&mut above), signal_of(&mut below)], [Some(libc::SIGKILL); 2]);
        assert!(was_left(&mut outside));
    }

    #[test]
    fn a_group_that_cannot_be_killed_is_told_and_its_processes_are_killed_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path();
        std::fs::create_dir(group.join("cgroup.kill")).unwrap();
        let [mut member] = sleepers();
        std::fs::write(group.join("cgroup.procs"), format!("{}\n", member.id())).unwrap();
        let refused = kill_cgroup(group).unwrap_err();
        assert!(
            matches!(&refused, CgroupError::Set { cause, .. } if cause.kind() == io::ErrorKind::IsADirectory)
        );
        assert_eq!(signal_of(&mut member), Some(libc::SIGKILL));
    }

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

    fn sleepers<const COUNT: usize>() -> [Child; COUNT] {
        std::array::from_fn(|_| Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(child: &Child) -> i32 {
        child.id().cast_signed()
    }

    fn kill(_: i32, process: &Pidfd) {
        process.signal(libc::SIGKILL).unwrap();
    }

    /// The signal that it ends by. Waits for the end.
    fn signal_of(child: &mut Child) -> Option<i32> {
        child.wait().unwrap().signal()
    }

    /// Ends what was left alive. Whether it was.
    fn was_left(child: &mut Child) -> bool {
        let lives = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        lives
    }

    #[test]
    fn a_process_that_is_no_member_any_more_when_it_is_held_is_left_alone() {
        let [mut stays, mut leaves, mut enters] = sleepers();
        let still = vec![0, pid(&stays), pid(&enters)];
        let mut readings = 0;
        let members = || {
            readings += 1;
            still.clone()
        };
        for_each_member(&[0, pid(&leaves), pid(&stays)], members, kill);
        assert_eq!(signal_of(&mut stays), Some(libc::SIGKILL));
        assert!(was_left(&mut leaves), "its number may be another's by now");
        assert!(was_left(&mut enters), "nothing held it: the caller tries again");
        assert_eq!(readings, 1);
    }

    #[test]
    fn members_of_more_than_one_batch_are_acted_on_and_each_batch_is_read_again() {
        let mut children = sleepers::<3>();
        let mut pids = vec![0; BATCH - 1];
        pids.extend(children.iter().map(pid));
        let (mut readings, mut acted) = (0, Vec::new());
        let members = || {
            readings += 1;
            pids.clone()
        };
        for_each_member(&pids, members, |pid, process| {
            acted.push(pid);
            kill(pid, process);
        });
        assert_eq!((readings, &acted[..]), (2, &pids[BATCH - 1..]));
        for child in &mut children {
            assert_eq!(signal_of(child), Some(libc::SIGKILL));
        }
    }
}
