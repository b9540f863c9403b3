//! Shows sockets on which the gateway's side listens for one sandbox: of the caller's SSH agent, and in the place of the host's.

use std::{
    fs::{OpenOptions, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
};

use crate::proto::supervisor::{Mount, mount::Kind};

/// The mount of a socket in the sandbox's directory, which nobody but the gateway's user can enter, and its source. The socket is the
/// sandbox's alone, so all of its users may connect.
pub(super) fn show(directory: &Path, name: &str, inside: &str) -> io::Result<(Mount, OwnedFd)> {
    // An ordinary user's supervisor opens it by a path without links.
    let path = directory.canonicalize()?.join(name);
    let options = libc::O_PATH | libc::O_NOFOLLOW;
    let socket = OpenOptions::new().read(true).custom_flags(options).open(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    let source = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    let mount = Mount {
        kind: Kind::Bind.into(),
        source,
        target: inside.into(),
        from_descriptor: true,
        read_only: true,
        no_exec: true,
        ..Mount::default()
    };
    Ok((mount, socket.into()))
}
