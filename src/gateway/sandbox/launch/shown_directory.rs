//! Shows a directory of the gateway's own in a sandbox, to be read.

use std::{
    fs::OpenOptions,
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    path::Path,
};

use crate::proto::supervisor::{Mount, mount::Kind};

/// The mount of the directory at this place, and its source. The directory itself is shown, so that files in it can be replaced.
pub(super) fn show(directory: &Path, place: &str) -> io::Result<(Mount, OwnedFd)> {
    // An ordinary user's supervisor opens it by a path without links.
    let path = directory.canonicalize()?;
    let options = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY;
    let opened = OpenOptions::new().read(true).custom_flags(options).open(&path)?;
    let source = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    let mount = Mount {
        kind: Kind::Bind.into(),
        source,
        target: place.into(),
        from_descriptor: true,
        read_only: true,
        no_exec: true,
        ..Mount::default()
    };
    Ok((mount, opened.into()))
}
