//! The subreaper of an agent: a process between `provost acp` and an agent that is in no sandbox. It ends every
//! process that the agent leaves behind.
//!
//! An agent's processes may move into other sessions and process groups, and an orphan belongs to PID 1. Below a
//! subreaper (PR_SET_CHILD_SUBREAPER in prctl(2)) an orphan belongs to that instead. So the agent is started by a
//! process that has no other children: every process below it is the agent's. `provost acp` cannot be that process,
//! because it has an embedded gateway's children too and may be killed. The subreaper ends everything when the
//! other end of its socket is closed, for whatever reason. It confines nothing, and cannot follow processes that
//! others start for the agent (a service manager, a container daemon) or that become another user.

mod descendants;
mod process;

use std::{
    ffi::OsString,
    io::{PipeReader, PipeWriter},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
};

use nix::errno::Errno;

use crate::{sys::fdpass, wire};

pub use process::{GRACE_S, KILL_LIMIT_S, main};

/// `argv[0]` of this process.
pub const PROCESS_NAME: &str = "provost-subreaper";
/// The length of its first message: the errno with which the agent could not be started, or 0, as a little-endian
/// `i32`. Then follow a byte with the agent's exit status, or 128 plus its signal's number, and, when it is done, a
/// byte with the number of processes that are left.
pub const STARTED_BYTES: usize = 4;

/// The command that starts a subreaper for an agent. Its stdin must be one end of a socket pair, and [`send_pipes`]
/// gets the other end; its stdout must not be the editor's.
#[must_use]
pub fn command(agent: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // A key in a terminal or a signal to our group must not end it before its work is done.
    command.arg0(PROCESS_NAME).args(agent).process_group(0);
    command
}

/// Sends the agent's stdin and stdout, for which the subreaper waits.
///
/// # Errors
/// The errno of sendmsg(2): `EPIPE` when the subreaper is gone.
pub fn send_pipes(socket: &UnixStream, stdin: &PipeReader, stdout: &PipeWriter) -> Result<(), Errno> {
    let frame = wire::encode(&(), 2).map_err(|_| Errno::EMSGSIZE)?;
    fdpass::send(socket.as_fd(), &frame, &[stdin.as_fd(), stdout.as_fd()])
}
