//! How a journal is kept (when it is synced, when a file is rotated, which files are deleted, who signs), and its directory: what its files
//! are called, who may write it, and the file `head`.
//!
//! ```text
//! journal-00000000000000000001.jsonl    named by the first record in it
//! journal-00000000000000104233.jsonl    the last one by name is the current one
//! head                                  the last record known to be on disk
//! lock                                  held by the one writer
//! quarantine/                           torn last lines, as they were found
//! ```
//! A directory that other users can write to is refused.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    num::{NonZeroU32, NonZeroU64},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
};
use serde::{Deserialize, Serialize};

use super::{
    chain::{ChainHead, FORMAT_VERSION, Hash},
    line::MAX_SEQUENCE,
    signing::JournalKey,
};

/// When records reach the disk. With every rule a record is written to the file before its append returns, and so
/// survives the end of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncRule {
    /// Before the append returns: the record survives a crash of the host too. Costs a round trip to the disk.
    Always,
    /// Within this time after the write. A crash of the host loses the records of at most this time.
    Batch {
        /// The longest time until a written record is durable.
        within: Duration,
    },
    /// When the kernel writes its cache back.
    Off,
}

/// Which files are deleted, oldest first, when a new one is created. A limit that is absent deletes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Keep at most this many files, the current one included.
    pub files: Option<NonZeroU32>,
    /// Delete files that were last written longer ago than this, by wall time.
    pub age: Option<Duration>,
    /// Keep at least this many files whatever their age, so that a clock that jumps by years deletes no more.
    pub files_at_least: NonZeroU32,
}

/// How the journal is signed.
#[derive(Debug, Clone)]
pub struct Signing {
    /// The private key.
    pub key: JournalKey,
    /// Sign after this many records at the latest. The first and the last record of a file are signed too.
    pub every_records: NonZeroU64,
}

/// How a journal is kept.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// The directory of its files. Created with mode 0700 when it is missing.
    pub directory: PathBuf,
    /// When records are synced.
    pub sync: SyncRule,
    /// A file is rotated when it reaches this length.
    pub rotate_bytes: u64,
    /// A file is rotated at the first append after it reached this age on the boot clock.
    pub rotate_after: Option<Duration>,
    /// Which old files are deleted.
    pub retention: Retention,
    /// No record is deleted before it has this age, whatever the retention rule says, and no principal may write more in
    /// this time than its share of what the rule keeps. Zero: no minimum age, no shares.
    pub keep_at_least: Duration,
    /// How the journal is signed; absent: it is not.
    pub signing: Option<Signing>,
}

impl JournalOptions {
    /// The bytes that the retention rule keeps; 0: everything.
    pub fn kept_bytes(&self) -> u64 {
        self.retention.files.map_or(0, |files| self.rotate_bytes.saturating_mul(files.get().into()))
    }

    /// The defaults: synced within 50 ms, files of 64 MiB, the last 64 of them, unsigned.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            sync: SyncRule::Batch { within: Duration::from_millis(50) },
            rotate_bytes: 64 * 1024 * 1024,
            rotate_after: None,
            retention: Retention {
                files: NonZeroU32::new(64),
                age: None,
                files_at_least: NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN),
            },
            keep_at_least: Duration::ZERO,
            signing: None,
        }
    }
}

/// One file of the journal, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalFile {
    /// The number of the first record in it.
    pub first_sequence: u64,
    /// Its name in the directory.
    pub name: String,
}

impl JournalFile {
    /// The file that begins with this record.
    pub fn starting_at(first_sequence: u64) -> Self {
        Self { first_sequence, name: format!("journal-{first_sequence:020}.jsonl") }
    }

    fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("journal-")?.strip_suffix(".jsonl")?;
        let file = Self::starting_at(digits.parse().ok()?);
        (file.name == name && file.first_sequence <= MAX_SEQUENCE).then_some(file)
    }
}

/// The directory, for reading.
#[derive(Debug, Clone)]
pub struct JournalDirectory {
    path: PathBuf,
}

impl JournalDirectory {
    /// Names the directory; touches nothing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, oldest first.
    pub fn files(&self) -> io::Result<Vec<JournalFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            files.extend(entry?.file_name().to_str().and_then(JournalFile::parse));
        }
        files.sort();
        Ok(files)
    }

    /// Opens one of its files for reading.
    pub fn open(&self, file: &JournalFile) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(self.path.join(&file.name))
    }

    /// What `head` says; absent: there is no such file.
    pub fn head(&self) -> Result<Option<ChainHead>, HeadError> {
        let file = match OpenOptions::new().read(true).open(self.path.join(HEAD)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HeadError::Unreadable(error)),
        };
        let mut text = String::new();
        file.take(HEAD_BYTES).read_to_string(&mut text).map_err(HeadError::Unreadable)?;
        let head: Head = serde_json::from_str(&text).map_err(HeadError::Malformed)?;
        if head.v != FORMAT_VERSION {
            return Err(HeadError::UnknownVersion(head.v));
        }
        Ok(Some(ChainHead { sequence: head.sequence, hash: head.hash }))
    }
}

const HEAD: &str = "head";
const HEAD_BYTES: u64 = 1024;
const QUARANTINE: &str = "quarantine";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    v: u32,
    sequence: u64,
    hash: Hash,
}

/// The file `head` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// It cannot be read.
    #[error("the file head cannot be read")]
    Unreadable(#[source] io::Error),
    /// It is not what a journal wrote.
    #[error("the file head is garbled")]
    Malformed(#[source] serde_json::Error),
    /// It is of another version.
    #[error("the file head has version {0}, and this program reads version {FORMAT_VERSION}")]
    UnknownVersion(u32),
}

/// The directory cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum JournalDirectoryError {
    /// It cannot be made or used.
    #[error("the journal's directory {} cannot be used", crate::printable::path(path))]
    Unavailable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others than its owner may write to it, or its owner is not this user.
    #[error(
        "the journal's directory {} must belong to user {uid} alone, and has owner {owner} and mode {mode:o}",
        crate::printable::path(path)
    )]
    InsecurePermissions {
        /// The directory.
        path: PathBuf,
        /// Who it must belong to.
        uid: u32,
        /// Who it belongs to.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// Another writer has it.
    #[error("the journal in {} is being written by another process", crate::printable::path(path))]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

/// The directory, held for writing by this process alone until it is dropped.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    directory: JournalDirectory,
    _lock: Flock<File>,
}

impl LockedDirectory {
    /// Makes the directory where it is missing, and takes its lock.
    pub(crate) fn lock(path: &Path) -> Result<Self, JournalDirectoryError> {
        let unusable = |source| JournalDirectoryError::Unavailable { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let found = fs::metadata(path).map_err(unusable)?;
        let uid = nix::unistd::geteuid().as_raw();
        let mode = found.mode() & 0o7777;
        if found.uid() != uid || mode & 0o022 != 0 {
            return Err(JournalDirectoryError::InsecurePermissions {
                path: path.to_owned(),
                uid,
                owner: found.uid(),
                mode,
            });
        }
        let file =
            private_file_options().create(true).truncate(false).open(path.join("lock")).map_err(unusable)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => JournalDirectoryError::Locked { path: path.to_owned() },
            errno => unusable(errno.into()),
        })?;
        Ok(Self { directory: JournalDirectory::new(path), _lock: lock })
    }

    /// The same, for reading.
    pub(crate) fn directory(&self) -> &JournalDirectory {
        &self.directory
    }

    /// Opens a file to append to.
    pub(crate) fn open_to_append(&self, file: &JournalFile) -> io::Result<File> {
        private_file_options().append(true).read(true).open(self.directory.path.join(&file.name))
    }

    /// Creates a file that must not exist, and makes its name durable.
    pub(crate) fn create(&self, file: &JournalFile) -> io::Result<File> {
        let created = private_file_options()
            .append(true)
            .read(true)
            .create_new(true)
            .open(self.directory.path.join(&file.name))?;
        self.sync_names()?;
        Ok(created)
    }

    /// Deletes a file.
    pub(crate) fn remove(&self, file: &JournalFile) -> io::Result<()> {
        fs::remove_file(self.directory.path.join(&file.name))
    }

    /// Stores bytes that are removed from a file durably, and returns their name.
    pub(crate) fn quarantine(
        &self,
        file: &JournalFile,
        offset: u64,
        mut bytes: impl io::Read,
    ) -> io::Result<String> {
        let directory = self.directory.path.join(QUARANTINE);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        for attempt in 0..1000_u32 {
            let name = format!("{}-at-{offset}-{attempt}", file.name);
            match private_file_options().create_new(true).open(directory.join(&name)) {
                Ok(mut kept) => {
                    io::copy(&mut bytes, &mut kept)?;
                    kept.sync_all()?;
                    File::open(&directory)?.sync_all()?;
                    return Ok(name);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from(Errno::EEXIST))
    }

    /// Replaces `head`: after a crash of this process it is the old one or the new one; after one of the host too,
    /// where `sync` is anything but off.
    pub(crate) fn write_head(&self, chain_head: ChainHead, sync: SyncRule) -> io::Result<()> {
        write_head(&self.directory.path, chain_head, sync)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.directory.path)?.sync_all()
    }
}

/// As [`LockedDirectory::write_head`], for a thread of the process that holds the lock.
pub(crate) fn write_head(directory: &Path, chain_head: ChainHead, sync: SyncRule) -> io::Result<()> {
    let head = Head { v: FORMAT_VERSION, sequence: chain_head.sequence, hash: chain_head.hash };
    let new = directory.join("head.new");
    let mut file = private_file_options().create(true).truncate(true).open(&new)?;
    file.write_all(&serde_json::to_vec(&head)?)?;
    if sync != SyncRule::Off {
        file.sync_data()?;
    }
    drop(file);
    fs::rename(new, directory.join(HEAD))
}

fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_journal_gives_are_its_files() {
        let file = JournalFile::starting_at(42);
        assert_eq!(JournalFile::parse(&file.name), Some(file));
        for name in ["journal-42.jsonl", "journal-+0000000000000000042.jsonl", "head", "journal-.jsonl", "x"]
        {
            assert_eq!(JournalFile::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_head_is_read_as_it_was_written_and_garbage_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let held = LockedDirectory::lock(&root.path().join("j")).unwrap();
        assert!(held.directory().head().unwrap().is_none());
        held.write_head(ChainHead::START, SyncRule::Off).unwrap();
        assert_eq!(held.directory().head().unwrap(), Some(ChainHead::START));
        fs::write(held.directory().path().join(HEAD), b"{\"v\":1,").unwrap();
        assert!(matches!(held.directory().head(), Err(HeadError::Malformed(_))));
    }

    #[test]
    fn two_writers_are_refused_and_so_is_a_directory_that_others_may_write() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("j");
        let held = LockedDirectory::lock(&path).unwrap();
        assert!(matches!(LockedDirectory::lock(&path), Err(JournalDirectoryError::Locked { .. })));
        drop(held);
        LockedDirectory::lock(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o770)).unwrap();
        assert!(matches!(
            LockedDirectory::lock(&path),
            Err(JournalDirectoryError::InsecurePermissions { .. })
        ));
    }
}
