//! Kills a whole cgroup by its path, without the supervisor.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    directory::{self, CgroupError},
    held,
};

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
    let members = || {
        let pids = directory::processes(group).unwrap_or_default();
        pids.into_iter().map(u32::cast_signed).collect::<Vec<i32>>()
    };
    // ESRCH: gone by itself.
    held::for_each_member(&members(), members, |_, process| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::held::tests::{signal_of, sleepers, was_left};

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
