//! Killing a command, and checking for its processes, without the supervisor.
//!
//! Uses the command's cgroup by path, and descriptors of the sandbox that were opened before any command ran in it.
//! The terminal decides when.

use std::{fs, os::fd::BorrowedFd};

use crate::{cgroup::kill, sandbox::control::handle::Sandbox, sys::process::ProcessIdentity};

impl Sandbox {
    /// Kills everything in a command's cgroup, in every hierarchy. Without cgroups nothing is done: the sandbox
    /// then serves one command and is killed as a whole.
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

    /// Whether a process of a command exists, without asking the supervisor.
    pub fn has_processes_of(&self, terminal_id: &str) -> bool {
        match self.cgroup().path() {
            Some(_) => self.cgroup().processes_left(terminal_id) > 0,
            None => has_children(self.supervisor()),
        }
    }
}

/// Whether the first process of a pid namespace has a child, dead or alive; `true` if that cannot be read.
fn has_children(supervisor: BorrowedFd<'_>) -> bool {
    let Ok(Some(ProcessIdentity { pid, .. })) = ProcessIdentity::of(supervisor) else { return false };
    let children = fs::read(format!("/proc/{pid}/task/{pid}/children"));
    children.map_or(true, |children| !children.is_empty())
}
