//! What is known of a workspace, in a file of the state directory: a gateway that is killed while commands run leaves it to
//! the next one, which judges by it what has changed meanwhile.
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

use nix::unistd::{Gid, Uid};

use super::{control::Role, eyes::Eyes, gitconfig::Flavour, tree::Content};
use crate::{
    proto::state::{KnownFile, WorkspaceRecord, known_file},
    record::{self, MESSAGE_MAX_BYTES, ReadError},
    sys::credentials,
};

/// The file of one workspace.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// It is not written any more. Held while it is written or removed.
    is_forgotten: Mutex<bool>,
}

impl Store {
    pub(super) fn new(directory: &Path, (device, inode, uid): (u64, u64, u32)) -> Self {
        let path = directory.join(format!("{device:x}-{inode:x}-{uid}"));
        Self { path, is_forgotten: Mutex::new(false) }
    }

    /// What is to be written of what is known.
    pub(super) fn record(&self, eyes: &Eyes) -> WorkspaceRecord {
        let mut room = MESSAGE_MAX_BYTES / 2;
        let mut known = Vec::new();
        for (path, role, content) in eyes.known() {
            let content = match content {
                Content::File { bytes, mode } => {
                    known_file::Content::File(known_file::File { bytes: bytes.clone().into(), mode: *mode })
                }
                Content::Link(to) => known_file::Content::Link(to.as_os_str().as_bytes().to_vec().into()),
                Content::Directory => known_file::Content::Directory(true),
                Content::Absent | Content::Strange => continue,
            };
            let file = KnownFile {
                path: path.as_os_str().as_bytes().to_vec().into(),
                role: number(role),
                content: Some(content),
            };
            let size = prost::Message::encoded_len(&file) + 8;
            if size > room {
                continue;
            }
            room -= size;
            known.push(file);
        }
        WorkspaceRecord { known, is_whole: eyes.has_baseline }
    }

    /// Writes it, with the gateway's own rights; the thread then has the owner's again.
    pub(super) fn write(&self, record: &WorkspaceRecord, owner: (u32, u32)) {
        let is_forgotten = self.lock();
        if *is_forgotten {
            return;
        }
        let ours = (Uid::effective(), Gid::effective());
        let written = credentials::act_with_rights_of(ours.0, ours.1)
            .map_err(io::Error::from)
            .and_then(|()| self.write_as_ourselves(record));
        let (uid, gid) = owner;
        if let Err(errno) = credentials::act_with_rights_of(Uid::from_raw(uid), Gid::from_raw(gid)) {
            // It had them before.
            unreachable!("the rights of uid {uid} cannot be had again: {errno}");
        }
        if let Err(error) = written {
            tracing::error!(file = ?self.path, %error, "what is known of a workspace is not written down");
        }
    }

    fn write_as_ourselves(&self, written: &WorkspaceRecord) -> io::Result<()> {
        match record::write(&self.path, written) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.path.parent().unwrap_or(Path::new("/"));
                fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                record::write(&self.path, written)
            }
            done => done,
        }
    }

    /// What a gateway before this one has known; nothing, where there was none.
    pub(super) fn read(&self) -> Option<Vec<(PathBuf, Role, Content)>> {
        match record::read::<WorkspaceRecord>(&self.path) {
            Ok(record) if record.is_whole => Some(record.known.into_iter().filter_map(known).collect()),
            Ok(_) => None,
            Err(ReadError::Read(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(file = ?self.path, %error, "what was known of a workspace cannot be read");
                None
            }
        }
    }

    /// Removes it for good.
    pub(super) fn forget(&self) {
        let mut is_forgotten = self.lock();
        *is_forgotten = true;
        // A gateway that was killed while it wrote leaves the unfinished file, too.
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(record::UNFINISHED);
        for path in [self.path.as_path(), Path::new(&unfinished)] {
            match fs::remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(file = ?path, %error, "what was known of a workspace is not removed");
                }
            }
        }
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn known(file: KnownFile) -> Option<(PathBuf, Role, Content)> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let content = match file.content? {
        known_file::Content::File(file) => Content::File { bytes: file.bytes.to_vec(), mode: file.mode },
        known_file::Content::Link(to) => Content::Link(path(&to)),
        known_file::Content::Directory(_) => Content::Directory,
    };
    Some((path(&file.path), role(file.role)?, content))
}

/// Every role and its number on disk, which is never given to another one.
const ROLES: [(Role, u32); 7] = [
    (Role::Config(Flavour::Repository), 1),
    (Role::Config(Flavour::Modules), 2),
    (Role::Pointer, 3),
    (Role::Hook, 4),
    (Role::Hooks, 5),
    (Role::Tool, 6),
    (Role::Todo, 7),
];

fn number(role: Role) -> u32 {
    ROLES.iter().find(|(one, _)| *one == role).map_or(0, |(_, number)| *number)
}

fn role(number: u32) -> Option<Role> {
    ROLES.iter().find(|(_, one)| *one == number).map(|(role, _)| *role)
}
