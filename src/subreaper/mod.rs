//! The leash on an agent: a process between `provost acp` and an agent that is in no sandbox, which ends what the agent
//! leaves behind.
//!
//! An agent's processes may flee into sessions and groups of their own, and what has lost its parent belongs to PID 1.
//! Below a subreaper (PR_SET_CHILD_SUBREAPER in prctl(2)) it belongs to that instead: so the agent is started by a
//! process that has no other children, and everything below it is the agent's. It cannot be `provost acp` itself, whose
//! children are an embedded gateway's too, and which may be killed: the leash ends everything when the other end of its
//! socket is closed, however that came. It confines nothing, and cannot follow what others start on the agent's behalf
//! (a service manager, a container's daemon), or what becomes another user.

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

pub use process::main;

/// `argv[0]` of the process.
pub const PROCESS_NAME: &str = "provost-leash";
/// How long what descends from the agent has after TERM. Then it is killed.
pub const GRACE_S: u64 = 3;
/// How long the killing may take. What the kernel does not let go by then is left, and said.
pub const KILL_LIMIT_S: u64 = 5;

/// The length of the first thing that is heard of it: the errno with which the agent could not be started, or 0, as a
/// little-endian `i32`. Then come a byte with the agent's exit status, or 128 and the number of its signal, and, when it is
/// done, a byte with the number of processes that are left.
pub const STARTED_BYTES: usize = 4;

/// The leash's command, for an agent's. Its stdin must become one end of a socket pair, the other end of which gets
/// [`send_pipes`]; its stdout must not be the editor's.
#[must_use]
pub fn command(agent: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // Neither a key pressed in a terminal nor a signal to our group ends it before it has done its work.
    command.arg0(PROCESS_NAME).args(agent).process_group(0);
    command
}

/// Hands the agent's stdin and stdout over, which it waits for.
///
/// # Errors
/// The errno of sendmsg(2): `EPIPE` when the leash is gone.
pub fn send_pipes(socket: &UnixStream, stdin: &PipeReader, stdout: &PipeWriter) -> Result<(), Errno> {
    let frame = wire::encode(&(), 2).map_err(|_| Errno::EMSGSIZE)?;
    fdpass::send(socket.as_fd(), &frame, &[stdin.as_fd(), stdout.as_fd()])
}
