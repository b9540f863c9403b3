//! Shows the socket by which commands reach their caller's SSH agent.

use std::{
    fs::{OpenOptions, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
};

use crate::{
    policy::environment::SSH_AGENT_SOCKET,
    proto::supervisor::{Mount, mount::Kind},
};

/// The socket's name in the sandbox's directory, which nobody but the gateway's user can enter.
pub(super) const AGENT_SOCKET: &str = "ssh-agent.sock";

/// The mount of the socket in that directory, and its source. The socket is the sandbox's alone, so all of its users may connect.
pub(super) fn show(directory: &Path) -> io::Result<(Mount, OwnedFd)> {
    // An ordinary user's supervisor opens it by a path without links.
    let path = directory.canonicalize()?.join(AGENT_SOCKET);
    let options = libc::O_PATH | libc::O_NOFOLLOW;
    let socket = OpenOptions::new().read(true).custom_flags(options).open(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    let source = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    let mount = Mount {
        kind: Kind::Bind.into(),
        source,
        target: SSH_AGENT_SOCKET.into(),
        from_descriptor: true,
        read_only: true,
        no_exec: true,
        ..Mount::default()
    };
    Ok((mount, socket.into()))
}
