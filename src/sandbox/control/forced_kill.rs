//! The gateway's own hand on a command: what it does, and sees, without the supervisor.
//!
//! By the command's cgroup, named from here, and by the descriptors of the sandbox that were opened before anything ran
//! in it. It asks the supervisor nothing and tells it nothing; when to do this is the terminal's to decide.

use std::{fs, os::fd::BorrowedFd};

use crate::{cgroup::kill, sandbox::control::handle::Sandbox, sys::process::ProcessIdentity};

impl Sandbox {
    /// Kills everything in a command's cgroup, in every hierarchy. Without a tree nothing is done: then the sandbox is the
    /// command's own, to be killed as a whole.
    pub async fn kill_command(&self, terminal_id: &str) {
        let leaves = self.cgroup().leaves(terminal_id);
        let kill =
            move || leaves.iter().filter(|leaf| leaf.exists()).try_for_each(|leaf| kill::kill_tree(leaf));
        let problem = match tokio::task::spawn_blocking(kill).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(
            sandbox.id = self.id(),
            terminal.id = terminal_id,
            problem,
            "cannot kill a command's cgroup"
        );
    }

    /// Whether something of a command is there, seen without its supervisor.
    pub fn has_processes_of(&self, terminal_id: &str) -> bool {
        match self.cgroup().path() {
            Some(_) => self.cgroup().processes_left(terminal_id) > 0,
            None => has_children(self.supervisor()),
        }
    }
}

/// Whether the first process of a pid namespace has a child, dead or alive. When that cannot be seen, it may.
fn has_children(supervisor: BorrowedFd<'_>) -> bool {
    let Ok(Some(ProcessIdentity { pid, .. })) = ProcessIdentity::of(supervisor) else { return false };
    let children = fs::read(format!("/proc/{pid}/task/{pid}/children"));
    children.map_or(true, |children| !children.is_empty())
}
