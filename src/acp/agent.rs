//! The agent's process, in a process group of its own, with pipes for stdin and stdout.
//!
//! Its stderr is ours: what it says there goes where the editor looks for it. Nothing here reads messages.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep, timeout},
};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(3);
/// Between two looks at a group that is ending.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// What is said of an agent whose end nobody saw.
const UNKNOWN_STATUS: u8 = 125;

/// An agent that runs.
#[derive(Debug)]
pub(super) struct AgentProcess {
    child: Child,
    group: Option<Pid>,
}

/// Starts the agent. The first word is looked for in `PATH`.
pub(super) fn start(command: &[OsString]) -> io::Result<(AgentProcess, ChildStdin, ChildStdout)> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    Ok((AgentProcess { child, group }, stdin, stdout))
}

impl AgentProcess {
    /// Waits for the end of the agent's own process, and gives the status to exit with.
    pub(super) async fn ended(&mut self) -> u8 {
        match self.child.wait().await {
            Ok(status) => status_of(status),
            Err(error) => {
                tracing::error!(error = %error, "cannot wait for the agent");
                UNKNOWN_STATUS
            }
        }
    }

    /// Ends the agent and all that is in its group: TERM, and KILL after a grace. Returns the agent's status when none
    /// of them is left.
    pub(super) async fn stop(mut self) -> u8 {
        self.signal(Signal::SIGTERM);
        // A stopped process takes no signal but this before it goes on.
        self.signal(Signal::SIGCONT);
        let until = Instant::now() + GRACE;
        let in_time = timeout(GRACE, self.ended()).await;
        while in_time.is_ok() && self.group_is_there() && Instant::now() < until {
            sleep(LOOK_AGAIN).await;
        }
        self.signal(Signal::SIGKILL);
        match in_time {
            Ok(status) => status,
            Err(_) => self.ended().await,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the agent is in no sandbox: a group is all that it is known by"
    )]
    fn signal(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        match killpg(group, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::warn!(%errno, %signal, "cannot signal the agent"),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the agent is in no sandbox: a group is all that it is known by"
    )]
    fn group_is_there(&self) -> bool {
        self.group.is_some_and(|group| killpg(group, None).is_ok())
    }
}

/// As shells have it: the code, or 128 and the signal's number.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(UNKNOWN_STATUS)
}
