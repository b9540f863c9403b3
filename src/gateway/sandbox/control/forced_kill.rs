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

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        os::fd::{AsFd as _, OwnedFd},
        process::{Child, Command, Stdio},
    };

    use super::*;
    use crate::sys::pidfd::Pidfd;

    /// A shell that has said a word, and goes on until its input ends.
    fn shell(script: &str) -> (Child, OwnedFd) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let process = Pidfd::open(child.id().cast_signed()).unwrap();
        (child, process.into())
    }

    #[test]
    fn a_first_process_has_children_as_long_as_one_is_there_and_none_when_it_has_ended() {
        let (mut parent, process) = shell("exec 3<&0; cat <&3 >/dev/null & echo ready; wait");
        assert!(has_children(process.as_fd()));
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(!has_children(process.as_fd()), "what has ended has no child");

        let (mut alone, process) = shell("echo ready; read line");
        assert!(!has_children(process.as_fd()));
        drop(alone.stdin.take());
        alone.wait().unwrap();
    }
}
