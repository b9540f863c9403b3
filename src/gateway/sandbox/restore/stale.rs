//! Ends sandboxes of an earlier gateway that are not adopted, and removes them.
//!
//! Kills by the recorded cgroup, or by those of its name where the record is damaged; without one it asks the supervisor to shut down. Nothing is removed of a sandbox
//! that may be alive. Blocks.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::{
    cgroup::directory::CgroupError,
    proto::supervisor::{Shutdown, ToSupervisor, to_supervisor::Request},
    sandbox::{
        cgroup::{Killed, SandboxCgroup},
        control::connection,
        launch::control_socket_path,
        sandbox_state,
    },
    wire,
};

/// How long one sandbox may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What the name of every sandbox begins with: what has another name has no cgroup of a sandbox.
const SANDBOX_PREFIX: &[u8] = b"sbx_";
/// How many connections a supervisor may close without ending.
const MAX_DIALS: u32 = 16;

/// Why a sandbox was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveStaleError {
    /// Its cgroup cannot be killed or removed.
    #[error("end the sandbox by its cgroup")]
    Cgroup(#[from] CgroupError),
    /// It has no cgroup, and its supervisor did not shut down.
    #[error("the supervisor has not ended within {} s", END_TIMEOUT.as_secs())]
    Alive,
    /// It has ended, but its directory cannot be removed.
    #[error("remove the sandbox's directory")]
    Remove(#[source] io::Error),
}

/// Ends the sandbox of a directory and removes all of it.
///
/// # Errors
/// [`RemoveStaleError`]: the directory is still there.
pub(crate) fn remove(directory: &Path) -> Result<(), RemoveStaleError> {
    // Without a record the launch had started no process; a damaged one does not say what there is.
    let cgroup = match (sandbox_state::read(directory), directory.file_name()) {
        (Ok(state), _) => state.cgroup,
        (Err(_), Some(id)) if id.as_encoded_bytes().starts_with(SANDBOX_PREFIX) => SandboxCgroup::search(id),
        (Err(_), _) => SandboxCgroup::absent(),
    };
    match cgroup.kill()? {
        Killed::All => {}
        Killed::NoTree => end_by_socket(directory)?,
    }
    // The kernel refuses this while a process is in it.
    cgroup.remove_blocking(END_TIMEOUT)?;
    fs::remove_dir_all(directory).map_err(RemoveStaleError::Remove)
}

/// Only the supervisor holds the listening socket, so a refused connection proves that it is dead.
fn end_by_socket(directory: &Path) -> Result<(), RemoveStaleError> {
    let deadline = Instant::now() + END_TIMEOUT;
    for dialled in 0..MAX_DIALS {
        let mut socket = match dial(directory) {
            Ok(socket) => socket,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(_) => return Err(RemoveStaleError::Alive),
        };
        // Its responses are ignored: the end of the connection shows that it has ended.
        let asked = if dialled == 0 { ask_to_end(&mut socket) } else { Ok(()) };
        if asked.and_then(|()| wait_until_closed(&mut socket, deadline)).is_err()
            && Instant::now() >= deadline
        {
            break;
        }
    }
    Err(RemoveStaleError::Alive)
}

/// Connects through the directory's descriptor, because a path may be longer than a socket address. Does not block:
/// the backlog of a supervisor that hangs may be full.
pub(crate) fn dial(directory: &Path) -> io::Result<UnixStream> {
    let opened = File::open(directory)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let dialled: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(dialled.as_raw_fd(), &UnixAddr::new(&control_socket_path(opened.as_fd()))?)?;
    let stream = UnixStream::from(dialled);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn ask_to_end(socket: &mut UnixStream) -> io::Result<()> {
    socket.set_write_timeout(Some(END_TIMEOUT))?;
    for (sequence, request) in
        [(1, Request::Hello(connection::hello_request())), (2, Request::Shutdown(Shutdown { grace_ms: 0 }))]
    {
        let message = ToSupervisor { sequence, request: Some(request) };
        let frame = wire::encode(&message, 0).map_err(io::Error::other)?;
        socket.write_all(&frame)?;
    }
    Ok(())
}

fn wait_until_closed(socket: &mut UnixStream, deadline: Instant) -> io::Result<()> {
    let mut answers = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        if socket.read(&mut answers)? == 0 {
            return Ok(());
        }
    }
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::wire::launch::CONTROL_SOCKET;

    #[test]
    fn a_directory_goes_only_when_nobody_listens_in_it_any_more() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("sbx_1");
        fs::create_dir(&directory).unwrap();
        let listener = UnixListener::bind(directory.join(CONTROL_SOCKET)).unwrap();
        assert!(matches!(remove(&directory), Err(RemoveStaleError::Alive)));
        assert!(directory.exists(), "what may live keeps its directory");
        drop(listener);
        remove(&directory).unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn a_recorded_group_of_another_name_is_never_touched() {
        let plan = crate::proto::supervisor::SandboxPlan {
            sandbox_id: "sbx_1".into(),
            cgroups: vec![crate::proto::supervisor::CgroupDirectory {
                hierarchy: crate::proto::supervisor::cgroup_directory::Hierarchy::V2.into(),
                path: "/sys/fs/cgroup/unified".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(SandboxCgroup::from_plan(&plan).path(), None);
    }
}
