//! The stored baseline of a workspace: a file in the state directory, by which the next gateway judges what commands have
//! changed after this gateway was killed.
//!
//! Holds the content of control files. Readable by the gateway's user only, bounded, and removed with the last session of
//! the workspace.

use std::{
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    control_files::Role,
    gitconfig::ConfigKind,
    integrity_checker::IntegrityChecker,
    tree::{FileContent, FileIdentity},
};
use crate::{
    proto::state::{KnownFile, WorkspaceRecord, known_file},
    statefile::{self, MESSAGE_MAX_BYTES},
    sys::{credentials, rights::Rights},
};

/// The file of one workspace.
#[derive(Debug)]
pub(super) struct BaselineStore {
    path: PathBuf,
    /// It is not written any more. Held while it is written or removed.
    is_removed: Mutex<bool>,
}

impl BaselineStore {
    pub(super) fn new(directory: &Path, (device, inode, uid): (u64, u64, u32)) -> Self {
        let path = directory.join(format!("{device:x}-{inode:x}-{uid}"));
        Self { path, is_removed: Mutex::new(false) }
    }

    /// The baseline as it is stored. Files that do not fit are left out.
    pub(super) fn record(&self, checker: &IntegrityChecker) -> WorkspaceRecord {
        let mut room = MESSAGE_MAX_BYTES / 2;
        let mut known = Vec::new();
        for (path, role, content) in checker.baseline() {
            let content = match content {
                FileContent::File { bytes, mode } => {
                    known_file::Content::File(known_file::File { bytes: bytes.clone().into(), mode: *mode })
                }
                FileContent::Link(to) => known_file::Content::Link(to.as_os_str().as_bytes().to_vec().into()),
                FileContent::Directory => known_file::Content::Directory(true),
                FileContent::Unsupported(Some(identity)) => {
                    known_file::Content::Unsupported(known_file::Identity {
                        device: identity.device,
                        inode: identity.inode,
                        size: identity.size,
                        written_at: identity.written_at,
                        changed_at: identity.changed_at,
                    })
                }
                FileContent::Absent | FileContent::Unsupported(None) => continue,
            };
            let file = KnownFile {
                path: path.as_os_str().as_bytes().to_vec().into(),
                role: role_number(role),
                content: Some(content),
            };
            let size = prost::Message::encoded_len(&file) + 8;
            if size > room {
                continue;
            }
            room -= size;
            known.push(file);
        }
        WorkspaceRecord { files: known, is_complete: checker.has_baseline }
    }

    /// Writes it, with the gateway's own rights; the thread then has the owner's again.
    pub(super) fn write(&self, record: &WorkspaceRecord, owner: &Rights) {
        let is_forgotten = self.lock();
        if *is_forgotten {
            return;
        }
        let written = credentials::restrict_file_access_to(&Rights::own())
            .map_err(io::Error::from)
            .and_then(|()| self.write_as_gateway(record));
        if let Err(errno) = credentials::restrict_file_access_to(owner) {
            // It had them before.
            unreachable!("the rights of uid {} cannot be had again: {errno}", owner.uid);
        }
        if let Err(error) = written {
            tracing::error!(file = ?self.path, %error, "the baseline of a workspace cannot be written");
        }
    }

    fn write_as_gateway(&self, written: &WorkspaceRecord) -> io::Result<()> {
        match statefile::write(&self.path, written) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.path.parent().unwrap_or(Path::new("/"));
                fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                statefile::write(&self.path, written)
            }
            done => done,
        }
    }

    /// Reads the baseline of an earlier gateway; `None` when there is none or it was not complete.
    pub(super) fn read(&self) -> Option<Vec<(PathBuf, Role, FileContent)>> {
        match statefile::read::<WorkspaceRecord>(&self.path) {
            Ok(record) if record.is_complete => {
                Some(record.files.into_iter().filter_map(decode_file).collect())
            }
            Ok(_) => None,
            Err(error) if error.is_missing() => None,
            Err(error) => {
                tracing::error!(file = ?self.path, %error, "the stored baseline of a workspace cannot be read");
                None
            }
        }
    }

    /// Removes it for good.
    pub(super) fn remove(&self) {
        let mut is_forgotten = self.lock();
        *is_forgotten = true;
        // A gateway that was killed while it wrote leaves the unfinished file, too.
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(statefile::TEMP_SUFFIX);
        for path in [self.path.as_path(), Path::new(&unfinished)] {
            match fs::remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(file = ?path, %error, "the stored baseline of a workspace cannot be removed");
                }
            }
        }
    }
}

impl BaselineStore {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_removed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode_file(file: KnownFile) -> Option<(PathBuf, Role, FileContent)> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let content = match file.content? {
        known_file::Content::File(file) => FileContent::File { bytes: file.bytes.to_vec(), mode: file.mode },
        known_file::Content::Link(to) => FileContent::Link(path(&to)),
        known_file::Content::Directory(_) => FileContent::Directory,
        known_file::Content::Unsupported(identity) => FileContent::Unsupported(Some(FileIdentity {
            device: identity.device,
            inode: identity.inode,
            size: identity.size,
            written_at: identity.written_at,
            changed_at: identity.changed_at,
        })),
    };
    Some((path(&file.path), role_from_number(file.role)?, content))
}

/// Every role and its number on disk, which is never given to another one.
const ROLES: [(Role, u32); 8] = [
    (Role::Config(ConfigKind::Repository), 1),
    (Role::Config(ConfigKind::Modules), 2),
    (Role::Pointer, 3),
    (Role::Hook, 4),
    (Role::Hooks, 5),
    (Role::Tool, 6),
    (Role::RebaseTodo, 7),
    (Role::State, 8),
];

fn role_number(role: Role) -> u32 {
    ROLES.iter().find(|(one, _)| *one == role).map_or(0, |(_, number)| *number)
}

fn role_from_number(number: u32) -> Option<Role> {
    ROLES.iter().find(|(_, one)| *one == number).map(|(role, _)| *role)
}
