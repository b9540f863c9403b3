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
    kill_listed(|| directory::processes(group).unwrap_or_default());
}

/// [`kill_each`] with the reading of the members as an argument, so that a test can change them in between.
fn kill_listed(mut members: impl FnMut() -> Vec<u32>) {
    for some in members().chunks(SIGNAL_BATCH) {
        // 0, which stands for a process outside of our namespace, is none that can be opened.
        let held: Vec<_> =
            some.iter().filter_map(|pid| Some((*pid, Pidfd::open(pid.cast_signed()).ok()?))).collect();
        let still = members();
        for (pid, process) in held {
            if still.contains(&pid) {
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
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Child, Command},
    };

    use super::*;

    fn sleepers<const COUNT: usize>() -> [Child; COUNT] {
        std::array::from_fn(|_| Command::new("sleep").arg("600").spawn().unwrap())
    }

    /// The signal that it ends by. Waits for the end.
    fn signal_of(child: &mut Child) -> Option<i32> {
        child.wait().unwrap().signal()
    }

    /// Ends what a kill has left alive. Whether it was.
    fn was_left(child: &mut Child) -> bool {
        let lives = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        lives
    }

    #[test]
    fn a_process_that_is_no_member_any_more_when_it_is_held_is_left_alone() {
        let [mut stays, mut leaves, mut enters] = sleepers();
        let (stayed, left, entered) = (stays.id(), leaves.id(), enters.id());
        let mut readings = [vec![0, left, stayed], vec![0, stayed, entered]].into_iter();
        kill_listed(|| readings.next().unwrap());
        assert_eq!(signal_of(&mut stays), Some(libc::SIGKILL));
        assert!(was_left(&mut leaves), "its number may be another's by now");
        assert!(was_left(&mut enters), "nothing held it: the caller tries again");
        assert_eq!(readings.next(), None);
    }

    #[test]
    fn members_of_more_than_one_batch_are_killed_and_each_batch_is_read_again() {
        let mut members = sleepers::<3>();
        let mut list = vec![0; SIGNAL_BATCH - 1];
        list.extend(members.iter().map(Child::id));
        let mut readings = 0;
        kill_listed(|| {
            readings += 1;
            list.clone()
        });
        for member in &mut members {
            assert_eq!(signal_of(member), Some(libc::SIGKILL));
        }
        assert_eq!(readings, 3);
    }

    #[test]
    fn each_process_in_a_tree_is_killed_where_the_kernel_kills_no_group() {
        let directory = tempfile::tempdir().unwrap();
        let [group, nested] = [directory.path().join("group"), directory.path().join("group/a/b")];
        kill_tree(&group).expect("a group that is gone has nothing to kill");
        std::fs::create_dir_all(&nested).unwrap();
        let [mut above, mut below, mut outside] = sleepers();
        std::fs::write(group.join("cgroup.procs"), format!("0\n{}\n", above.id())).unwrap();
        std::fs::write(nested.join("cgroup.procs"), format!("{}\n", below.id())).unwrap();
        std::fs::write(directory.path().join("cgroup.procs"), format!("{}\n", outside.id())).unwrap();
        kill_tree(&group).unwrap();
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
        let refused = kill_tree(group).unwrap_err();
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
}
