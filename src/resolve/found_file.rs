//! What is known of a file that was found: its identity, whether it is still the same, and the first line of a script.

use std::{
    fs::{self, Metadata},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use super::shebang;
use crate::policy::command::program::{FileId, PathStability, Resolved};

/// A file cannot be read, or was changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread;

/// The first line of a file, if it is a script.
pub(super) fn first_line(file: &FileId) -> Result<Option<shebang::Shebang>, Unread> {
    // Do not block on a pipe in its place, and do not follow a link.
    let opened = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(&file.path)
        .map_err(|_| Unread)?;
    let metadata = opened.metadata().map_err(|_| Unread)?;
    if !metadata.is_file() || !is_identity(file, &metadata) {
        return Err(Unread);
    }
    let mut beginning = Vec::with_capacity(shebang::MAX_SHEBANG_BYTES);
    opened.take(shebang::MAX_SHEBANG_BYTES as u64).read_to_end(&mut beginning).map_err(|_| Unread)?;
    Ok(shebang::parse(&beginning))
}

/// The file at a real path, which was looked for at another one. A path that is not UTF-8 is not known.
pub(super) fn to_resolved(path: &Path, metadata: &Metadata, found_at: &Path, way: PathStability) -> Resolved {
    match (path.to_str(), found_at.to_str()) {
        (Some(path), Some(found_at)) if metadata.is_file() => Resolved::File(FileId {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_nanos: changed_nanos(metadata),
            lookup_path: found_at.to_owned(),
            stability: way,
        }),
        _ if metadata.is_file() => Resolved::Unknown,
        _ => Resolved::Missing,
    }
}

fn changed_nanos(metadata: &Metadata) -> i64 {
    metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec())
}

fn is_identity(file: &FileId, metadata: &Metadata) -> bool {
    (file.device, file.inode, file.changed_nanos) == (metadata.dev(), metadata.ino(), changed_nanos(metadata))
}

/// Whether the same file is still there, with the same content.
pub(super) fn is_unchanged(file: &FileId) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| metadata.is_file() && is_identity(file, &metadata))
}

/// Whether anybody may execute it.
pub(super) fn is_executable(file: &FileId) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| metadata.mode() & 0o111 != 0)
}
