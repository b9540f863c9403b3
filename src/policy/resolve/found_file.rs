//! What is known of a file that was found: its identity, whether it is still the same, and the first line of a script.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use super::{machine, shebang};
use crate::{
    byte_text,
    command::program::{FileId, PathStability, Resolved},
};

/// A file cannot be read, or was changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread;

/// The first line of a file, if it is a script.
type FirstLine = Result<Option<shebang::Shebang>, Unread>;

/// The first lines of files that may be exchanged at any moment: read from the same open file as their identity, so that they belong
/// together. What is executed is compared with the identity, and a file that is written to gets another one.
#[derive(Debug, Default)]
pub(super) struct FirstLines(RefCell<HashMap<(u64, u64, i64), FirstLine>>);

impl FirstLines {
    /// Reads the first line of a file that was found, which now has this identity; `None` where its path leads to another one by now.
    pub(super) fn read(&self, mut file: FileId) -> Option<FileId> {
        let line = match open(&file.path) {
            Ok(opened) => {
                let metadata = opened.metadata().ok()?;
                if !metadata.is_file() || (metadata.dev(), metadata.ino()) != (file.device, file.inode) {
                    return None;
                }
                file.changed_nanos = changed_nanos(&metadata);
                read_line(opened)
            }
            Err(error) if is_another(&error) => return None,
            Err(_) => Err(Unread),
        };
        self.0.borrow_mut().insert(identity(&file), line);
        Some(file)
    }

    /// The line of a file that was read.
    pub(super) fn get(&self, file: &FileId) -> FirstLine {
        self.0.borrow().get(&identity(file)).cloned().unwrap_or(Err(Unread))
    }
}

/// Whether a file that was there a moment ago has made room for a link, for nothing, or for another directory.
fn is_another(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP | libc::ENOTDIR | libc::ENXIO))
}

/// The first line of a file that nobody exchanges.
pub(super) fn first_line(file: &FileId) -> FirstLine {
    let opened = open(&file.path).map_err(|_| Unread)?;
    let metadata = opened.metadata().map_err(|_| Unread)?;
    if !metadata.is_file() || !is_identity(file, &metadata) {
        return Err(Unread);
    }
    read_line(opened)
}

/// Opens without blocking on a pipe in its place, and without following a link.
fn open(path: &str) -> io::Result<fs::File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    fs::File::options().read(true).custom_flags(flags).open(byte_text::to_path(path))
}

fn read_line(opened: fs::File) -> FirstLine {
    let mut beginning = Vec::with_capacity(shebang::MAX_SHEBANG_BYTES);
    opened.take(shebang::MAX_SHEBANG_BYTES as u64).read_to_end(&mut beginning).map_err(|_| Unread)?;
    Ok(shebang::parse(&beginning))
}

/// The file at a real path, which was looked for at another one.
pub(super) fn to_resolved(path: &Path, metadata: &Metadata, found_at: &Path, way: PathStability) -> Resolved {
    if !metadata.is_file() {
        return Resolved::Missing;
    }
    Resolved::File(FileId {
        path: byte_text::from_path(path),
        device: metadata.dev(),
        inode: metadata.ino(),
        changed_nanos: changed_nanos(metadata),
        lookup_path: byte_text::from_path(found_at),
        stability: way,
    })
}

fn changed_nanos(metadata: &Metadata) -> i64 {
    metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec())
}

fn identity(file: &FileId) -> (u64, u64, i64) {
    (file.device, file.inode, file.changed_nanos)
}

fn is_identity(file: &FileId, metadata: &Metadata) -> bool {
    identity(file) == (metadata.dev(), metadata.ino(), changed_nanos(metadata))
}

/// Whether the same file is still there, with the same content.
pub(super) fn is_unchanged(file: &FileId) -> bool {
    fs::symlink_metadata(byte_text::to_path(&file.path))
        .is_ok_and(|metadata| metadata.is_file() && is_identity(file, &metadata))
}

/// Whether it is a program of 32 bits. One that cannot be read is none that is known.
pub(super) fn is_32_bit(file: &FileId) -> bool {
    let read = || {
        let mut beginning = [0; machine::HEADER_BYTES];
        let mut opened = open(&file.path)?;
        opened.read_exact(&mut beginning).map(|()| beginning)
    };
    read().is_ok_and(|beginning| machine::is_32_bit(&beginning))
}

/// Whether anybody may execute it.
pub(super) fn is_executable(file: &FileId) -> bool {
    fs::symlink_metadata(byte_text::to_path(&file.path)).is_ok_and(|metadata| metadata.mode() & 0o111 != 0)
}
