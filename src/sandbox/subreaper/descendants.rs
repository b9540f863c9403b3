//! The descendants of this process, found in /proc and signalled by pidfd.
//!
//! A pid in /proc may belong to another process by the time it is used. So a process is opened first, and then its
//! parent is read again, from this process downwards: a signal reaches no process that does not descend from this
//! one. A process that is missed because its parent has just exited is our child in the next scan.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use nix::sys::signal::Signal;

use crate::sys::{pidfd::Pidfd, process};

/// Processes that were sent TERM.
pub(super) type Signalled = HashSet<i32>;

/// Sends TERM to each descendant that has not had it, and CONT, so that a stopped one can handle it.
pub(super) fn terminate(signalled: &mut Signalled) {
    visit(|pid, process| {
        if signalled.insert(pid) {
            // It may have exited, or belong to another user. Whether it is gone is checked elsewhere.
            let _ = process.signal(Signal::SIGTERM as i32);
            let _ = process.signal(Signal::SIGCONT as i32);
        }
    });
}

/// Kills every descendant.
pub(super) fn kill() {
    visit(|_, process| {
        let _ = process.signal(Signal::SIGKILL as i32);
    });
}

/// The number of descendants, zombies included.
pub(super) fn count() -> usize {
    let mut count = 0;
    visit(|_, _| count += 1);
    count
}

/// Calls `show` for every descendant, parents before children.
fn visit(mut show: impl FnMut(i32, &Pidfd)) {
    let mut children = children_by_parent();
    let own = std::process::id().cast_signed();
    // This process needs no descriptor.
    let mut to_visit: Vec<(i32, Option<Pidfd>)> = vec![(own, None)];
    while let Some((parent, held)) = to_visit.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            // Out of descriptors: the next scan continues.
            let Ok(process) = Pidfd::open(child) else { continue };
            let is_its_child = process::parent_of(child).is_ok_and(|of| of == Some(parent));
            // While both processes are unreaped, both pids are theirs.
            let are_there = is_there(&process) && held.as_ref().is_none_or(is_there);
            if is_its_child && are_there {
                show(child, &process);
                to_visit.push((child, Some(process)));
            }
        }
    }
}

/// Whether it is not reaped yet, so that its pid cannot be reused.
fn is_there(process: &Pidfd) -> bool {
    // EPERM: it exists and belongs to another user.
    !matches!(process.signal(0), Err(nix::errno::Errno::ESRCH))
}

fn children_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Ok(Some(parent)) = process::parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_and_nobody_else() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 100 & read line"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let shell = child.id().cast_signed();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.clear();
            let mut below = HashSet::from([shell]);
            visit(|pid, _| {
                if below.contains(&pid) || process::parent_of(pid).is_ok_and(|of| of == Some(shell)) {
                    below.insert(pid);
                    seen.push(pid);
                }
            });
        }
        assert_eq!(seen[0], shell, "parents come first");
        let init = 1;
        visit(|pid, _| assert_ne!(pid, init));
        for pid in seen.into_iter().rev() {
            let _ = Pidfd::open(pid).and_then(|process| process.signal(Signal::SIGKILL as i32));
        }
        child.wait().expect("it is ours");
    }
}
