//! Acts on the processes of a cgroup, and on no other.
//!
//! A pid may be reused after it was listed. A process that is listed again after its pidfd was opened is the one that the pidfd
//! holds, or it is dead.

use std::collections::HashSet;

use crate::sys::pidfd::Pidfd;

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
pub(super) mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Child, Command},
    };

    use super::*;

    pub fn sleepers<const COUNT: usize>() -> [Child; COUNT] {
        std::array::from_fn(|_| Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(child: &Child) -> i32 {
        child.id().cast_signed()
    }

    fn kill(_: i32, process: &Pidfd) {
        process.signal(libc::SIGKILL).unwrap();
    }

    /// The signal that it ends by. Waits for the end.
    pub fn signal_of(child: &mut Child) -> Option<i32> {
        child.wait().unwrap().signal()
    }

    /// Ends what was left alive. Whether it was.
    pub fn was_left(child: &mut Child) -> bool {
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
